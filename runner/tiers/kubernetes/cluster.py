"""The connection to a cluster's API server, for one installation."""

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from kubernetes_asyncio import client, config
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.stream import WsApiClient
from wire.errors import Code
from wire.text import parsed_json

from runner.errors import TierError
from runner.tiers.kubernetes.settings import KubernetesSettings

log = logging.getLogger(__name__)

ANSWER_S: Final = 30.0
"""How long one request may take."""
PATIENCE_S: Final = 30.0
"""How long a request is repeated that the API server could not take."""
PAUSE_S: Final = 0.5
_PAUSE_MAX_S: Final = 5.0
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_CODES: Final = {
    400: Code.INVALID_ARGUMENT,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ALREADY_EXISTS,
    410: Code.FAILED_PRECONDITION,
    422: Code.INVALID_ARGUMENT,
}
_ROLE: Final = "kubectl apply -f deploy/kubernetes/plain/runner-role.yaml, or helm upgrade"
_WAYS: Final = {
    "exceeded quota": "kubectl describe resourcequota, then raise it or stop other users",
    "RuntimeClass": "kubectl get runtimeclass, then set kubernetes.runtime_class to one of them",
    "PodSecurity": "kubectl get namespace --show-labels; the runner's pods need no more than "
    "restricted",
    "LimitRange": "kubectl describe limitrange, then change it or the limits of guests",
    "usage per ": "kubectl describe limitrange, then change it or the limits of guests",
}
"""What mends a refusal that is not for want of rights, by a word of it."""
UNREACHABLE: Final = (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError)
"""What a request raises that got no answer."""


class RefusedError(TierError):
    """The API server has answered with an error. `status` is that of HTTP."""

    def __init__(self, status: int, what: str, reason: str, message: str) -> None:
        fix = "runner --tier kubernetes doctor"
        if status == 403:
            fix = next((way for word, way in _WAYS.items() if word in message), _ROLE)
        super().__init__(
            _CODES.get(status, Code.UNAVAILABLE),
            f"the cluster refuses to {what}",
            details=f"{reason or status}: {message}".strip(": "),
            resolution=fix,
        )
        self.status = status
        self.reason = reason


