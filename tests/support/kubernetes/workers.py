"""The life of one pod on its node."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from tests.support.kubernetes import volumes
from tests.support.kubernetes.api import Api, ApiError
from tests.support.kubernetes.engine import Engine, EngineError
from tests.support.kubernetes.names import resolv_conf
from tests.support.kubernetes.pods import (
    RUNTIMES,
    ConfigError,
    Place,
    Sources,
    UnsupportedError,
    container_in,
    container_of,
    name_of,
    sources_of,
    those_first,
)

Object = dict[str, Any]
UID: Final = "oxydra.test.pod"
"""The label of a container with its pod's uid."""
_AGAIN_S: Final = 0.3
_BACKOFF_S: Final = (0.2, 1.0, 2.0, 5.0)
_CANNOT_START: Final = 128


class Node(Protocol):
    """What a worker needs of its node."""

    api: Api
    engine: Engine
    name: str
    address: str
    network: str
    name_server: str
    directory: Path
    pids_limit: int

    def api_address(self) -> tuple[str, int]: ...

    def take_ip(self) -> str: ...

    async def admit(self, uid: str, pod: Object, ip: str) -> None: ...

    async def release(self, uid: str, ip: str) -> None: ...


class _DeletedError(Exception):
    """The pod is to go before its container runs."""


