"""A model's provider: whether it answers and has the model, and one real request to the model, made
by the agent's own program."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire import envelope
from wire.envelope import Secrets
from wire.errors import Code, WireError
from wire.limits import ENVELOPE_VERSION
from wire.logs import find_startup_failure
from wire.providers import KEYED, OFFLINE
from wire.settings import AgentSettings, UserSettings, to_json
from wire.v1 import bootstrap_pb2
from wire.v1.bootstrap_pb2 import MaintenanceJob, TryModel

from runner.config.models import Config
from runner.config.tiers import installed
from runner.config.user_id import DEFAULT_USER_ID
from runner.doctor.finding import Finding, ok, warning
from runner.errors import HostError, TierError
from runner.host.launch import guest_environment
from runner.host.maintenance import run_job
from runner.providers.servers import Server, server_at
from runner.tiers.process.packages import check_packages
from runner.workspace.keys import read_api_key

_COMMAND: Final = (sys.executable, "-P", "-m", "guest.app", "--bootstrap-stdin")
_WITHIN_S: Final = 90.0
_LAST_CHARS: Final = 500
_LIST_S: Final = 5.0
_BEGUN_BY: Final = {"ollama": "ollama serve", "lmstudio": "lms server start"}
_GOT_BY: Final = {"ollama": "ollama pull {}", "lmstudio": "lms get {}"}
"""Of programs that say which models they have by the names that they take."""
_OTHERS: Final = "another model is chosen by: runner init"


@dataclass(frozen=True)
class Trial:
    """How many seconds a model took, and, where it was not asked by a guest, why."""

    took_s: float
    why_from_here: str = ""


class CannotTry(HostError):  # noqa: N818 - a condition, not a bug
    """This installation has no agent, or not what the provider needs; its guests may have it."""


def look_at_server(agent: AgentSettings, environ: Mapping[str, str]) -> list[Finding]:
    """Whether the server of the configured model answers, has it, and says that it calls tools. Its
    list is read; the model is not asked."""
    try:
        key = read_api_key(agent, environ)
    except WireError:
        return []  # as the finding on the credential says
    if agent.provider == OFFLINE:
        return []
    try:
        found = asyncio.run(server_at(agent.base_url, key, agent.provider, _LIST_S))
    except WireError as error:
        fix = error.resolution
        if error.code is Code.UNAVAILABLE and Server.at("", agent.url).is_local:
            fix = _BEGUN_BY.get(agent.provider, fix)
        elif error.code is Code.FAILED_PRECONDITION and agent.provider in KEYED:
            fix = f"runner credentials set --provider {agent.provider}"
        return [warning("model", f"{error.brief} ({error.details})", fix)]
    named = (agent.model, f"{agent.model}:latest")
    model = next((each for each in found.models if each.name in named), None)
    where = f"{found.program} at {agent.url}"
    if model is None and found.provider in _GOT_BY:
        fix = f"{_GOT_BY[found.provider].format(agent.model)}; {_OTHERS}"
        return [warning("model", f"{where} does not have {agent.model}", fix)]
    if model is not None and model.tools is False:
        what = f"{agent.model} cannot call tools, as {where} says: it can only talk"
        return [warning("model", what, _OTHERS)]
    return [ok("model", f"{where} answers{f', and has {agent.model}' if model else ''}")]


def try_as_agent(config: Config, user_id: str, key: str = "", *, until: str = "tool") -> Trial:
    """Ask the model by the way that the guests will take: in the process tier from this machine, in
    another one by guests that do nothing else, or, if they cannot run now, from this machine too.

    Raises what `try_provider` does; the details then say why no guest was asked, too.
    """
    agent, why = config.for_user(user_id).agent, ""
    if installed(config.tier).images:
        job = MaintenanceJob(try_model=TryModel(until=until))
        keys = {agent.provider: key} if key else None
        try:
            done = asyncio.run(run_job(config, user_id, job, lambda *_: None, keys=keys))
            return Trial(float(done["took_s"]))
        except (TierError, HostError) as error:
            why = error.brief
    try:
        return Trial(try_provider(agent, os.environ, key, until=until), why)
    except WireError as error:
        told = f"no guest could be asked: {why}" if why else ""
        error.details = "; ".join(filter(None, (error.details, told)))
        raise


def try_provider(
    agent: AgentSettings, environ: Mapping[str, str], key: str = "", *, until: str = "tool"
) -> float:
    """Ask the model to call a tool, as an agent with these settings would. Returns the seconds.

    `key` is one that no setting names yet. `until` is one of `TRIALS`.

    The key goes over standard input. Raises `CannotTry`, and `WireError` with what the operator can
    do if the key is missing or the request fails.
    """
    key = key or read_api_key(agent, environ)
    settings = UserSettings(agent=agent)
    try:
        check_packages(settings)
    except TierError as error:
        raise CannotTry(
            error.code,
            f"this installation cannot ask provider {agent.provider!r}",
            details=error.brief,
            resolution=error.resolution,
        ) from None
    message = bootstrap_pb2.BootstrapEnvelope(
        version=ENVELOPE_VERSION,
        user_id=DEFAULT_USER_ID,
        settings=to_json(settings),
        secrets=Secrets(api_key=key).message(),
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="oxydra-") as home:
        try:
            done = subprocess.run(  # noqa: S603 - our own words, no shell
                (*_COMMAND, "--try-model", until),
                input=envelope.encode(message),
                capture_output=True,
                env=guest_environment(Path(home), environ),
                cwd=home,
                timeout=_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(
                Code.TIMEOUT,
                f"provider {agent.provider!r} has not answered for {_WITHIN_S:g} seconds",
                resolution="check the network and base_url",
            ) from None
    if done.returncode == 0:
        return time.monotonic() - began
    said = done.stderr.decode(errors="replace")
    raise find_startup_failure(said) or _unexplained(said)


def _unexplained(said: str) -> WireError:
    return HostError(
        Code.INTERNAL,
        "the request failed for an unknown reason",
        details=said.strip()[-_LAST_CHARS:],
        resolution="report this as a bug, without your key",
    )
