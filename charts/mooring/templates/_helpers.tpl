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
{{- if has (trim .Values.operators) (list "*" "all" "") }}redis-sentinel,redis-cluster,mysql,matrixone{{ else }}{{ nospace .Values.operators }}{{ end }}
{{- end }}

{{/*
API group, version and kinds of each operator in the release, as a list of dictionaries. main: what users declare clusters
by; operations: of what they are told at admission; defaulted: kinds that defaults are written into; scope: of a webhook.
*/}}
{{- define "mooring.kinds" -}}
{{- $names := splitList "," (include "mooring.operators" .) }}
{{- if has "redis-sentinel" $names }}
- operator: redis-sentinel
  group: redis.kun
  version: v1beta1
  main: redisclusters
  plurals: [redisclusters]
  defaulted: []
  operations: [CREATE, UPDATE, DELETE]
  scope: Namespaced
{{- end }}
{{- if has "redis-cluster" $names }}
- operator: redis-cluster
  group: redis.middleware.hc.cn
  version: v1alpha1
  main: redisclusters
  plurals: [redisclusters]
  defaulted: []
  operations: [CREATE, UPDATE]
  scope: Namespaced
{{- end }}
{{- if has "mysql" $names }}
- operator: mysql
  group: mysql.mooring.dev
  version: v1alpha1
  main: mysqlclusters
  plurals: [mysqlclusters, mysqlbackups, mysqlbackupschedules]
  defaulted: []
  operations: [CREATE, UPDATE, DELETE]
  scope: Namespaced
- operator: mysql
  group: example.com
  version: v1
  main: mysqlclusters
  plurals: [mysqlclusters]
  defaulted: []
  operations: [CREATE, UPDATE, DELETE]
  scope: Namespaced
{{- end }}
{{- if has "matrixone" $names }}
- operator: matrixone
  group: core.matrixorigin.io
  version: v1alpha1
  main: matrixoneclusters
  plurals: [matrixoneclusters, logsets, dnsets, cnsets, proxysets, webuis, bucketclaims, backupjobs, backups, restorejobs, cnpools, cnclaims, cnclaimsets]
  defaulted: [matrixoneclusters, logsets, dnsets, cnsets]
  operations: [CREATE, UPDATE]
  scope: "*"
{{- end }}
{{- end }}

{{/* The kinds of backups that these operators serve beside those: the first part of the group, and the kind's name. */}}
{{- define "mooring.backups" -}}
{{- $names := splitList "," (include "mooring.operators" .) }}
{{- if has "mysql" $names }}
mysql: mysqlbackup
{{- end }}
{{- if or (has "redis-sentinel" $names) (has "redis-cluster" $names) }}
redis: redisbackup
{{- end }}
{{- end }}

{{/*
What the operators need in every namespace they work in, by operator; a test compares it with what they ask for.
An apply that makes its object takes create beside patch; finalizers: to own objects where owners are guarded.
*/}}
{{- define "mooring.rules" -}}
{{- $names := splitList "," (include "mooring.operators" .) }}
{{- range include "mooring.kinds" . | fromYamlArray }}
{{- if ne .operator "matrixone" }}
- apiGroups: [{{ .group }}]
  resources: [{{ .main }}]
  {{- /* MySQL: the annotation that asks for a switchover is removed once it is done. */}}
  verbs: [get, list, watch{{ if eq .operator "mysql" }}, patch{{ end }}]
- apiGroups: [{{ .group }}]
  resources: [{{ .main }}/status]
  verbs: [patch]
- apiGroups: [{{ .group }}]
  resources: [{{ .main }}/finalizers]
  verbs: [update]
{{- end }}
{{- end }}
{{- $backups := include "mooring.backups" . | fromYaml }}
{{- range $group, $kind := $backups }}
# A schedule makes backups and deletes what its retention lets go; each run is a Job, and a restore fills a claim first.
- apiGroups: [{{ $group }}.mooring.dev]
  resources: [{{ $kind }}s]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [{{ $group }}.mooring.dev]
  resources: [{{ $kind }}schedules]
  verbs: [get, list, watch]
- apiGroups: [{{ $group }}.mooring.dev]
  resources: [{{ $kind }}s/status, {{ $kind }}schedules/status]
  verbs: [patch]
