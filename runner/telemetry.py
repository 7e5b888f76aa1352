"""Exports what a host's agent did: traces and metrics by OTLP over HTTP, metrics for Prometheus.

A guest's steps are checked: names and attributes are those of a table, or dropped. So no sentence
travels as an attribute. A guest that was taken over could still spell something in ids; it has no
other way out through here.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from prometheus_client import CollectorRegistry, generate_latest
from wire.errors import Code
from wire.limits import ID_PATTERN
from wire.settings import TelemetrySettings
from wire.v1 import gateway_pb2 as pb

from runner.errors import ConfigError

NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "turn": {},
    "model": {"model": ""},
    "tool": {"tool": "unknown"},
    "memory": {"operation": ""},
    "shell": {},
}
"""Steps, each with the words that its duration is counted by, and what an absent one counts as."""
_ID: Final = rf"({ID_PATTERN})?"
_WORDS: Final = {
    "tool": r"[a-z][A-Za-z0-9_-]{0,79}",
    "safety": r"(read_only|side_effecting|privileged)?",
    "outcome": r"[a-z_]{0,32}",
    "channel": _ID,
    "session": _ID,
    "turn": _ID,
    "schedule": _ID,
    "slot": r"[0-9TZ:.-]{0,32}",
    "operation": r"(save|update|search|embed|rerank)",
    "kind": "(memory|typed_memory|working_memory)",
    "note_id": _ID,
    "model": r"[a-z]{1,16}:?[A-Za-z0-9._:/@-]{0,100}",
}
WORDS: Final = {name: re.compile(pattern, re.ASCII) for name, pattern in _WORDS.items()}
COUNTS: Final = frozenset({"input_tokens", "output_tokens", "cached_tokens", "cost"})
_COUNT_MAX: Final = 10**12
_PAST_NS: Final = 2 * 86_400 * 10**9
_FUTURE_NS: Final = 60 * 10**9


def checked(span: pb.Span) -> pb.Span | None:
    """A step that has ended, without words and counts that no guest of ours reports; None for a
    step that none reports."""
    now = time.time_ns()
    lengths = len(span.trace_id), len(span.span_id), len(span.parent_span_id)
    if span.name not in NAMES or lengths[:2] != (16, 8) or lengths[2] not in (0, 8):
        return None
    if not (any(span.trace_id) and any(span.span_id)):
        return None
    if not now - _PAST_NS < span.start_unix_nano <= span.end_unix_nano < now + _FUTURE_NS:
        return None
    step = pb.Span()
    step.CopyFrom(span)
    for key, text in span.words.items():
        if not text or key not in WORDS or not WORDS[key].fullmatch(text):
            del step.words[key]
    for key, count in span.counts.items():
        if key not in COUNTS or count > _COUNT_MAX:
            del step.counts[key]
    return step


log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 5
_CLOSE_S: Final = 3.0
_EVERY_MS: Final = 15_000
_USER: Final = "oxydra.user"


class Telemetry:
    """Takes the steps of one user's agent. `restarts` is asked how often guests were started again.

    Exporting happens in threads of its own and can neither slow nor stop the host: what a collector
    does not take is dropped. Raises `ConfigError` for headers that cannot be read.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        user_id: str,
        tier: str,
        *,
        environ: Mapping[str, str],
    ) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        self.restarts: Callable[[], Mapping[str, int]] = dict
        about = {"service.version": version("oxydra"), _USER: user_id, "oxydra.tier": tier}
        self._resource = Resource({"service.name": "oxydra", **about})
        self._registry = CollectorRegistry()
        self._sampler = TraceIdRatioBased(settings.sample_ratio)
        self._traces: BatchSpanProcessor | None = None
        readers: list[MetricReader] = []
        if settings.otlp_endpoint:
            endpoint = settings.otlp_endpoint.rstrip("/")
            headers = _headers(settings, environ)
            self._traces = BatchSpanProcessor(
                OTLPSpanExporter(f"{endpoint}/v1/traces", headers=headers, timeout=_TIMEOUT_S),
                schedule_delay_millis=1_000,
            )
            exporter = OTLPMetricExporter(
                f"{endpoint}/v1/metrics", headers=headers, timeout=_TIMEOUT_S
            )
            readers.append(PeriodicExportingMetricReader(exporter, _EVERY_MS))
        if settings.prometheus:
            readers.append(
                PrometheusMetricReader(
                    scope_info_enabled=False,
                    resource_attribute_filter=lambda name: name == _USER,
                    registry=self._registry,
                )
            )
        self._metrics = MeterProvider(readers, self._resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("oxydra")
        self._durations = {
            name: meter.create_histogram(f"oxydra.{name}.duration", "s") for name in NAMES
        }
        self._tokens = meter.create_counter("oxydra.model.tokens")
        self._requests = meter.create_counter("oxydra.egress.requests")
        self._bytes = meter.create_counter("oxydra.egress.bytes")
        self._lost = meter.create_counter("oxydra.steps.lost")
        meter.create_observable_counter("oxydra.guest.restarts", [self._observed])

    def take(self, batch: pb.SpanBatch) -> None:
        """Count steps, and export them as far as they are sampled."""
        lost = min(batch.lost, 10**9)
        for span in batch.spans:
            step = checked(span)
            if step is None:
                lost += 1
                continue
            self._count(step)
            if self._traces is not None:
                self._export(step, self._traces)
        if lost:
            self._lost.add(lost)

    def left(self, role: str, decision: str) -> None:
        """Count a request of the guest `role` that egress let out ("allowed") or refused."""
        self._requests.add(1, {"role": role, "decision": decision})

    def moved(self, role: str, sent: int, received: int) -> None:
        """Count the bytes of a request that has ended."""
        self._bytes.add(sent, {"role": role, "direction": "sent"})
        self._bytes.add(received, {"role": role, "direction": "received"})

    def exposition(self) -> str:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()

    async def close(self) -> None:
        """Export what is left, for a short time."""

        def shut_down() -> None:
            if self._traces is not None:
                self._traces.shutdown()  # type: ignore[no-untyped-call]
            self._metrics.shutdown(timeout_millis=_CLOSE_S * 1000)

        try:
            await asyncio.wait_for(asyncio.to_thread(shut_down), _CLOSE_S)
        except TimeoutError:
            log.warning("the collector does not take the last traces and metrics")

    def _count(self, step: pb.Span) -> None:
        seconds = (step.end_unix_nano - step.start_unix_nano) / 1e9
        outcome = step.words.get("outcome") or ("failed" if step.failed else "ok")
        told = {name: step.words.get(name, other) for name, other in NAMES[step.name].items()}
        self._durations[step.name].record(seconds, {**told, "outcome": outcome})
        for key, count in step.counts.items() if step.name == "model" else ():
            self._tokens.add(count, {**told, "kind": key.removesuffix("_tokens")})

    def _export(self, step: pb.Span, traces: BatchSpanProcessor) -> None:
        trace_id = int.from_bytes(step.trace_id)
        if self._sampler.should_sample(None, trace_id, step.name).decision is Decision.DROP:
            return

        def context(span_id: bytes) -> SpanContext:
            flags = TraceFlags(TraceFlags.SAMPLED)
            number = int.from_bytes(span_id)
            return SpanContext(trace_id, number, is_remote=False, trace_flags=flags)

        label = next((step.words[key] for key in ("tool", "operation") if key in step.words), "")
        traces.on_end(
            ReadableSpan(
                name=f"{step.name} {label}".strip(),
                context=context(step.span_id),
                parent=context(step.parent_span_id) if any(step.parent_span_id) else None,
                resource=self._resource,
                attributes={
                    **{f"oxydra.{key}": word for key, word in step.words.items()},
                    **{f"oxydra.{key}": count for key, count in step.counts.items()},
                },
                kind=SpanKind.CLIENT if step.name in ("model", "shell") else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR if step.failed else StatusCode.UNSET),
                start_time=step.start_unix_nano,
                end_time=step.end_unix_nano,
                instrumentation_scope=None,
            )
        )

    def _observed(self, _: CallbackOptions) -> Iterable[Observation]:
        for role, count in self.restarts().items():
            yield Observation(count, {"role": role})


def _headers(settings: TelemetrySettings, environ: Mapping[str, str]) -> dict[str, str]:
    name = settings.otlp_headers_env
    if not name:
        return {}
    pairs = [pair.partition("=") for pair in environ.get(name, "").split(",")]
    if not all(key.strip() and mark for key, mark, _ in pairs):
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "the headers for the collector cannot be read",
            details=f"[telemetry] otlp_headers_env names the variable {name}, which is "
            + ("not name=value pairs with commas between them" if name in environ else "not set"),
            resolution=f"export {name}='authorization=Bearer …', then: runner start",
        )
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
