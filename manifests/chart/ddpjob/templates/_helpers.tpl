{{/*
A name of manifests/base in this release. The release `ddpjob` has the very names of manifests/base; another one has its
own name at the end, so that several fit into one namespace. Call with (list "ddpjob-operator" .).
*/}}
{{- define "ddpjob.name" -}}
{{- $release := (index . 1).Release.Name -}}
{{- if has $release (list "ddpjob" "ddpjob-operator") -}}
{{- index . 0 -}}
{{- else -}}
{{- printf "%s-%s" (index . 0) $release | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ddpjob.operator" -}}
{{- include "ddpjob.name" (list "ddpjob-operator" .) -}}
{{- end -}}

{{- define "ddpjob.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "ddpjob.operator" .) -}}
{{- end -}}

{{/* What finds the operator's pods of this release, and of no other release in the same namespace. */}}
{{- define "ddpjob.selector" -}}
app.kubernetes.io/name: ddpjob-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "ddpjob.labels" -}}
{{ include "ddpjob.selector" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ddpjob.image" -}}
{{- with .Values.image -}}
{{- .repository -}}
{{- with .tag }}:{{ . }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The namespaces that are served, then where the Leases are if it is not where the operator looks by itself. */}}
{{- define "ddpjob.arguments" -}}
{{- range .Values.namespaces }}
- {{ printf "--namespace=%s" . }}
{{- end }}
{{- if ne .Values.leaseNamespace "ddpjob-system" }}
- {{ printf "--lease-namespace=%s" .Values.leaseNamespace }}
{{- end }}
{{- with .Values.jobNetworkPolicies }}
{{- if .install }}
- --network-policies
{{- range .metricsNamespaces }}
- {{ printf "--metrics-namespace=%s" . }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ddpjob.subjects" -}}
- kind: ServiceAccount
  name: {{ include "ddpjob.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
