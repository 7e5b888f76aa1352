"""A collector of OpenTelemetry: takes traces and metrics over HTTP, as the protocol says."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What arrived: messages, every byte of them, and headers."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.bytes = b""
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port, until the body ends."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.bytes += body
            made.headers.append({key.lower(): value for key, value in self.headers.items()})
            if self.path == "/v1/traces":
                made.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                made.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def words_of(span: Span) -> dict[str, Any]:
    """A span's attributes without `oxydra.`."""
    return {
        each.key.removeprefix("oxydra."): each.value.string_value or each.value.int_value
        for each in span.attributes
    }
