"""Exports what a host's agent did: traces and metrics by OTLP over HTTP, metrics for Prometheus."""

import asyncio
import logging
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
from wire.settings import TelemetrySettings
from wire.v1 import gateway_pb2 as pb

from runner.errors import ConfigError
from runner.telemetry.steps import Step

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
        self._turns = meter.create_histogram("oxydra.turn.duration", "s")
        self._models = meter.create_histogram("oxydra.model.duration", "s")
        self._tokens = meter.create_counter("oxydra.model.tokens")
        self._tools = meter.create_histogram("oxydra.tool.duration", "s")
        self._memory = meter.create_histogram("oxydra.memory.duration", "s")
        self._shell = meter.create_histogram("oxydra.shell.duration", "s")
        self._requests = meter.create_counter("oxydra.egress.requests")
        self._bytes = meter.create_counter("oxydra.egress.bytes")
        self._lost = meter.create_counter("oxydra.steps.lost")
        meter.create_observable_counter("oxydra.guest.restarts", [self._observed])

    def take(self, batch: pb.SpanBatch) -> None:
        """Count steps, and export them as far as they are sampled."""
        lost = min(batch.lost, 10**9)
        for span in batch.spans:
            step = Step.of(span)
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

    def _count(self, step: Step) -> None:
        outcome = step.words.get("outcome") or ("failed" if step.failed else "ok")
        match step.name:
            case "turn":
                self._turns.record(step.seconds, {"outcome": outcome})
            case "model":
                model = step.words.get("model", "")
                self._models.record(step.seconds, {"model": model, "outcome": outcome})
                for key, count in step.counts.items():
                    kind = key.removesuffix("_tokens")
                    self._tokens.add(count, {"model": model, "kind": kind})
            case "tool":
                tool = step.words.get("tool", "unknown")
                self._tools.record(step.seconds, {"tool": tool, "outcome": outcome})
            case "memory":
                operation = step.words.get("operation", "")
                self._memory.record(step.seconds, {"operation": operation, "outcome": outcome})
            case "shell":
                self._shell.record(step.seconds, {"outcome": outcome})

    def _export(self, step: Step, traces: BatchSpanProcessor) -> None:
        if self._sampler.should_sample(None, step.trace_id, step.name).decision is Decision.DROP:
            return

        def context(span_id: int) -> SpanContext:
            flags = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(step.trace_id, span_id, is_remote=False, trace_flags=flags)

        label = next((step.words[key] for key in ("tool", "operation") if key in step.words), "")
        traces.on_end(
            ReadableSpan(
                name=f"{step.name} {label}".strip(),
                context=context(step.span_id),
                parent=context(step.parent_id) if step.parent_id else None,
                resource=self._resource,
                attributes={
                    f"oxydra.{key}": value for key, value in (step.words | step.counts).items()
                },
                kind=SpanKind.CLIENT if step.name in ("model", "shell") else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR if step.failed else StatusCode.UNSET),
                start_time=step.start,
                end_time=step.end,
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
