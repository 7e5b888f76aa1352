"""The metrics of the HTTP server and of all users' hosts, as one page for Prometheus."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Histogram, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from wire import trace
from wire.errors import Code, WireError

from runner.access import scopes
from runner.access.callers import Caller
from runner.access.exchange import answer
from runner.access.sockets import is_local
from runner.config.models import Config
from runner.config.users import known_users
from runner.host.control import connect_control

log = logging.getLogger(__name__)

_FACES = ("api", "mcp", "v1")


async def metrics_of_all(config: Config) -> str:
    """What all running hosts have counted. A host that does not answer is left out."""
    texts = await asyncio.gather(*(_metrics_of(config, user) for user in known_users(config)))
    return joined(texts)


def joined(texts: Iterable[str]) -> str:
    """Several pages as one: each metric once, with the samples of all."""
    metrics: dict[str, Metric] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            known = metrics.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            known.samples += family.samples
    registry = CollectorRegistry()
    registry.register(_Given(list(metrics.values())))
    return generate_latest(registry).decode()


class HttpMetrics:
    """Counts and times the requests of an HTTP server, by the face that they are for."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "oxydra_http_request_duration_seconds",
            "From a request to the end of its answer.",
            ["face", "status"],
            registry=self._registry,
        )

    def counting(self, app: ASGIApp) -> ASGIApp:
        """`app`, whose requests are counted. Those that name a step of a trace are part of it."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            began, status = time.monotonic(), 500
            said = dict(scope.get("headers", ())).get(trace.METADATA_KEY.encode(), b"")
            trace.here.set(trace.SpanContext.of(said.decode("latin-1")))

            async def watched(message: Message) -> None:
                nonlocal status
                status = message.get("status", status)
                await send(message)

            try:
                await app(scope, receive, watched)
            finally:
                first = scope.get("path", "").split("/")[1:2]
                face = first[0] if first and first[0] in _FACES else "console"
                self._requests.labels(face, str(status)).observe(time.monotonic() - began)

        return counted

    def page(self, config: Config, caller: Callable[[Request], Caller]) -> Starlette:
        """What answers `GET /metrics` to who has a token for that, and nothing else: no page that
        another name leads here. `caller` says who makes a request, by its token, or raises."""

        async def metrics(request: Request) -> Response:
            if not is_local(request.url.hostname or ""):
                return Response(
                    "this server is called by its address\n", HTTPStatus.MISDIRECTED_REQUEST
                )
            try:
                asking = caller(request)
                if scopes.Scope.METRICS not in asking.scopes:
                    raise WireError(
                        Code.PERMISSION_DENIED,
                        "numbers of all users need a token with the scope metrics",
                        resolution="runner access create prometheus --scope metrics",
                    )
                page = await metrics_of_all(config) + generate_latest(self._registry).decode()
                asking.check()
            except WireError as error:
                return answer(error)
            return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

        return Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])


async def _metrics_of(config: Config, user_id: str) -> str:
    try:
        if (control := await connect_control(config, user_id, appear_s=0.5)) is None:
            return ""
        async with control:
            return await control.metrics()
    except WireError as error:
        log.warning("the host of %s is not counted: %s", user_id, error.brief)
        return ""


class _Given(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
