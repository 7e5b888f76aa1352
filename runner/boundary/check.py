"""The boundary self-test: the runner asks guests, from inside, what they can reach.

    spec = build_spec(launch, driver.confinement(launch), …)
    report = await check_boundary(channel, spec, launch.mounts)
    require_passed(report)

Behind policies, that nobody answers a guest is no proof unless somebody listens. So the runner
connects to the targets that are forbidden to the guest at the same time. Where none of them answers
it either, the test has failed.

The agent is asked for its network alone (`check_network`): its files are its own. A check that
cannot run, or whose answer is missing or malformed, counts as failed.
"""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import grpc
from wire.boundary import KERNELS, POLICIES, BoundarySpec
from wire.endpoint import Endpoint
from wire.errors import Code, WireError
from wire.network_probe import POLICED_PATIENCE_S, WAYS, Spec, connect
from wire.status import answered, from_rpc_error
from wire.text import parsed_json, visible_name
from wire.transport import was_cancelled
from wire.v1 import control_pb2, gateway_pb2, gateway_pb2_grpc, shell_pb2, shell_pb2_grpc

from runner.boundary.directories import beacons, reachable
from runner.errors import TierError
from runner.workspace.mounts import BoundMount

PROBE: Final = "probe"
"""The name of the failed check when the probe itself did not work."""
PROOF: Final = "proof_of_policies"
"""The name of the failed check when nobody is known to listen where policies forbid to connect."""
AGENT: Final = "agent: "
"""What the names of the agent's checks begin with."""
TIMEOUT_S: Final = 60.0
_NETWORK_S: Final = 10.0
_CONNECTION_S: Final = 5.0
_OUTPUT_MAX_BYTES: Final = 128 * 1024
_DETAILS_MAX_CHARS: Final = 1000

_Asked = TypeVar("_Asked", BoundarySpec, Spec)


async def check_boundary(
    channel: grpc.aio.Channel, spec: BoundarySpec, mounts: Sequence[BoundMount] = ()
) -> control_pb2.BoundaryReport:
    """Run every probe in the shell guest, with the rights of any command. `channel` carries the
    shell's token. `mounts` are those of the guest; where it has a kernel of its own, which may
    number files as it likes, what lies in them is looked at from here.

    A failure of the test itself is a failed check. Raises `WireError` (RESOURCE_EXHAUSTED) if the
    guest lacks the disk or memory for it.
    """
    unproven: list[control_pb2.BoundaryCheck] = []
    try:
        async with asyncio.timeout(TIMEOUT_S + _CONNECTION_S), _listeners(spec) as complete:
            if spec.own_kernel and not spec.remote:
                with beacons(complete, mounts) as complete:
                    answer = await _run(channel, complete.to_json())
                reached = await asyncio.to_thread(reachable, spec, mounts)
            else:
                policed = spec.policed and POLICIES in spec.checks
                answer, unproven = await asyncio.gather(
                    _run(channel, complete.to_json()), _unproven(spec, policed)
                )
                reached = {}
        checks = [_together(check, reached.get(check.name, [])) for check in _parse(answer, spec)]
        checks += unproven
    except grpc.RpcError as error:
        if (found := from_rpc_error(error)).code is Code.RESOURCE_EXHAUSTED:
            raise found from None
        checks = [_failed(PROBE, f"the shell could not run it: {found.brief}")]
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        checks = [_failed(PROBE, "the shell guest ended while it ran")]
    except TimeoutError:
        checks = [_failed(PROBE, f"no answer within {TIMEOUT_S:g} seconds")]
    except (OSError, ValueError) as error:
        checks = [_failed(PROBE, str(error))]
    return _report(checks)


