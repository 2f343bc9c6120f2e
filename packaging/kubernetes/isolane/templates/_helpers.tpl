{{- define "isolane.labels" -}}
app.kubernetes.io/name: isolane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "isolane.selector" -}}
app.kubernetes.io/name: isolane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "isolane.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- /* Root without any capability: it writes only into folders that the machine's root owns. */ -}}
{{- define "isolane.unprivileged" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
