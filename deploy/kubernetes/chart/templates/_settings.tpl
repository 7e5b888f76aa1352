{{- define "oxydra.settings" -}}
workspace_root = "/var/lib/oxydra/workspaces"
runtime_dir = "/var/lib/oxydra/run"
tier = "kubernetes"
log_level = {{ $.Values.runner.logLevel | toJson }}

[kubernetes]
namespace = {{ include "oxydra.guests" $ | toJson }}
agent_image = {{ include "oxydra.image" (dict "root" $ "role" "agent" "name" "agent") | toJson }}
shell_image = {{ include "oxydra.image" (dict "root" $ "role" "shell" "name" "shell-pod") | toJson }}
egress_image = {{ include "oxydra.image" (dict "root" $ "role" "egress" "name" "egress") | toJson }}
image_pull_policy = {{ $.Values.images.pullPolicy | toJson }}
image_pull_secrets = {{ $.Values.images.pullSecrets | toJson }}
storage_class = {{ $.Values.kubernetes.storageClass | toJson }}
state_size = {{ $.Values.kubernetes.stateSize | toJson }}
work_size = {{ $.Values.kubernetes.workSize | toJson }}
keep_claims = {{ $.Values.kubernetes.keepClaims | toJson }}
runtime_class = {{ $.Values.kubernetes.runtimeClass | toJson }}
node_selector = {{ $.Values.kubernetes.nodeSelector | toJson }}
dns_labels = {{ $.Values.kubernetes.dnsLabels | toJson }}
dns_namespace = {{ $.Values.kubernetes.dnsNamespace | toJson }}
private_ranges = {{ $.Values.kubernetes.privateRanges | toJson }}
lease_s = {{ $.Values.kubernetes.leaseSeconds | toJson }}
start_s = {{ $.Values.kubernetes.startSeconds | toJson }}

[embedder]
backend = {{ ternary $.Values.embedder.backend "none" $.Values.embedder.enabled | toJson }}
model = {{ $.Values.embedder.model | toJson }}
reranker = {{ $.Values.embedder.reranker | toJson }}
{{- if $.Values.serve.enabled }}

[serve]
listen = "0.0.0.0:{{ $.Values.serve.port }}"
certificate = "/etc/oxydra-tls/tls.crt"
key = "/etc/oxydra-tls/tls.key"
url = {{ $.Values.serve.url | toJson }}
hosts = {{ $.Values.serve.hosts | toJson }}
{{- end }}
{{- range $.Values.users }}

[users.{{ . }}]
{{- end }}
{{- with $.Values.settings }}

{{ . | trim }}
{{- end }}
{{- end }}
