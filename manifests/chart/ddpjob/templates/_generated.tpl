{{- /* Generated from manifests/base/cluster-role.yaml, manifests/overlays/network-policies/cluster-role.yaml, manifests/base/role.yaml, manifests/overlays/prometheus-operator/pod-monitors.yaml by `python -m hack.generate`; do not edit. */}}
{{- define "ddpjob.rules.jobs" -}}
- apiGroups:
  - ddpjob.dev
  resources:
  - ddpjobs
  verbs:
  - list
  - watch
  - delete
- apiGroups:
  - ddpjob.dev
  resources:
  - ddpjobs/status
  verbs:
  - update
- apiGroups:
  - ''
  resources:
  - pods
  verbs:
  - create
  - delete
  - list
  - patch
  - watch
- apiGroups:
  - ''
  resources:
  - services
  verbs:
  - create
  - list
  - watch
- apiGroups:
  - ''
  resources:
  - configmaps
  verbs:
  - create
- apiGroups:
  - ''
  resources:
  - persistentvolumeclaims
  verbs:
  - create
  - get
- apiGroups:
  - ''
  resources:
  - secrets
  verbs:
  - create
- apiGroups:
  - ''
  resources:
  - events
  verbs:
  - create
{{- if .Values.jobNetworkPolicies.install }}
- apiGroups:
  - networking.k8s.io
  resources:
  - networkpolicies
  verbs:
  - create
  - list
  - update
  - watch
{{- end }}
{{- end -}}
{{- define "ddpjob.rules.leases" -}}
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - create
  - list
  - watch
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  resourceNames:
  - {{ include "ddpjob.lease" . }}
  verbs:
  - get
  - update
{{- end -}}
{{- define "ddpjob.scrape.operator" -}}
- port: http
  honorLabels: true
  relabelings:
  - sourceLabels:
    - __meta_kubernetes_pod_node_name
    targetLabel: node
{{- end -}}
{{- define "ddpjob.scrape.trainer" -}}
- relabelings:
  - sourceLabels:
    - __meta_kubernetes_pod_container_port_name
    action: keep
    regex: metrics-.*
  - sourceLabels:
    - __meta_kubernetes_pod_node_name
    targetLabel: node
  - sourceLabels:
    - __meta_kubernetes_pod_label_ddpjob_dev_job
    targetLabel: ddpjob
  metricRelabelings:
  - action: labeldrop
    regex: exported_ddpjob
{{- end -}}
{{- define "ddpjob.scrape.operator.limits" -}}
sampleLimit: 500000
labelLimit: 50
labelNameLengthLimit: 200
labelValueLengthLimit: 1000
bodySizeLimit: 100MB
{{- end -}}
{{- define "ddpjob.scrape.trainer.limits" -}}
sampleLimit: 5000
labelLimit: 50
labelNameLengthLimit: 200
labelValueLengthLimit: 1000
bodySizeLimit: 4MB
{{- end -}}
