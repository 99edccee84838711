"""A collector of OTLP over HTTP in this process: keeps what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WAIT_S = 60


class _Handler(BaseHTTPRequestHandler):
    """Keeps the body of each request, by its path, in the collector that the subclass names."""

    collector: ClassVar[Collector]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf"
        self.collector.keep(self.path, body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


class Collector:
    """Spans and metrics that have come."""

    def __init__(self) -> None:
        self._bodies: list[tuple[str, bytes]] = []
        self._more = threading.Condition()
        handler = type("Handler", (_Handler,), {"collector": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the collector is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def keep(self, path: str, body: bytes) -> None:
        """A request has come."""
        with self._more:
            self._bodies.append((path, body))
            self._more.notify_all()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> Iterator[tuple[str, Span]]:
        """All spans so far, each with the name of its service."""
        for body in self._of("/v1/traces"):
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {each.key: each.value.string_value for each in of_resource.resource.attributes}
                for of_scope in of_resource.scope_spans:
                    yield from ((names["service.name"], span) for span in of_scope.spans)

    def metrics(self) -> dict[str, Metric]:
        """The last metrics, by name."""
        last = ExportMetricsServiceRequest.FromString(self._of("/v1/metrics")[-1])
        return {each.name: each for each in last.resource_metrics[0].scope_metrics[0].metrics}

    def wait_for(self, path: str, count: int = 1) -> None:
        """Wait until `count` requests to a path have come."""
        with self._more:
            assert self._more.wait_for(lambda: len(self._of(path)) >= count, WAIT_S)

    def _of(self, path: str) -> list[bytes]:
        return [body for each, body in self._bodies if each == path]


def attributes_of(span: Span) -> dict[str, str | int]:
    """The attributes of a span."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
