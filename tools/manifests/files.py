"""Which object is in which file, and what else the chart has."""

import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .nodes import Each, Node, Set, lines, plain
from .objects import Objects
from .settings import template
from .values import defaults, schema, values_yaml

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / "deploy" / "kubernetes"

_HEAD: Final = "Made by tools/manifests from one source with the chart."
_HELPERS: Final = """\
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
"""
_NOTES: Final = """\
Oxydra {{ .Chart.AppVersion }} in the namespace {{ .Release.Namespace }}.
It starts the agents of: {{ join ", " .Values.users }}
Their pods are in the namespace {{ include "oxydra.guests" . }}.

Both namespaces should refuse what no pod of this is:
  kubectl label --overwrite namespace {{ .Release.Namespace }} {{ include "oxydra.guests" . }} \\
    pod-security.kubernetes.io/enforce=restricted
{{- if .Values.runner.secret }}

Keys of model providers are entries of a Secret of yours, named as agent.api_key_env says. After a
change of it, restart the runner; what it runs goes on:
  kubectl -n {{ .Release.Namespace }} create secret generic {{ .Values.runner.secret }} \\
    --from-env-file=FILE
  kubectl -n {{ .Release.Namespace }} rollout restart deployment/oxydra-runner
{{- end }}

The commands of the guide run in the replica that holds the Lease:
  oxydra() { kubectl -n {{ .Release.Namespace }} exec -it "$(kubectl -n {{ .Release.Namespace }} \\
    get lease oxydra-runner -o 'jsonpath={.spec.holderIdentity}')" -c runner -- runner "$@"; }
  oxydra doctor
  oxydra --user {{ first .Values.users }} status
  oxydra --user {{ first .Values.users }} doctor --boundary
  oxydra --user {{ first .Values.users }} chat
{{- if .Values.serve.enabled }}

The console, with a link that lets you in once:
  kubectl -n {{ .Release.Namespace }} port-forward "$(kubectl -n {{ .Release.Namespace }} \\
    get lease oxydra-runner -o 'jsonpath={.spec.holderIdentity}')" {{ .Values.serve.port }}
  oxydra serve --open
{{- end }}
"""


@dataclass(frozen=True)
class File:
    """Objects of one file, and in a sentence what they are. With `condition`, the chart has them
    where it holds; with `extra`, the kustomization leaves the file out."""

    name: str
    what: str
    objects: list[Node]
    condition: Set | None = None
    extra: bool = False
    in_chart: bool = True
    in_plain: bool = True


def version() -> str:
    """The version of this project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def files() -> list[File]:
    made = Objects(version())
    embedder = Set("embedder.enabled")
    memory = Set("memoryServer.enabled")
    return [
        File(
            "namespace",
            "The namespaces, in which only pods with the restricted profile may run: the runner's "
            "with its Secrets, and the guests' with none.",
            made.namespaces(),
            in_chart=False,
        ),
        File(
            "runner-role",
            "Who the runner is and what it may do: no Secrets, and pods only where guests are.",
            [made.account(), *made.rights()],
        ),
        File(
            "doctor-role",
            "What `runner doctor` may look at in the whole cluster; it works without.",
            made.reader(),
            Set("rbac.clusterReader"),
            extra=True,
        ),
        File(
            "settings",
            "runner.toml. After a change: kubectl rollout restart deployment/oxydra-runner.",
            [made.settings()],
        ),
        File(
            "runner",
            "The runner: the replica with the Lease runs all hosts, the other one waits.",
            [made.records(), made.runner()],
        ),
        File(
            "service",
            "Where the HTTP server is reached.",
            [made.service()],
            Set("serve.enabled"),
            in_plain=False,
        ),
        File(
            "embedder",
            "What turns text into vectors, for all users of the namespace. It waits until a runner "
            "gives it its identity.",
            [made.embedder(), made.embedder_policy()],
            embedder,
        ),
        File(
            "network-policies",
            "Nothing reaches the guests, nor do they anything, until the runner has allowed it for "
            "each user.",
            [made.default_policy(), made.runner_policy()],
        ),
        File(
            "memory-server",
            "A libSQL server for each user's memory; each needs the ConfigMap that memory-users.sh "
            "makes.",
            made.memory(),
            memory,
            extra=True,
        ),
        File(
            "quota",
            "What all of it may take.",
            [made.quota()],
            Set("quota"),
            in_plain=False,
        ),
        File(
            "limits",
            "What each of it may take.",
            [made.limits()],
            Set("limits"),
            in_plain=False,
        ),
    ]


def manifests() -> dict[str, str]:
    """The files of `plain`, by their names."""
    made = {
        f"{file.name}.yaml": _file(f"{_HEAD} {file.what}", _plain_objects(file.objects))
        for file in files()
        if file.in_plain
    }
    named = [f"{file.name}.yaml" for file in files() if file.in_plain and not file.extra]
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": named,
    }
    extras = " and ".join(f"{file.name}.yaml" for file in files() if file.extra)
    made["kustomization.yaml"] = _file(
        f"{_HEAD} Without {extras}, which not everybody needs.", [listed]
    )
    return made


def chart() -> dict[str, str]:
    """The files of `chart`, by their names."""
    made = {
        "Chart.yaml": _file(_HEAD, [_chart()]),
        "values.yaml": values_yaml(),
        "values.schema.json": schema(),
        "templates/_helpers.tpl": _HELPERS,
        "templates/_settings.tpl": template(version()),
        "templates/NOTES.txt": _NOTES,
    }
    for file in files():
        if file.in_chart:
            made[f"templates/{file.name}.yaml"] = _template(file)
    return made


def write() -> None:
    """Write all files, and remove all others."""
    for folder, content in (("plain", manifests()), ("chart", chart())):
        place = PLACE / folder
        for name, text in content.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        for found in place.rglob("*"):
            if found.is_file() and str(found.relative_to(place)) not in content:
                found.unlink()


def _chart() -> dict[str, Any]:
    return {
        "apiVersion": "v2",
        "name": "oxydra",
        "description": "An agent that remembers, and a shell that cannot see what it knows",
        "type": "application",
        "version": version(),
        "appVersion": version(),
        "kubeVersion": ">=1.20.0-0",
    }


def _plain_objects(objects: list[Node]) -> list[Any]:
    values = defaults()
    made = []
    for each in objects:
        made += each.of(values) if isinstance(each, Each) else [each]
    return [plain(each, values) for each in made]


def _template(file: File) -> str:
    parts = []
    for each in file.objects:
        if isinstance(each, Each):
            text = "\n".join(lines(each.template))
            parts.append(f"{{{{- range $.Values.{each.path} }}}}\n---\n{text}\n{{{{- end }}}}")
        else:
            parts.append("---\n" + "\n".join(lines(each)))
    text = "\n".join(parts)
    comment = "\n".join(textwrap.wrap(file.what, 94))
    head = f"{{{{- /* {comment} */ -}}}}\n"
    if file.condition is not None:
        text = f"{{{{- if {file.condition.template} }}}}\n{text}\n{{{{- end }}}}"
    return head + text + "\n"


def _file(comment: str, objects: list[Any]) -> str:
    head = (f"# {line}" for line in textwrap.wrap(comment, 96))
    return "\n".join([*head, "\n---\n".join("\n".join(lines(each)) for each in objects)]) + "\n"