async def check_network(
    channel: grpc.aio.Channel, spec: Spec, known: Mapping[str, str] | None = None
) -> control_pb2.BoundaryReport:
    """Have the agent guest try every way out. `channel` carries the gateway's token. `known` says
    of the ways that may be open in this tier why they may.

    Never raises: a failure of the test itself is a failed check.
    """
    stub: Any = gateway_pb2_grpc.GatewayStub(channel)
    try:
        async with _listeners(spec) as complete:
            request = gateway_pb2.ProbeNetworkRequest(spec=complete.to_json())
            reply, unproven = await asyncio.gather(
                answered(stub.ProbeNetwork(request, timeout=_NETWORK_S)),
                _unproven(spec, spec.policed, AGENT),
            )
        ways = {way.name: way for way in reply.ways}
        checks = [_route(name, ways.get(name), (known or {}).get(name, "")) for name in WAYS]
        checks += unproven
    except (WireError, OSError) as error:
        checks = [_failed(AGENT + PROBE, f"the agent could not try its ways out: {error}")]
    return _report(checks)


def together(reports: Sequence[control_pb2.BoundaryReport]) -> control_pb2.BoundaryReport:
    """One report of several guests, as old as the oldest of theirs."""
    return control_pb2.BoundaryReport(
        passed=all(report.passed for report in reports),
        checked_at=min(report.checked_at for report in reports),
        checks=[check for report in reports for check in report.checks],
    )


def could_not_run(report: control_pb2.BoundaryReport) -> bool:
    """Whether the test failed only because it could not run, which says nothing of a boundary."""
    failed = {check.name for check in report.checks if not check.passed}
    return bool(failed) and failed <= {PROBE, AGENT + PROBE}


def require_passed(report: control_pb2.BoundaryReport, guest: str = "shell") -> None:
    """Raise `TierError` (FAILED_PRECONDITION) that lists every failed check of a guest."""
    if report.passed:
        return
    failures = [f"{check.name}: {check.details}" for check in report.checks if not check.passed]
    raise TierError(
        Code.FAILED_PRECONDITION,
        f"the boundary of the {guest} guest does not hold",
        details="\n".join(failures) or "the report holds no check",
        resolution="fix what is listed, then check again: runner doctor --boundary",
    )


def kernel_of(report: control_pb2.BoundaryReport) -> str:
    """Whose kernel the guest runs on; empty if that is not known."""
    found = [check.details for check in report.checks if check.name == "kernel" and check.passed]
    return found[0] if found and found[0] in KERNELS else ""


async def admit(channel: grpc.aio.Channel, token: str) -> None:
    """Let the agent connect, once the boundary is proven. Raises `WireError`."""
    stub: Any = shell_pb2_grpc.ShellStub(channel)
    await answered(stub.Admit(shell_pb2.AdmitRequest(token=token), timeout=_CONNECTION_S))


async def set_egress(channel: grpc.aio.Channel, route: shell_pb2.SetEgressRequest) -> None:
    """Say how commands get out. Raises `WireError`."""
    stub: Any = shell_pb2_grpc.ShellStub(channel)
    await answered(stub.SetEgress(route, timeout=_CONNECTION_S))


def _report(checks: Sequence[control_pb2.BoundaryCheck]) -> control_pb2.BoundaryReport:
    return control_pb2.BoundaryReport(
        passed=all(check.passed for check in checks),
        checked_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        checks=checks,
    )


def _route(name: str, way: gateway_pb2.ProbedRoute | None, known: str) -> control_pb2.BoundaryCheck:
    if way is None:
        return _failed(AGENT + name, "the agent did not report it")
    if not (way.shut or known):
        return _failed(AGENT + name, way.found or "it is open")
    details = "shut" if way.shut else f"open: {known}"
    return control_pb2.BoundaryCheck(name=AGENT + name, passed=True, details=details)


async def _unproven(
    spec: _Asked, policed: bool, guest: str = ""
) -> list[control_pb2.BoundaryCheck]:
    """What is wrong with the proof where policies are tried: nothing if a target that is forbidden
    to the guest answers the runner."""
    if not policed:
        return []
    outcomes = await asyncio.to_thread(connect, spec.forbidden, POLICED_PATIENCE_S)
    if "connected" in outcomes.values():
        return []
    why = "none of the forbidden targets answers the runner, so silence proves nothing"
    tried = (f"{t.label} {t.address} port {t.port}: {end}".strip() for t, end in outcomes.items())
    return [_failed(guest + PROOF, f"{why}: {', '.join(tried)}")]


