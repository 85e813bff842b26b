{{/* A version's tag as a part of names. */}}
{{- define "clotho.part" -}}
{{- regexReplaceAll "[^a-z0-9-]+" (lower .) "-" | trimAll "-" -}}
{{- end -}}

{{- define "clotho.labels" -}}
app.kubernetes.io/name: clotho
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
clotho/version: {{ .version | quote }}
{{- end -}}

{{/* Environment of every process. */}}
{{- define "clotho.env" -}}
- {name: TEMPORAL_ADDRESS, value: {{ .Values.temporal.address | quote }}}
- {name: TEMPORAL_NAMESPACE, value: {{ .Values.temporal.namespace | quote }}}
- {name: CLOTHO_STORE, value: {{ .Values.store.location | quote }}}
- {name: CLOTHO_WORKER__DEPLOYMENT, value: {{ .Values.deployment | quote }}}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{- define "clotho.secrets" -}}
{{- range . }}
{{- if . }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "clotho.security" -}}
{{- if eq . "privileged" -}}
{privileged: true, runAsUser: 0, runAsGroup: 0}
{{- else if eq . "userNamespaces" -}}
runAsUser: 0
runAsGroup: 0
allowPrivilegeEscalation: true
procMount: Unmasked
capabilities: {add: [SYS_ADMIN, NET_ADMIN, SETUID, SETGID, CHOWN, KILL]}
seccompProfile: {type: Unconfined}
appArmorProfile: {type: Unconfined}
{{- else if eq . "engine" -}}
{runAsUser: 0, runAsGroup: 0, allowPrivilegeEscalation: false, seccompProfile: {type: RuntimeDefault}}
{{- else -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}
{{- end -}}
