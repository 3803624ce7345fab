{{- define "mooring.name" -}}
{{- if contains "mooring" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-mooring" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "mooring.selector" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mooring.labels" -}}
{{ include "mooring.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mooring.account" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "mooring.name" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "mooring.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{/* The namespaces of scope namespaced, as a list joined by commas. */}}
{{- define "mooring.namespaces" -}}
{{ join "," (default (list .Release.Namespace) .Values.namespaces) }}
{{- end }}

{{/* Whether webhooks are served: they belong to the whole cluster. */}}
{{- define "mooring.webhooks" -}}
{{- if and .Values.webhooks.enabled (ne .Values.scope "namespaced") }}yes{{ end }}
{{- end }}

{{- define "mooring.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "mooring.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/*
What the operators need in every namespace they work in, by operator; a test compares it with what they ask for.
An apply that makes its object takes create beside patch; finalizers: to own objects where owners are guarded.
*/}}
{{- define "mooring.rules" -}}
{{- $all := has (trim .Values.operators) (list "*" "all" "") }}
{{- $names := splitList "," (nospace .Values.operators) }}
{{- if or $all (has "redis-sentinel" $names) }}
- apiGroups: [redis.kun]
  resources: [redisclusters]
  verbs: [get, list, watch]
- apiGroups: [redis.kun]
  resources: [redisclusters/status]
  verbs: [patch]
- apiGroups: [redis.kun]
  resources: [redisclusters/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if ne .Values.scope "namespaced" }}
# Whether a namespaced operator lives where an object is: all yields to it, the webhook of cluster warns without one.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: {{ ternary "[list, watch]" "[get]" (eq .Values.scope "all") }}
{{- end }}
{{- end }}
{{- end }}