@asynccontextmanager
async def _listeners(spec: _Asked) -> AsyncIterator[_Asked]:
    """Listen on the loopback interface of the host, which no guest may reach, or on all of its
    interfaces where policies must keep the guest from them."""
    name = f"oxydra-boundary-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(Endpoint(host="*" if spec.policed else "127.0.0.1").listen(128))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        abstract.bind(f"\0{name}")
        abstract.listen()
        yield spec._replace(listener_port=port.getsockname()[1], listener_name=name)


async def _run(channel: grpc.aio.Channel, stdin: bytes) -> bytes:
    """Return what the probe wrote. Raises `ValueError` if it did not exit with 0."""
    stub: Any = shell_pb2_grpc.ShellStub(channel)
    exec_id = f"boundary-{secrets.token_hex(8)}"
    start = shell_pb2.StartExecRequest(
        exec_id=exec_id,
        probe=True,
        timeout_ms=int(TIMEOUT_S * 1000),
        stdin=stdin,
    )
    await stub.Start(start, timeout=_CONNECTION_S)
    try:
        return await _output(stub, exec_id)
    finally:
        with contextlib.suppress(grpc.RpcError):
            await stub.Cancel(shell_pb2.CancelExecRequest(exec_id=exec_id), timeout=_CONNECTION_S)
            await stub.Release(shell_pb2.ReleaseExecRequest(exec_id=exec_id), timeout=_CONNECTION_S)


async def _output(stub: Any, exec_id: str) -> bytes:
    written = {"stdout": bytearray(), "stderr": bytearray()}
    async for event in stub.Output(shell_pb2.ExecOutputRequest(exec_id=exec_id)):
        kind = event.WhichOneof("event")
        if kind == "exit":
            if event.exit.timed_out:
                raise TimeoutError
            if event.exit.exit_code != 0:
                said = visible_name(written["stderr"].decode(errors="replace"))[-300:]
                raise ValueError(f"it ended with code {event.exit.exit_code}: {said}")
            return bytes(written["stdout"])
        chunk = getattr(event, kind)
        dropped = chunk.offset != len(written[kind])
        if dropped or len(written[kind]) > _OUTPUT_MAX_BYTES:
            raise ValueError("it wrote more than a report")
        written[kind] += chunk.data
    raise ValueError("how it ended is not known")


def _parse(answer: bytes, spec: BoundarySpec) -> list[control_pb2.BoundaryCheck]:
    """Return every check of the specification, in order. Raises `ValueError` if `answer` is no
    report."""
    try:
        rows = [(row["name"], row["passed"], row["details"]) for row in parsed_json(answer)]
    except (KeyError, TypeError, ValueError):
        raise ValueError("it wrote no report") from None
    if not rows:
        raise ValueError("it wrote no report")
    found: dict[str, control_pb2.BoundaryCheck] = {}
    for name, passed, details in rows:
        if name not in spec.checks or name in found:
            raise ValueError("its report has a check that is unknown or answered twice")
        if not isinstance(passed, bool) or not isinstance(details, str):
            raise ValueError(f"its report of {name} is malformed")
        found[name] = control_pb2.BoundaryCheck(
            name=name, passed=passed, details=visible_name(details)[:_DETAILS_MAX_CHARS]
        )
    return [found.get(name) or _failed(name, "the probe did not report it") for name in spec.checks]


def _together(check: control_pb2.BoundaryCheck, hits: list[str]) -> control_pb2.BoundaryCheck:
    """A check of the probe with what was found from here."""
    if not hits:
        return check
    return _failed(check.name, "; ".join([*([] if check.passed else [check.details]), *hits]))


def _failed(name: str, details: str) -> control_pb2.BoundaryCheck:
    shown = visible_name(details)[:_DETAILS_MAX_CHARS]
    return control_pb2.BoundaryCheck(name=name, passed=False, details=shown)
