"""Jobs of an agent guest that does not serve: re-keying, restoring and moving a user's memory, and
trying a model.

  lock ─ workspace ─ log ─ leftovers ─ egress ─ one guest with one job ─ its report

The job runs in an agent guest, in the same tier and with the same envelope, so nothing else gets
access to the memory or its key. If it needs the network, an egress guest runs beside it.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from wire.errors import Code
from wire.identity import Party
from wire.logs import MAINTENANCE_DONE, MAINTENANCE_PROGRESS
from wire.text import parsed_json
from wire.v1 import bootstrap_pb2, gateway_pb2

from runner import logs
from runner.audit.log import AuditLog, LogLocation
from runner.config.models import Config
from runner.egress.watcher import EgressWatcher
from runner.errors import HostError, file_errors
from runner.host.authority import Authority
from runner.host.egress import Egress
from runner.host.launch import AgentLauncher, EgressLauncher, Launchers
from runner.host.loopback import HostLoopback
from runner.host.removal import clear_leftovers
from runner.host.runtime import Runtime, host_lock
from runner.host.supervisor import Launch, NeedsOperator, meaning_of_end
from runner.logs import host_log
from runner.tiers.base import Handle, Port, TierDriver
from runner.tiers.drivers import driver_for
from runner.workspace.beneath import clear, directory_beneath
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace

Progress = Callable[[str, int, int], None]
"""Called with the step, how much of it is done, and the total."""

_POLL_S: Final = 0.1
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SHELL: Final = "memory is being worked on"


async def run_job(
    config: Config,
    user_id: str,
    job: bootstrap_pb2.MaintenanceJob,
    progress: Progress,
    *,
    incoming: Path | None = None,
    job_key: str = "",
    keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Let an agent guest do `job` instead of serving, and return its report.

    `incoming` is a file of the operator, which the guest sees as `restore.path` during the job.
    `job_key` is the old key of the files, or the key of the backup. `keys` are those of providers
    that count before those that `config` names. Raises `HostError`
    (ALREADY_EXISTS) if a host runs for the user, and the `WireError` of a guest that fails.
    """
    driver = driver_for(config)
    workspace = Workspace.locate(config, user_id)
    runtime = Runtime.locate(config, user_id)
    authority = Authority.new()
    launchers = Launchers(
        config, workspace, driver.capabilities, authority, environ=os.environ, keys=keys
    )
    launcher = launchers.agent
    workspace.check()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(driver.close)
        await driver.check()
        runtime.create()
        stack.enter_context(_nobody_running(runtime.lock))
        stack.enter_context(workspace.held())
        stack.enter_context(host_log(runtime.log, user_id, config.log_level))
        await clear_leftovers(runtime, workspace, driver, config)
        if incoming is not None and not workspace.here:
            job.restore.incoming_bytes = _size(incoming)
        elif incoming is not None:
            job.restore.path = stack.enter_context(_lent(incoming, workspace, launcher))
        tries = job.HasField("try_model")
        if tries:
            workspace.settle()  # there may be none yet
        else:
            workspace.adopt()
        handle = None
        if tries or job.HasField("move"):
            loopback = HostLoopback(
                workspace, authority.issue(Party.RUNNER), launchers.egress.kept.loopback_token
            )
            stack.push_async_callback(loopback.close)
            await loopback.serve(launchers.egress.handed)
            handle = await stack.enter_async_context(
                _egress(config, user_id, driver, launchers.egress)
            )
        launch = launcher.prepare(
            bootstrap_pb2.Link(),
            bootstrap_pb2.Link(unavailable_reason=_NO_SHELL),
            maintenance=job,
            job_key=job_key,
            egress=driver.capabilities.placement.link(
                launchers.egress.link, handle, Port.AGENT_LISTENER
            ),
            upstreams=launchers.egress.upstreams,
        )
        if not workspace.here:
            launch = replace(launch, spec=replace(launch.spec, incoming=incoming))
        return await _done(driver, launch, progress)


@contextlib.asynccontextmanager
async def _egress(
    config: Config, user_id: str, driver: TierDriver, launcher: EgressLauncher
) -> AsyncIterator[Handle | None]:
    """An egress guest for the time of the job, whose requests are recorded like all others. Nobody
    is there to be asked. Yields its handle, if it runs."""

    async def ask(_: gateway_pb2.AskRequest) -> gateway_pb2.AskReply:
        raise HostError(Code.UNAVAILABLE, _NO_SHELL)

    async def heard() -> None:
        pass

    audit = AuditLog(LogLocation.locate(config, user_id), config.audit.keep_days)
    audit.open()
    watcher = EgressWatcher(audit, ask, lambda _role, _grant: None, roles=(Role.AGENT,))

    running: Handle | None = None

    def moved(handle: Handle | None) -> None:
        nonlocal running
        running = handle

    egress = Egress(
        driver.beside, Role.EGRESS, launcher, watcher, on_handle=moved, configured=heard
    )
    try:
        await egress.start()
        yield running
    finally:
        await egress.stop()
        audit.close()


async def _done(driver: TierDriver, launch: Launch, progress: Progress) -> dict[str, Any]:
    log, home = launch.spec.log_path, launch.spec.home
    clear(log, home, keep_file=True)
    offset = logs.next_offset(log, home)
    handle = await driver.start(launch.spec)
    try:
        ending = asyncio.ensure_future(driver.wait(handle))
        while not ending.done():
            await asyncio.wait({ending}, timeout=_POLL_S)
            if steps := _events(logs.read_from(log, home, offset), MAINTENANCE_PROGRESS):
                progress(*steps[-1]["progress"])
        code = ending.result()
    finally:
        await driver.stop(handle)
    output = logs.read_from(log, home, offset)
    done = _events(output, MAINTENANCE_DONE)
    if code == 0 and done:
        return dict(done[-1]["result"])
    failure = meaning_of_end(Role.AGENT, code, output, "before its work was done")
    raise failure.error if isinstance(failure, NeedsOperator) else failure


def _events(text: str, name: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            record = parsed_json(line)
            if isinstance(record, dict) and record.get("event") == name:
                found.append(record)
    return found


@contextlib.contextmanager
def _nobody_running(lock: Path) -> Iterator[None]:
    try:
        with host_lock(lock):
            yield
    except HostError as error:
        if error.code is not Code.ALREADY_EXISTS:
            raise
        raise HostError(
            Code.ALREADY_EXISTS,
            "the agent is running, and this needs its memory for itself",
            details=error.details,
            resolution="runner stop, then the same command again",
        ) from None


def _size(source: Path) -> int:
    with file_errors(f"cannot read {source}", f"ls -l {source}"):
        return source.stat().st_size


@contextlib.contextmanager
def _lent(source: Path, workspace: Workspace, launcher: AgentLauncher) -> Iterator[str]:
    """Lend the guest a private copy of `source` beside the memory. Yields its path in the guest."""
    copy = workspace.internal / "restoring.db"
    try:
        fix = f"ls -l {source}; df -h {workspace.internal}"
        with file_errors(f"cannot copy {source} into the workspace", fix):
            clear(copy, workspace.path)  # a restore that was killed may have left it
            with directory_beneath(workspace.path, workspace.internal) as directory:
                fd = os.open(copy.name, _NEW, 0o600, dir_fd=directory)
            with source.open("rb") as reading, os.fdopen(fd, "wb") as writing:
                shutil.copyfileobj(reading, writing)
        yield launcher.guest_path(copy)
    finally:
        clear(copy, workspace.path)
