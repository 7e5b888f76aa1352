"""The metrics of all users' hosts on this machine, as one page for Prometheus."""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Iterable
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from wire.errors import WireError

from runner.config.models import Config
from runner.config.users import known_users
from runner.host.control import connect_control

log = logging.getLogger(__name__)

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


def page(config: Config) -> Starlette:
    """What answers `GET /metrics`, and nothing else: no page that another name leads here."""

    async def metrics(request: Request) -> Response:
        if not _is_local(request.url.hostname or ""):
            return Response(
                "this server is called by its address\n", HTTPStatus.MISDIRECTED_REQUEST
            )
        return Response(await metrics_of_all(config), media_type=_CONTENT_TYPE)

    return Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])


def _is_local(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


async def _metrics_of(config: Config, user_id: str) -> str:
    try:
        control = await connect_control(config, user_id, appear_s=0.5)
        if control is None:
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
