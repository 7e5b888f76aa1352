"""`runner.toml`, from the same parts with the default values and as a template of the chart."""

import json
from typing import Any, Final

from .nodes import OMITTED, Either, If, Set, Value, Values, plain

GUESTS: Final = Either("oxydra-guests", '{{ include "oxydra.guests" $ }}')
"""The guests' namespace."""
IMAGE: Final = '{{ include "oxydra.image" (dict "root" $ "role" "%s" "name" "%s") }}'


def image(role: str, name: str, version: str) -> Either:
    """The image of a role, whose values are at `images.<role>`."""
    return Either(f"oxydra-{name}:{version}", IMAGE % (role, name))


def _quoted(node: Either) -> Either:
    return Either(node.plain, node.chart.replace(" }}", " | toJson }}"))


def sections(version: str) -> dict[str, Any]:
    """Each section with its keys."""
    images = {
        "agent_image": _quoted(image("agent", "agent", version)),
        "shell_image": _quoted(image("shell", "shell-pod", version)),
        "egress_image": _quoted(image("egress", "egress", version)),
    }
    kubernetes = {
        "storage_class": "storageClass",
        "state_size": "stateSize",
        "work_size": "workSize",
        "keep_claims": "keepClaims",
        "runtime_class": "runtimeClass",
        "node_selector": "nodeSelector",
        "dns_labels": "dnsLabels",
        "dns_namespace": "dnsNamespace",
        "private_ranges": "privateRanges",
        "lease_s": "leaseSeconds",
        "start_s": "startSeconds",
    }
    backend = '{{ ternary $.Values.embedder.backend "none" $.Values.embedder.enabled | toJson }}'
    listen = '"0.0.0.0:{{ $.Values.serve.port }}"'
    return {
        "": {
            "workspace_root": "/var/lib/oxydra/workspaces",
            "runtime_dir": "/var/lib/oxydra/run",
            "tier": "kubernetes",
            "log_level": Value("runner.logLevel"),
        },
        "kubernetes": {
            "namespace": _quoted(GUESTS),
            **images,
            "image_pull_policy": Value("images.pullPolicy"),
            "image_pull_secrets": Value("images.pullSecrets"),
            **{key: Value(f"kubernetes.{name}") for key, name in kubernetes.items()},
        },
        "embedder": {
            "backend": Either(Value("embedder.backend"), backend),
            "model": Value("embedder.model"),
            "reranker": Value("embedder.reranker"),
        },
        "serve": If(
            Set("serve.enabled"),
            {
                "listen": Either("", listen),
                "certificate": "/etc/oxydra-tls/tls.crt",
                "key": "/etc/oxydra-tls/tls.key",
                "url": Value("serve.url"),
                "hosts": Value("serve.hosts"),
            },
        ),
    }


def with_defaults(version: str, values: Values) -> str:
    """The text with `values`."""
    written = []
    for name, section in sections(version).items():
        keys = plain(section, values)
        if keys is OMITTED or not keys:
            continue
        if name:
            written += ["", f"[{name}]"]
        for key, value in keys.items():
            written.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    for user in values["users"]:
        written += ["", f"[users.{user}]"]
    return "\n".join(written) + "\n"


def template(version: str) -> str:
    """The text as a template named `oxydra.settings`."""
    written = ['{{- define "oxydra.settings" -}}']
    for name, section in sections(version).items():
        written += _section(name, section)
    written += ["{{- range $.Values.users }}", "", "[users.{{ . }}]", "{{- end }}"]
    written += ["{{- with $.Values.settings }}", "", "{{ . | trim }}", "{{- end }}", "{{- end }}"]
    return "\n".join(written) + "\n"


def _section(name: str, section: Any) -> list[str]:
    head = ["", f"[{name}]"] if name else []
    if isinstance(section, If):
        inner = _section(name, section.then)
        return [f"{{{{- if {section.condition.template} }}}}", *inner, "{{- end }}"]
    return [*head, *(f"{key} = {_text(node)}" for key, node in section.items())]


def _text(node: Any) -> str:
    match node:
        case Value():
            return node.template
        case Either():
            return node.chart
    return json.dumps(node)