class Cluster:
    """The API server as one runner sees it. Opened by `open`, or as an async context manager;
    `close` ends it.

    `home` is the namespace of the runner, with its Lease and its Secrets; guests are in
    `namespace`. Both are known once open. Answers are the API's objects as they are in JSON.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._client: client.ApiClient | None = None
        self._configuration: client.Configuration | None = None
        self.home = ""
        self.namespace = settings.namespace

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Read how the API server is reached. Idempotent. Raises `TierError` if nothing says it."""
        async with self._opening:
            if self._client is not None:
                return
            configuration = client.Configuration()
            try:
                self.home = await self._configure(configuration)
            except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
                raise TierError(
                    Code.FAILED_PRECONDITION,
                    "nothing says which cluster is meant",
                    details=str(error) or repr(error),
                    resolution="run in a pod with a service account (deploy/kubernetes), or set "
                    "kubernetes.kubeconfig to a file in which kubectl works",
                ) from None
            self.namespace = self.namespace or self.home
            self._configuration = configuration
            self._client = client.ApiClient(configuration)

    async def close(self) -> None:
        """End the connections. Idempotent."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def apart(self) -> bool:
        """Whether guests have a namespace of their own, so that no pod that the runner makes can
        mount its Secrets."""
        return self.home != self.namespace

    @property
    def host(self) -> str:
        """The address of the API server, as a URL. Valid once open."""
        return str(self._configuration.host) if self._configuration is not None else ""

    @property
    def api(self) -> client.ApiClient:
        """What requests are made with. Raises `TierError` before `open` and after `close`."""
        if self._client is None:
            raise TierError(Code.UNAVAILABLE, "the connection to the cluster is closed")
        return self._client

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    @property
    def networking(self) -> client.NetworkingV1Api:
        return client.NetworkingV1Api(self.api)

    async def ask(
        self, what: str, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """The answer of one request. `what` says in words what it is to do.

        It is repeated for a while if the API server is away or has too much to do, so it must be
        one that may be done twice. Raises `RefusedError`, or `TierError` (UNAVAILABLE) without an
        answer.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + PATIENCE_S, PAUSE_S
        while True:
            try:
                return await self._asked(what, call, *arguments, **options)
            except RefusedError as refused:
                if refused.status not in _BUSY or loop.time() > deadline:
                    raise
            except UNREACHABLE as error:
                if loop.time() > deadline:
                    raise unreachable(what, self.host, error) from None
            await asyncio.sleep(pause)
            pause = min(_PAUSE_MAX_S, pause * 2)

    async def find(
        self, what: str, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> dict[str, Any] | None:
        """The same for an object that may not be there: then None."""
        try:
            return await self.ask(what, call, *arguments, **options)
        except RefusedError as refused:
            if refused.status != 404:
                raise
            return None

    async def pods(self, labels: str, **options: Any) -> list[dict[str, Any]]:
        """The pods of guests with such labels, as a selector. Raises like `ask`."""
        listing = self.core.list_namespaced_pod
        options["label_selector"] = labels
        return list((await self.ask("list pods", listing, self.namespace, **options))["items"])

    async def runtime_class(self, name: str) -> dict[str, Any] | None:
        """A runtime class; empty if there is none, None if the runner may not read it."""
        read = client.NodeV1Api(self.api).read_runtime_class
        try:
            return await self.find(f"read the runtime class {name}", read, name) or {}
        except RefusedError as refused:
            if refused.status != 403:
                raise
            return None

    async def made(
        self,
        what: str,
        create: Callable[..., Awaitable[Any]],
        read: Callable[..., Awaitable[Any]],
        wanted: dict[str, Any],
    ) -> dict[str, Any]:
        """The object that is `wanted` in the namespace, created if it is not there. `what` says
        what it is. Raises like `ask`."""
        name = wanted["metadata"]["name"]
        try:
            return await self.ask(f"create the {what} {name}", create, self.namespace, wanted)
        except RefusedError as refused:
            if refused.reason != "AlreadyExists":
                raise
        return await self.ask(f"read the {what} {name}", read, name, self.namespace)

    async def _asked(
        self, what: str, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        async with asyncio.timeout(ANSWER_S):
            response = await call(*arguments, _preload_content=False, **options)
            with contextlib.closing(response):
                text = await response.text()
                status = int(response.status)
        if status >= 400:
            raise refused(status, what, text)
        return dict(parsed_json(text))

    @contextlib.asynccontextmanager
    async def stream(
        self, what: str, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer without an end: a watch, or a log that is followed. Not repeated.

        Raises `RefusedError`, and what is in `UNREACHABLE`.
        """
        endless = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S)
        response = await call(
            *arguments, _preload_content=False, _request_timeout=endless, **options
        )
        try:
            if response.status >= 400:
                raise refused(response.status, what, await response.text())
            yield response.content
        finally:
            response.close()

    @contextlib.asynccontextmanager
    async def attached(self, pod: str, container: str) -> AsyncIterator[Any]:
        """A connection to the standard input of a container. Not repeated.

        Raises `TierError` if the API server has none.
        """
        sockets = WsApiClient(self._configuration)
        try:
            connecting: Any = await client.CoreV1Api(sockets).connect_get_namespaced_pod_attach(
                pod,
                self.namespace,
                container=container,
                stdin=True,
                stdout=False,
                stderr=False,
                tty=False,
                _preload_content=False,
            )
            try:
                async with asyncio.timeout(ANSWER_S):
                    socket = await connecting
            except aiohttp.WSServerHandshakeError as error:
                raise RefusedError(
                    error.status, f"attach to the pod {pod}", "", error.message
                ) from None
            except UNREACHABLE as error:
                raise unreachable(f"attach to the pod {pod}", self.host, error) from None
            try:
                yield socket
            finally:
                await socket.close()
        finally:
            await sockets.close()

    async def _configure(self, configuration: client.Configuration) -> str:
        """Fill in how the API server is reached. Returns the namespace that goes with it."""
        if self._settings.kubeconfig is None and NAMESPACE_FILE.exists():
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return NAMESPACE_FILE.read_text().strip()
        path = str(self._settings.kubeconfig) if self._settings.kubeconfig is not None else None
        await config.load_kube_config(config_file=path, client_configuration=configuration)
        _, active = config.list_kube_config_contexts(config_file=path)
        return str((active or {}).get("context", {}).get("namespace") or "default")


def refused(status: int, what: str, text: str) -> RefusedError:
    """The error of an answer."""
    reason = message = ""
    with contextlib.suppress(ValueError):
        said = parsed_json(text)
        if isinstance(said, dict):
            reason, message = str(said.get("reason", "")), str(said.get("message", ""))
    return RefusedError(status, what, reason, message or text[:300])


def unreachable(what: str, host: str, error: BaseException) -> TierError:
    """The error of a request that got no answer."""
    return TierError(
        Code.UNAVAILABLE,
        f"the cluster does not answer, so the runner cannot {what}",
        details=f"{host}: {error or type(error).__name__}",
        resolution="kubectl cluster-info; it is tried again",
    )


def as_json(content: object) -> str:
    """Equal for what is equal."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
