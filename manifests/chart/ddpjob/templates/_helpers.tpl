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

{{/* The Lease of what is served: ddpjob_core/api/scope.py has the same names. */}}
{{- define "ddpjob.lease" -}}
{{- if not .Values.namespaces -}}
ddpjob-operator
{{- else if eq (len .Values.namespaces) 1 -}}
{{- printf "ddpjob-operator.%s" (first .Values.namespaces) -}}
{{- else -}}
{{- printf "ddpjob-operator.namespaces.%s" (sortAlpha .Values.namespaces | join "," | sha256sum | trunc 32) -}}
{{- end -}}
{{- end -}}

{{/* Pods may use every service account of their namespace, the operator's too. */}}
{{- define "ddpjob.checked" -}}
{{- if and (has .Release.Namespace .Values.namespaces) (not .Values.allowOwnNamespace) -}}
{{- printf "namespaces has the release's own namespace %s: anyone who may create pods there could use the operator's service account. Install the release in another namespace, such as ddpjob-system, or set allowOwnNamespace if only administrators create pods in %s." .Release.Namespace .Release.Namespace | fail -}}
{{- end -}}
{{- end -}}

{{- define "ddpjob.subjects" -}}
- kind: ServiceAccount
  name: {{ include "ddpjob.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
