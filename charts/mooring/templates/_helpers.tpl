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

{{/* The operators of this release, as a list joined by commas; * are all. */}}
{{- define "mooring.operators" -}}
{{- if has (trim .Values.operators) (list "*" "all" "") }}redis-sentinel,redis-cluster{{ else }}{{ nospace .Values.operators }}{{ end }}
{{- end }}

{{/* API group and version of each operator's kind, as a list of dictionaries: of one, which is in the release. */}}
{{- define "mooring.kinds" -}}
{{- $names := splitList "," (include "mooring.operators" .) }}
{{- if has "redis-sentinel" $names }}
- {operator: redis-sentinel, group: redis.kun, version: v1beta1}
{{- end }}
{{- if has "redis-cluster" $names }}
- {operator: redis-cluster, group: redis.middleware.hc.cn, version: v1alpha1}
{{- end }}
{{- end }}

{{/*
What the operators need in every namespace they work in, by operator; a test compares it with what they ask for.
An apply that makes its object takes create beside patch; finalizers: to own objects where owners are guarded.
*/}}
{{- define "mooring.rules" -}}
{{- $names := splitList "," (include "mooring.operators" .) }}
{{- range include "mooring.kinds" . | fromYamlArray }}
- apiGroups: [{{ .group }}]
  resources: [redisclusters]
  verbs: [get, list, watch]
- apiGroups: [{{ .group }}]
  resources: [redisclusters/status]
  verbs: [patch]
- apiGroups: [{{ .group }}]
  resources: [redisclusters/finalizers]
  verbs: [update]
{{- end }}
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
{{- if has "redis-cluster" $names }}
# Whether HarmonyCloud's operator runs: its lock.
- apiGroups: [""]
  resources: [endpoints]
  verbs: [list]
{{- end }}
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if has "redis-sentinel" $names }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch]
{{- else }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, watch, create, patch]
{{- end }}
{{- if ne .Values.scope "namespaced" }}
{{- if has "redis-cluster" $names }}
# Which node and zone a pod runs in: no master beside its replica.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end }}
{{- if or (has "redis-sentinel" $names) (eq .Values.scope "all") }}
# Whether a namespaced operator lives where an object is: all yields to it, the webhook of cluster warns without one.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: {{ ternary "[list, watch]" "[get]" (eq .Values.scope "all") }}
{{- end }}
{{- end }}
{{- end }}
