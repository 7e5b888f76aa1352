"""A stand-in for the kubelet, the network and the storage of a node.

It runs each pod of the API server as a container of the local engine, in a network of its own, and
answers the API server's requests for logs and for standard input. It does what this project's pods
need of a kubelet, and refuses loudly what it cannot do. It does not restart what `kill_node` ended.
"""

import asyncio
import contextlib
import functools
import ipaddress
import os
import secrets
import shutil
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import docker
import docker.errors
import docker.types
from aiohttp import web

from tests.support.cluster import containers, volumes
from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.policies import Firewall, PodAddress

Object = dict[str, Any]
_Answer = TypeVar("_Answer")

SUPERNET: Final = ipaddress.ip_network("10.88.0.0/16")
_STDIN: Final = 0
_RUNTIMES: Final = {"runsc": "runsc"}


@dataclass
class Running:
    """One pod on this node."""

    pod: Object
    container: str = ""
    ip: str = ""
    network: str = ""
    scratch: Path = Path()
    stdin: Any = None
    status: Object = field(default_factory=dict)
    restarts: int = 0
    ending: bool = False


class Kubelet:
    """The node `name`. An async context manager.

    With `enforces_policies` false, its network ignores policies; with `policies_after_s`, it takes
    them up so long after they are made.
    """

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        name: str = "node-1",
        *,
        enforces_policies: bool = True,
        policies_after_s: float = 0.0,
    ) -> None:
        self._plane = plane
        self._directory = directory / name
        self.name = name
        self._mark = f"{name}-{secrets.token_hex(3)}"
        self._api = Api(plane.url, plane.ca, plane.token)
        self._firewall = Firewall(f"OXK-{secrets.token_hex(3)}", str(SUPERNET))
        self._firewall.enforces = enforces_policies
        self._policies_after_s = policies_after_s
        self._pods: dict[str, Running] = {}
        self._policies: list[Object] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._subnets = SUPERNET.subnets(new_prefix=29)
        self._used: dict[str, str] = {}
        self._dead = False
        self._refused_attaches = 0

    async def __aenter__(self) -> "Kubelet":
        self._directory.mkdir(parents=True, exist_ok=True)
        await self._api.__aenter__()
        await self._in_thread(_sweep)
        self._firewall.open()
        await self._serve()
        await volumes.make_class(self._api)
        await self._register()
        self._begin(
            self._api.follow(
                "/api/v1/pods", self._take, f"fieldSelector=spec.nodeName%3D{self.name}"
            )
        )
        self._begin(
            self._api.follow("/apis/networking.k8s.io/v1/networkpolicies", self._take_policies)
        )
        self._begin(self._api.follow("/api/v1/persistentvolumeclaims", self._take_claims))
        self._begin(self._api.follow("/api/v1/persistentvolumes", self._take_volumes))
        self._begin(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._dead = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        await self._runner.cleanup()
        await self._in_thread(functools.partial(_sweep, mark=self._mark))
        self._firewall.close()
        with contextlib.suppress(ApiError, aiohttp.ClientError, OSError):
            await self._api.delete(f"/api/v1/nodes/{self.name}")
        await self._api.__aexit__()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def kill_node(self) -> None:
        """End all containers at once and answer nobody any more."""
        self._dead = True
        for task in self._tasks:
            task.cancel()
        await self._runner.cleanup()
        for running in self._pods.values():
            if running.container:
                await self._in_thread(functools.partial(_kill, running.container))

    def container_of(self, pod: str) -> str:
        """The engine's id of a pod's container."""
        return next(
            each.container
            for each in self._pods.values()
            if each.pod["metadata"]["name"] == pod and each.container
        )

    # --- the node ---

    async def _register(self) -> None:
        await self._api.delete(f"/api/v1/nodes/{self.name}")
        await self._api.post(
            "/api/v1/nodes",
            {
                "metadata": {
                    "name": self.name,
                    "labels": {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"},
                }
            },
        )
        await self._tell_node()

    async def _tell_node(self) -> None:
        now = _now()
        condition = {"lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "StandIn"}
        ready = {**condition, "type": "Ready", "status": "True", "message": "it runs"}
        pressure = [
            {**condition, "type": each, "status": "False", "message": "none"}
            for each in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        room = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "500Gi"}
        await self._api.merge(
            f"/api/v1/nodes/{self.name}/status",
            {
                "status": {
                    "capacity": room,
                    "allocatable": room,
                    "conditions": [ready, *pressure],
                    "addresses": [{"type": "InternalIP", "address": self._plane.address}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                    "nodeInfo": {
                        **dict.fromkeys(("machineID", "systemUUID", "bootID", "osImage"), "x"),
                        "kernelVersion": os.uname().release,
                        "kubeletVersion": "v1.20.2",
                        "kubeProxyVersion": "v1.20.2",
                        "containerRuntimeVersion": "docker://standin",
                        "operatingSystem": "linux",
                        "architecture": "amd64",
                    },
                }
            },
        )

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, OSError, TimeoutError):
                await self._tell_node()
            await asyncio.sleep(8)

    # --- what the API server tells ---

    def _take(self, pods: list[Object]) -> None:
        seen = {pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            uid = pod["metadata"]["uid"]
            running = self._pods.get(uid)
            if running is None:
                if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                    if "deletionTimestamp" in pod["metadata"]:
                        self._begin(self._remove_object(pod))
                    continue
                self._pods[uid] = running = Running(pod)
                self._begin(self._run(running))
            running.pod = {**pod, "status": running.pod.get("status", {})}
            if "deletionTimestamp" in pod["metadata"] and not running.ending:
                running.ending = True
                self._begin(self._end(running))
        for uid, running in [*self._pods.items()]:
            if uid not in seen and not running.ending:
                running.ending = True
                self._begin(self._end(running, forced=True))

    def _take_policies(self, policies: list[Object]) -> None:
        async def later() -> None:
            await asyncio.sleep(self._policies_after_s)
            self._policies = policies
            self._update_firewall()

        if self._policies_after_s:
            self._begin(later())
        else:
            self._policies = policies
            self._update_firewall()

    def enforce(self, enforces: bool) -> None:
        """Begin or cease to enforce policies."""
        self._firewall.enforces = enforces
        self._update_firewall()

    def _update_firewall(self) -> None:
        addresses = [
            PodAddress(
                each.pod["metadata"].get("labels") or {}, each.pod["metadata"]["namespace"], each.ip
            )
            for each in self._pods.values()
            if each.ip
        ]
        self._firewall.update(addresses, self._policies)

    def _take_claims(self, claims: list[Object]) -> None:
        ours = [
            each
            for each in claims
            if (each["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
            == self.name
        ]
        place = self._directory.parent / "volumes"
        place.mkdir(exist_ok=True)
        self._begin(volumes.provision(self._api, place, ours))

    def _take_volumes(self, found: list[Object]) -> None:
        self._begin(volumes.reclaim(self._api, found))

    # --- a pod's life ---

    async def _run(self, running: Running) -> None:
        pod = running.pod
        try:
            await self._create(running)
        except LookupError as error:  # a claim is not bound yet
            await self._wait(running, "ContainerCreating", str(error))
            await asyncio.sleep(0.2)
            if not running.ending:
                self._begin(self._run(running))
            return None
        except docker.errors.ImageNotFound as error:
            return await self._wait(running, "ErrImageNeverPull", str(error.explanation))
        except ApiError as error:
            return await self._wait(running, "CreateContainerConfigError", str(error))
        except (docker.errors.APIError, ValueError) as error:
            return await self._wait(running, "CreateContainerError", str(error))
        while True:
            await self._started(running)
            container = running.container
            code = await self._in_thread(functools.partial(_wait_for, container))
            running.stdin = None
            again = pod["spec"]["restartPolicy"] == "Always" and not running.ending
            if not again:
                await self._ended(running, code)
                if "deletionTimestamp" in running.pod["metadata"]:
                    await self._gone(running)
                return None
            running.restarts += 1
            await self._in_thread(functools.partial(_remove, container))
            await asyncio.sleep(0.5)
            await self._create_container(running)

    async def _create(self, running: Running) -> None:
        uid = running.pod["metadata"]["uid"]
        running.scratch = self._directory / uid
        running.scratch.mkdir(exist_ok=True)
        subnet = str(next(self._subnets))
        running.network = f"oxk-{uid[:8]}"
        pools = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=subnet)])

        def make_network(client: docker.APIClient) -> None:
            labels = {containers.LABEL: self._mark}
            client.create_network(running.network, driver="bridge", ipam=pools, labels=labels)

        if not running.ip:
            await self._in_thread(make_network)
        await self._create_container(running)

    async def _create_container(self, running: Running) -> None:
        pod = running.pod
        mounts = volumes.Mounts(self._api, running.scratch / "volumes", pod)
        try:
            directories = await mounts.prepare()
        except LookupError:
            await self._in_thread(functools.partial(_remove_network, running.network))
            raise
        resolv_conf = running.scratch / "resolv.conf"
        resolv_conf.write_text(_name_servers(pod))
        runtime = await self._runtime(pod)
        environment = {
            "KUBERNETES_SERVICE_HOST": self._plane.address,
            "KUBERNETES_SERVICE_PORT": str(self._plane.port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(self._plane.port),
        }

        def make(client: docker.APIClient) -> tuple[str, Any]:
            name = f"oxk-{pod['metadata']['name']}-{pod['metadata']['uid'][:8]}-{running.restarts}"
            container = containers.create(
                client,
                pod,
                directories,
                mounts.in_memory(),
                name=name,
                network=running.network,
                mark=self._mark,
                resolv_conf=resolv_conf,
                environment=environment,
                runtime=runtime,
            )
            stdin = None
            if pod["spec"]["containers"][0].get("stdin"):
                own = docker.APIClient()
                stdin = own.attach_socket(container, params={"stdin": 1, "stream": 1})
            client.start(container)
            return container, stdin

        running.container, running.stdin = await self._in_thread(make)

    async def _runtime(self, pod: Object) -> str | None:
        if not (name := pod["spec"].get("runtimeClassName")):
            return None
        found = await self._api.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
        if (handler := found["handler"]) not in _RUNTIMES:
            raise ValueError(f"no runtime for handler {handler!r} is configured")
        return _RUNTIMES[handler]

    async def _started(self, running: Running) -> None:
        def address(client: docker.APIClient) -> str:
            found = client.inspect_container(running.container)
            return str(found["NetworkSettings"]["Networks"][running.network]["IPAddress"])

        running.ip = await self._in_thread(address) or running.ip
        self._update_firewall()
        state = {"running": {"startedAt": _now()}}
        await self._tell(running, "Running", state, ready=True)

    async def _wait(self, running: Running, reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        await self._tell(running, "Pending", state, ready=False)

    async def _ended(self, running: Running, code: int) -> None:
        def was_out_of_memory(client: docker.APIClient) -> bool:
            return bool(client.inspect_container(running.container)["State"]["OOMKilled"])

        reason = "Completed" if code == 0 else "Error"
        with contextlib.suppress(docker.errors.APIError):
            if await self._in_thread(was_out_of_memory):
                reason = "OOMKilled"
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now()}}
        running.ip = ""
        self._update_firewall()
        await self._tell(running, "Failed" if code else "Succeeded", state, ready=False)

    async def _tell(self, running: Running, phase: str, state: Object, *, ready: bool) -> None:
        pod = running.pod
        (container,) = pod["spec"]["containers"]
        truth = "True" if ready else "False"
        status = {
            "phase": phase,
            "conditions": [
                {"type": each, "status": truth}
                for each in ("Initialized", "Ready", "ContainersReady")
            ]
            + [{"type": "PodScheduled", "status": "True"}],
            "hostIP": self._plane.address,
            "startTime": _now(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "started": ready,
                    "restartCount": running.restarts,
                    "containerID": f"docker://{running.container}" if running.container else "",
                    "state": state,
                }
            ],
        }
        if running.ip:
            status |= {"podIP": running.ip, "podIPs": [{"ip": running.ip}]}
        while not self._dead:
            try:
                await self._api.merge(f"{_path(pod)}/status", {"status": status})
                return
            except ApiError as error:
                if error.status in (404, 409):
                    return
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass
            await asyncio.sleep(0.3)

    async def _end(self, running: Running, *, forced: bool = False) -> None:
        grace = 0 if forced else int(running.pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if running.container:
            stop = functools.partial(_stop, running.container, grace)
            await self._in_thread(stop)
        if forced or not running.container:
            await self._gone(running)

    async def _gone(self, running: Running) -> None:
        await self._remove_object(running.pod)
        self._pods.pop(running.pod["metadata"]["uid"], None)

        def clear(client: docker.APIClient) -> None:
            if running.container:
                _remove(running.container, client)
            _remove_network(running.network, client)

        await self._in_thread(clear)
        shutil.rmtree(running.scratch, ignore_errors=True)
        self._update_firewall()

    async def _remove_object(self, pod: Object) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        while not self._dead:
            try:
                await self._api.delete(_path(pod), body)
                return
            except ApiError:
                return
            except (aiohttp.ClientError, OSError, TimeoutError):
                await asyncio.sleep(0.3)

    # --- what the API server asks ---

    async def _serve(self) -> None:
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        application.router.add_get("/attach/{namespace}/{pod}/{container}", self._attach)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        keys = self._plane.keys
        context.load_cert_chain(keys / "server.pem", keys / "server.key")
        site = web.TCPSite(self._runner, self._plane.address, 0, ssl_context=context)
        await site.start()
        (address,) = self._runner.addresses
        self._port = address[1]

    def _found(self, request: web.Request) -> Running:
        for each in self._pods.values():
            meta = each.pod["metadata"]
            if (meta["namespace"], meta["name"]) == (
                request.match_info["namespace"],
                request.match_info["pod"],
            ) and each.container:
                return each
        raise web.HTTPNotFound(text="no such container runs")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        running = self._found(request)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        since = request.query.get("sinceSeconds")
        options: dict[str, Any] = {
            "follow": request.query.get("follow") == "true",
            "timestamps": request.query.get("timestamps") == "true",
        }
        if since:
            options["since"] = int(datetime.now(UTC).timestamp()) - int(since)
        loop, blocks = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def read() -> None:
            client = docker.APIClient(timeout=3600)
            try:
                for block in client.logs(running.container, stream=True, **options):
                    loop.call_soon_threadsafe(blocks.put_nowait, block)
            except Exception:
                pass
            finally:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(blocks.put_nowait, None)
                client.close()

        threading.Thread(target=read, daemon=True).start()
        while (block := await blocks.get()) is not None:
            await response.write(block)
        await response.write_eof()
        return response

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        running = self._found(request)
        answer = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await answer.prepare(request)
        taken, running.stdin = running.stdin, None
        if taken is None:
            await answer.close()
            return answer
        stream: socket.socket = taken._sock
        stream.settimeout(10)
        async for message in answer:
            if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == bytes([_STDIN]):
                await asyncio.to_thread(stream.sendall, message.data[1:])
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_WR)
        return answer

    def _begin(self, work: Any) -> None:
        async def guarded() -> None:
            try:
                await work
            except (ApiError, aiohttp.ClientError, docker.errors.APIError, OSError) as error:
                if not self._dead:
                    print(f"kubelet {self.name}: {error!r}")

        if self._dead:
            work.close()
            return
        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_thread(self, work: Callable[[docker.APIClient], _Answer]) -> _Answer:
        def run() -> _Answer:
            client = docker.APIClient(timeout=120)
            try:
                return work(client)
            finally:
                client.close()

        return await asyncio.to_thread(run)


def _path(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _name_servers(pod: Object) -> str:
    if pod["spec"].get("dnsPolicy") == "None":
        servers = (pod["spec"].get("dnsConfig") or {}).get("nameservers") or []
        return "".join(f"nameserver {each}\n" for each in servers)
    return Path("/etc/resolv.conf").read_text()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wait_for(container: str, client: docker.APIClient) -> int:
    while True:
        try:
            return int(client.wait(container, timeout=3600)["StatusCode"])
        except docker.errors.NotFound:
            return 137
        except Exception:
            continue


def _kill(container: str, client: docker.APIClient) -> None:
    with contextlib.suppress(docker.errors.APIError):
        client.kill(container)


def _stop(container: str, grace: int, client: docker.APIClient) -> None:
    with contextlib.suppress(docker.errors.APIError):
        client.stop(container, timeout=grace)


def _remove(container: str, client: docker.APIClient) -> None:
    with contextlib.suppress(docker.errors.APIError):
        client.remove_container(container, force=True, v=True)


def _remove_network(name: str, client: docker.APIClient) -> None:
    with contextlib.suppress(docker.errors.APIError):
        client.remove_network(name)


def _sweep(client: docker.APIClient, mark: str = "") -> None:
    """Remove what this node, or an earlier run, has left in the engine."""
    label = f"{containers.LABEL}={mark}" if mark else containers.LABEL
    for each in client.containers(all=True, filters={"label": label}):
        _remove(each["Id"], client)
    for each in client.networks(filters={"label": label}):
        _remove_network(each["Id"], client)
