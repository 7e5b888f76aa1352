{{- /* The reference of an image: by its digest if there is one. */ -}}
{{- define "oxydra.image" -}}
{{- $image := index .root.Values.images .role -}}
{{- $name := printf "oxydra-%s" .name -}}
{{- if .root.Values.images.registry -}}
{{- $name = printf "%s/%s" .root.Values.images.registry $name -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.root.Values.images.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{- /* The guests' namespace. */ -}}
{{- define "oxydra.guests" -}}
{{- .Values.kubernetes.namespace | default (printf "%s-guests" .Release.Namespace) -}}
{{- end }}

{{- /* How the runner labels what is a user's. */ -}}
{{- define "oxydra.slug" -}}
{{ regexReplaceAll "[^a-z0-9]+" . "-" | trimAll "-" }}-{{ sha256sum . | trunc 6 }}
{{- end }}