class _RefusedError(Exception):
    """The pod fails without a container."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Worker:
    """Brings a pod up, tells how it fares, and takes it down."""

    def __init__(self, node: Node, pod: Object) -> None:
        self._node = node
        self._pod = pod
        self._uid = str(pod["metadata"]["uid"])
        self._scratch = node.directory / self._uid
        self._deleted, self._gone, self._news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._restarts = 0
        self._started_at = ""
        self._ready = False
        self.ip = ""
        self.container = ""
        self.running = False
        self.take(pod)

    @property
    def name(self) -> str:
        """Namespace and name."""
        return name_of(self._pod)

    def take(self, pod: Object) -> None:
        """Note how the API server has the pod now."""
        self._pod = pod
        self._news.set()
        if pod["metadata"].get("deletionTimestamp"):
            self._deleted.set()

    def vanish(self) -> None:
        """The API server has the pod no more: it ends at once."""
        self._deleted.set()
        self._gone.set()
        self._news.set()

    async def run(self) -> None:
        """The whole life, until nothing is left of the pod."""
        phase = self._pod.get("status", {}).get("phase")
        if phase not in ("Succeeded", "Failed"):
            with contextlib.suppress(_DeletedError):
                try:
                    await self._live(fresh=phase != "Running")
                except _RefusedError as refused:
                    await self._fail(refused.reason, str(refused))
        await self._deleted.wait()
        await self._clear()
        where = f"/api/v1/namespaces/{self.name.replace('/', '/pods/')}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        if not self._gone.is_set():
            await self._node.api.insist(lambda: self._node.api.request("DELETE", where, body))

    async def _live(self, *, fresh: bool) -> None:
        found = await self._node.engine.containers(f"{UID}={self._uid}")
        if found:
            self.container = str(found[0]["Id"])
            await self._adopt()
        elif not fresh:
            await self._tell("Failed", _terminated(137, "ContainerStatusUnknown", ""))
            return
        else:
            await self._create()
        while True:
            code = await self._run_once()
            reason = "Error" if code else "Completed"
            ended = _terminated(code, reason, self._started_at, self.container)
            policy = self._pod["spec"]["restartPolicy"]
            again = policy == "Always" or (policy == "OnFailure" and code != 0)
            if self._deleted.is_set() or not again:
                await self._node.release(self._uid, "")
                await self._tell("Failed" if code else "Succeeded", ended)
                return
            pause = _BACKOFF_S[min(self._restarts, len(_BACKOFF_S) - 1)]
            self._restarts += 1
            await self._tell("Running", _waiting("CrashLoopBackOff", reason), last=ended)
            await self._pause(pause)
            await self._node.engine.remove(self.container)
            await self._create()

    async def _adopt(self) -> None:
        """Take up a container that an earlier life of the node has started."""
        self.ip = str(self._pod.get("status", {}).get("podIP", ""))
        if self.ip and (await self._node.engine.state(self.container))["Running"]:
            await self._node.admit(self._uid, self._pod, self.ip)

    async def _create(self) -> None:
        """Create the container, as soon as all is there that it needs."""
        try:
            container_in(self._pod)
            runtime = await self._runtime()
            mounts = await self._mounts()
            sources = await self._sources()
            variables = await self._variables()
            image = await self._image()
            if not self.ip:
                self.ip = self._node.take_ip()
                await self._node.admit(self._uid, self._pod, self.ip)
            place = self._place(runtime)
            for first in those_first(self._pod):
                of_first = await self._node.engine.image(container_in(first)["image"]) or {}
                await self._run_first(container_of(first, of_first, place, mounts, variables, {}))
            options = container_of(self._pod, image, place, mounts, variables, sources)
            name = f"oxk-{self._pod['metadata']['name'][:60]}-{self._uid[:8]}-{self._restarts}"
            self.container = await self._node.engine.create(name, {UID: self._uid}, options)
        except (UnsupportedError, volumes.NoSuchVolumeError) as error:
            raise _RefusedError("StandInUnsupported", str(error)) from None
        except (ConfigError, EngineError) as error:
            reason = "CreateContainerConfigError"
            await self._tell("Pending", _waiting(reason, str(error)))
            await self._deleted.wait()
            raise _DeletedError from None

    async def _run_first(self, options: Object) -> None:
        """Run a container that must succeed before the pod's own. Raises `_RefusedError`."""
        engine = self._node.engine
        container = await engine.create(f"oxk-first-{self._uid}", {}, options)
        try:
            await engine.start(container)
            await engine.wait(container)
            if code := int((await engine.state(container))["ExitCode"]):
                raise _RefusedError("Init:Error", f"a container before it ended with {code}")
        finally:
            await engine.remove(container)

    async def _run_once(self) -> int:
        """Run the container to its end. Returns its exit code."""
        engine = self._node.engine
        self._started_at = _now()
        try:
            if (await engine.state(self.container)).get("Status") == "created":
                await engine.start(self.container)
        except EngineError as error:
            print(f"{self.name}: {error}")
            return _CANNOT_START
        self.running = True
        container = container_in(self._pod)
        ready = container.get("readinessProbe")
        self._ready = ready is None
        await self._tell("Running", self._running_state())
        probing = []
        if ready is not None:
            probing.append(asyncio.create_task(self._watch(ready)))
        try:
            await self._until_end()
        finally:
            self.running = self._ready = False
            for task in probing:
                task.cancel()
        return int((await engine.state(self.container))["ExitCode"])

    async def _until_end(self) -> None:
        engine = self._node.engine
        end = asyncio.create_task(engine.wait(self.container))
        deleted = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait({end, deleted}, return_when=asyncio.FIRST_COMPLETED)
            if not end.done() and self._grace():
                await engine.kill(self.container, "SIGTERM")
                await self._bear(end)
            if not end.done():
                await engine.kill(self.container)
            await end
        finally:
            for task in (end, deleted):
                task.cancel()

    async def _bear(self, end: asyncio.Task[None]) -> None:
        """Wait for the end as long as the grace lasts, which somebody may cut short meanwhile."""
        asked = time.monotonic()
        while not end.done() and (left := asked + self._grace() - time.monotonic()) > 0:
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait({end, news}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()

    def _grace(self) -> int:
        """The seconds that a deleted pod has to end by itself."""
        if self._gone.is_set():
            return 0
        return int(self._pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    async def _clear(self) -> None:
        if self.container:
            await self._node.engine.remove(self.container)
        await self._node.release(self._uid, self.ip)
        await asyncio.to_thread(volumes.remove, self._scratch)

    async def _runtime(self) -> str:
        name = self._pod["spec"].get("runtimeClassName")
        if not name:
            return ""
        found = await self._node.api.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
        if found["handler"] not in RUNTIMES:
            message = f"no runtime for {found['handler']!r} is configured"
            raise _RefusedError("FailedCreatePodSandBox", message)
        return RUNTIMES[found["handler"]]

    async def _mounts(self) -> list[volumes.Mounted]:
        wanted = volumes.Volumes(self._node.api, self._pod, self._scratch)
        while True:
            try:
                return await wanted.mount()
            except (volumes.NotYetError, ApiError, OSError, TimeoutError) as error:
                await self._tell("Pending", _waiting("ContainerCreating", str(error)))
            await self._pause(_AGAIN_S)

    async def _sources(self) -> Sources:
        """What variables come from, as soon as it is there."""
        wanted = volumes.Volumes(self._node.api, self._pod, self._scratch)
        while True:
            try:
                found: Sources = {}
                for kind, asked in sources_of(container_in(self._pod)):
                    held = await wanted.content({kind: asked})
                    found[kind, asked["name"]] = {k: v.decode() for k, v in held.items()}
            except volumes.NotYetError as error:
                await self._tell("Pending", _waiting("CreateContainerConfigError", str(error)))
            else:
                return found
            await self._pause(_AGAIN_S)

    async def _image(self) -> Object:
        name = container_in(self._pod)["image"]
        while (found := await self._node.engine.image(name)) is None:
            message = f'Container image "{name}" is not present with pull policy of Never'
            await self._tell("Pending", _waiting("ErrImageNeverPull", message))
            await self._pause(1.0)
        return found

    def _place(self, runtime: str) -> Place:
        spec, path = self._pod["spec"], self._scratch / "resolv.conf"
        self._scratch.mkdir(parents=True, exist_ok=True)
        text = resolv_conf(self._node.name_server, self._pod["metadata"]["namespace"])
        if spec.get("dnsPolicy") == "None":
            servers = (spec.get("dnsConfig") or {}).get("nameservers") or ()
            text = "".join(f"nameserver {each}\n" for each in servers)
        path.write_text(text)
        node = self._node
        return Place(node.network, self.ip, node.address, str(path), runtime, node.pids_limit)

    async def _variables(self) -> dict[str, str]:
        """Where the API server is and, unless the pod declines, the services of its namespace."""
        host, port = self._node.api_address()
        found = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        }
        if not self._pod["spec"].get("enableServiceLinks", True):
            return found
        path = f"/api/v1/namespaces/{self._pod['metadata']['namespace']}/services"
        for service in (await self._node.api.get(path))["items"]:
            name = service["metadata"]["name"].upper().replace("-", "_")
            if (address := service["spec"].get("clusterIP") or "None") != "None":
                found[f"{name}_SERVICE_HOST"] = address
                found[f"{name}_SERVICE_PORT"] = str(service["spec"]["ports"][0]["port"])
        return found

    async def _watch(self, probe: Object) -> None:
        """Tell when the container begins and ceases to be ready."""
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            ready = await self._answers(probe)
            if ready != self._ready:
                self._ready = ready
                await self._tell("Running", self._running_state())
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _answers(self, probe: Object) -> bool:
        try:
            return await asyncio.wait_for(self._asked(probe), probe.get("timeoutSeconds", 1))
        except (OSError, TimeoutError, EngineError):
            return False

    async def _asked(self, probe: Object) -> bool:
        kind = "tcpSocket" if "tcpSocket" in probe else "httpGet"
        port = probe[kind]["port"]
        for each in container_in(self._pod).get("ports") or ():
            if each.get("name") == port:
                port = each["containerPort"]
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        tls = unverified if probe[kind].get("scheme") == "HTTPS" else None
        reader, writer = await asyncio.open_connection(self.ip, int(port), ssl=tls)
        try:
            if kind == "tcpSocket":
                return True
            path = probe[kind].get("path", "/")
            given = {each["name"]: each["value"] for each in probe[kind].get("httpHeaders") or ()}
            headers = {"Host": self.ip, **given}
            lines = [f"GET {path} HTTP/1.0", *(f"{name}: {headers[name]}" for name in headers)]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status = (await reader.readline()).split()
            return len(status) > 1 and 200 <= int(status[1]) < 400
        finally:
            writer.close()

    async def _pause(self, seconds: float) -> None:
        """Wait. Raises `_DeletedError` if the pod is to go."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._deleted.wait(), seconds)
        if self._deleted.is_set():
            raise _DeletedError

    def _running_state(self) -> Object:
        return {"running": {"startedAt": self._started_at}}

    async def _fail(self, reason: str, message: str) -> None:
        await self._tell("Failed", _waiting(reason, message), reason=reason, message=message)

    async def _tell(
        self, phase: str, state: Object, *, last: Object | None = None, **why: str
    ) -> None:
        """Write the pod's status."""
        container = self._pod["spec"]["containers"][0]
        status: Object = {
            "phase": phase,
            "conditions": self._conditions(),
            "hostIP": self._node.address,
            "startTime": self._pod.get("status", {}).get("startTime") or _now(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": f"docker://{container['image']}",
                    "containerID": f"docker://{self.container}" if self.container else "",
                    "ready": self._ready,
                    "started": self.running,
                    "restartCount": self._restarts,
                    "state": state,
                    "lastState": last or {},
                }
            ],
            **why,
        }
        if self.ip:
            status |= {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        path = f"/api/v1/namespaces/{self.name.replace('/', '/pods/')}/status"
        body = {"metadata": {"uid": self._uid}, "status": status}
        await self._insist(self._node.api.insist(lambda: self._node.api.merge(path, body)))

    async def _insist(self, telling: Awaitable[bool]) -> None:
        """Wait for an answer, unless the pod has vanished meanwhile."""
        task, gone = asyncio.ensure_future(telling), asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            gone.cancel()

    def _conditions(self) -> list[Object]:
        before = {e["type"]: e for e in self._pod.get("status", {}).get("conditions") or ()}
        truth = {"Initialized": True, "Ready": self._ready, "ContainersReady": self._ready}
        found = []
        for kind, is_so in {"PodScheduled": True, **truth}.items():
            value = "True" if is_so else "False"
            old = before.get(kind, {})
            since = old["lastTransitionTime"] if old.get("status") == value else _now()
            found.append({"type": kind, "status": value, "lastTransitionTime": since})
        return found


def _waiting(reason: str, message: str) -> Object:
    return {"waiting": {"reason": reason, "message": message}}


def _terminated(code: int, reason: str, started_at: str, container: str = "") -> Object:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": started_at or _now(),
            "finishedAt": _now(),
            "containerID": f"docker://{container}" if container else "",
        }
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