- apiGroups: [{{ $group }}.mooring.dev]
  resources: [{{ $kind }}s/finalizers]
  verbs: [update]
{{- end }}
{{- if $backups }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# How far a backup is, from the log of its pod.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# Stored data goes with its backup, unless the namespace ends: nothing runs there any more.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end }}
{{- if has "matrixone" $names }}
# A cluster is made of sets, and each is done with before its object goes.
{{- range list "matrixoneclusters" "logsets" "dnsets" "cnsets" "proxysets" "webuis" "bucketclaims" }}
- apiGroups: [core.matrixorigin.io]
  resources: [{{ . }}]
  verbs: [get, list, watch, {{ if ne . "matrixoneclusters" }}create, delete, {{ end }}patch]
{{- if ne . "bucketclaims" }}
- apiGroups: [core.matrixorigin.io]
  resources: [{{ . }}/status]
  verbs: [patch]
- apiGroups: [core.matrixorigin.io]
  resources: [{{ . }}/finalizers]
  verbs: [update]
{{- end }}
{{- end }}
# A pool is a CNSet and looks at claims; a claim set makes claims, and deletes them.
{{- range list "cnpools" "cnclaims" "cnclaimsets" }}
- apiGroups: [core.matrixorigin.io]
  resources: [{{ . }}]
  verbs: [get, list, watch{{ if eq . "cnclaims" }}, create, delete{{ end }}{{ if ne . "cnclaimsets" }}, patch{{ end }}]
- apiGroups: [core.matrixorigin.io]
  resources: [{{ . }}/status]
  verbs: [patch]
{{- if ne . "cnclaims" }}
- apiGroups: [core.matrixorigin.io]
  resources: [{{ . }}/finalizers]
  verbs: [update]
{{- end }}
{{- end }}
# A schedule makes backups, a cluster the restore that it begins with; both go after their time. Each run is a Job.
- apiGroups: [core.matrixorigin.io]
  resources: [backupjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [core.matrixorigin.io]
  resources: [restorejobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [core.matrixorigin.io]
  resources: [backupjobs/status, restorejobs/status]
  verbs: [patch]
- apiGroups: [core.matrixorigin.io]
  resources: [backupjobs/finalizers, restorejobs/finalizers]
  verbs: [update]
{{- if ne .Values.scope "namespaced" }}
- apiGroups: [core.matrixorigin.io]
  resources: [backups]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [core.matrixorigin.io]
  resources: [backups/finalizers]
  verbs: [update]
{{- end }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# Proxies and dashboards; objects that a set no longer declares; compute nodes and their claims.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, secrets]
  verbs: [delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, create]
# A compute node serves clients once its store works.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create, delete]
{{- if and .Values.rbac.takeover (ne .Values.scope "namespaced") }}
# The workloads of clusters that upstream's operator made: deleted without their pods.
- apiGroups: [apps.kruise.io]
  resources: [statefulsets]
  verbs: [get, patch, delete]
- apiGroups: [apps.kruise.io]
  resources: [clonesets]
  verbs: [get, delete]
{{- end }}
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
{{- if has "mysql" $names }}
# What archives the binary log of a cluster, and goes when that is no longer declared.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch, delete]
# A new image is started once beside the cluster before any pod is touched.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create]
{{- end }}
{{- if and (has "redis-cluster" $names) (include "mooring.webhooks" .) }}
# Keys of a template that Redis does not know are warned of at apply.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
{{- end }}
{{- if and (has "matrixone" $names) (ne .Values.scope "namespaced") }}
# Whether the Secret of a path of an object store went with its namespace.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end }}
{{- $growing := and .Values.rbac.volumes (or (has "redis-sentinel" $names) (has "redis-cluster" $names) (has "mysql" $names)) }}
{{- if or $growing (and (has "redis-cluster" $names) .Values.rbac.exec) }}
# df, where volumes are to grow by themselves; and of Redis Cluster whether the process of a master that does not answer
# stands still. API servers ask for one verb, newer ones for both.
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]
{{- end }}
{{- if and (or (has "mysql" $names) (has "matrixone" $names)) .Values.rbac.cpuMetrics }}
# What servers use of their CPU request, where autoscale follows that.
- apiGroups: [metrics.k8s.io]
  resources: [pods]
  verbs: [list]
{{- end }}
{{- if has "redis-cluster" $names }}
# Whether HarmonyCloud's operator runs: its lock.
- apiGroups: [""]
  resources: [endpoints]
  verbs: [list]
{{- end }}
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
{{- if or (has "redis-sentinel" $names) (has "redis-cluster" $names) }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
{{- end }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch]
{{- if ne .Values.scope "namespaced" }}
{{- if or (has "redis-cluster" $names) (has "mysql" $names) (has "matrixone" $names) }}
# Which node and zone a pod runs in: no master beside its replica; which node is being drained of primaries and compute nodes.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end }}
{{- if has "matrixone" $names }}
# Whether a namespace ends: a path of an object store whose Secret went with it is not held for ever.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end }}
{{- if or (has "redis-sentinel" $names) (has "mysql" $names) (has "matrixone" $names) (eq .Values.scope "all") }}
# Whether a namespaced operator lives where an object is: all yields to it, the webhook of cluster warns without one.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: {{ ternary "[list, watch]" "[get]" (eq .Values.scope "all") }}
{{- if and (has "matrixone" $names) (ne .Values.scope "all") }}
# Whether upstream's operator runs.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The console's pods are others than the operator's: no Service of one may lead to the other. */}}
{{- define "mooring.console.selector" -}}
app.kubernetes.io/name: mooring-console
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mooring.console.labels" -}}
{{ include "mooring.console.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mooring.console.account" -}}
{{ default (printf "%s-console" (include "mooring.name" .)) .Values.console.serviceAccount.name }}
{{- end }}

{{- define "mooring.console.scheme" -}}
{{ ternary "https" "http" (ne .Values.console.tls.secretName "") }}
{{- end }}

{{/* The configuration of the console; mooring console --config reads it. */}}
{{- define "mooring.console.settings" -}}
{{- $console := .Values.console }}
{{- $url := $console.url }}
{{- if and (not $url) $console.ingress.enabled }}{{ $url = printf "https://%s" $console.ingress.host }}{{ end }}
{{- $settings := dict
  "url" (default (printf "%s://localhost:8443" (include "mooring.console.scheme" .)) $url)
  "listen" (ternary "[::]:8443" "0.0.0.0:8443" $console.ipv6)
  "sessionKeys" "/etc/mooring/sessions/keys"
  "tokens" $console.tokens
  "terminal" $console.terminal
  "impersonate" $console.impersonation.enabled
  "namespaces" $console.namespaces
  "catalogResources" $console.catalogResources }}
{{- if $console.catalogConfigMap }}{{ $_ := set $settings "catalogDirectories" (list "/etc/mooring/catalog") }}{{ end }}
{{- if $console.tls.secretName }}
{{- $tls := dict "certificate" "/etc/mooring/tls/tls.crt" "key" "/etc/mooring/tls/tls.key" }}
{{- if $console.proxy.names }}{{ $_ := set $tls "clientCa" "/etc/mooring/tls/ca.crt" }}{{ end }}
{{- $_ := set $settings "tls" $tls }}
{{- end }}
{{- if $console.proxy.enabled }}
{{- $proxy := pick $console.proxy "userHeader" "groupsHeader" "sources" "names" "usernamePrefix" "groupsPrefix" }}
{{- if $console.proxy.secret }}{{ $_ := set $proxy "secretFile" "/etc/mooring/proxy/secret" }}{{ end }}
{{- $_ := set $settings "proxy" $proxy }}
{{- end }}
{{- if $console.oidc.issuer }}
{{- $oidc := pick $console.oidc "issuer" "clientId" "scopes" "usernameClaim" "groupsClaim" "usernamePrefix" "groupsPrefix" }}
{{- if $console.oidc.clientSecret }}{{ $_ := set $oidc "clientSecretFile" "/etc/mooring/oidc/secret" }}{{ end }}
{{- if $console.oidc.caConfigMap }}{{ $_ := set $oidc "caFile" "/etc/mooring/oidc-ca/ca.crt" }}{{ end }}
{{- $_ := set $settings "oidc" $oidc }}
{{- end }}
{{- if $console.prometheus.url }}
{{- $prometheus := dict "url" $console.prometheus.url }}
{{- if $console.prometheus.tokenSecret }}{{ $_ := set $prometheus "tokenFile" "/etc/mooring/prometheus/token" }}{{ end }}
{{- if $console.prometheus.caConfigMap }}{{ $_ := set $prometheus "caFile" "/etc/mooring/prometheus-ca/ca.crt" }}{{ end }}
{{- $_ := set $settings "prometheus" $prometheus }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{/* What the shared watch caches read in every namespace that the console looks at: no Secret, and no write but of Events. */}}
{{- define "mooring.console.rules" -}}
# The kinds of the packaged entries; a test compares them.
- apiGroups: [redis.kun, redis.middleware.hc.cn]
  resources: [redisclusters]
  verbs: [list, watch]
- apiGroups: [redis.mooring.dev]
  resources: [redisbackups, redisbackupschedules]
  verbs: [list, watch]
- apiGroups: [mysql.mooring.dev]
  resources: [mysqlclusters, mysqlbackups, mysqlbackupschedules]
  verbs: [list, watch]
- apiGroups: [core.matrixorigin.io]
  resources: [matrixoneclusters, backupjobs, restorejobs, cnpools, cnclaims, cnclaimsets]
  verbs: [list, watch]
- apiGroups: [postgresql.cnpg.io]
  resources: [clusters]
  verbs: [list, watch]
- apiGroups: [kafka.strimzi.io]
  resources: [kafkas, kafkanodepools]
  verbs: [list, watch]
- apiGroups: [rabbitmq.com]
  resources: [rabbitmqclusters]
  verbs: [list, watch]
# Which operators work.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list, watch]
{{- range .Values.console.kinds }}
- apiGroups: [{{ .group }}]
  resources: {{ toYaml .resources | nindent 2 }}
  verbs: [list, watch]
{{- end }}
# What users did is recorded as Events of the instances.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch{{ if .Values.console.recordActivity }}, create{{ end }}]
{{- if .Values.console.catalogResources }}
- apiGroups: [catalog.mooring.dev]
  resources: [servicetemplates]
  verbs: [list, watch]
- apiGroups: [catalog.mooring.dev]
  resources: [servicetemplates/status]
  verbs: [patch]
{{- end }}
{{- end }}
