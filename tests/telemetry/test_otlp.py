"""Traces and metrics over OTLP: the broker's spans are in the trace of the SDK's own."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.telemetry import otlp
from emubus.telemetry.collector import CollectorState
from emubus.telemetry.otlp import Otlp, OtlpError
from emubus.testing import EmubusServer

from ..http.control.conftest import sdk_of
from ..log_levels import every_level
from .collector import Collector, attributes_of

WAIT_S = 60
QUEUES = (QueueDescription("target"), QueueDescription("source", forward_to="target"))


@pytest.fixture(scope="module")
def sdk_spans() -> Iterator[InMemorySpanExporter]:
    """The spans of the SDK, whose tracing is on."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    settings.tracing_implementation = "opentelemetry"
    yield exporter
    settings.tracing_implementation = None
    provider.shutdown()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


@pytest.fixture
def server(collector: Collector) -> Iterator[EmubusServer]:
    with EmubusServer(QUEUES, otlp=collector.url) as running:
        yield running


def by_name(collector: Collector) -> dict[str, list[Span]]:
    """The spans of emubus."""
    found = defaultdict[str, list[Span]](list)
    for service, span in collector.spans():
        assert service == "emubus"
        found[span.name].append(span)
    return found


def send_and_settle(sdk: ServiceBusClient) -> None:
    """Send through `source`, and complete in `target`."""
    with sdk.get_queue_sender("source") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with sdk.get_queue_receiver("target") as receiver:
        (message,) = receiver.receive_messages(1, WAIT_S)
        receiver.complete_message(message)


def test_the_spans_of_a_message_are_in_the_trace_of_its_sender(
    server: EmubusServer, collector: Collector, sdk_spans: InMemorySpanExporter
) -> None:
    sdk_spans.clear()
    with sdk_of(server) as sdk:
        send_and_settle(sdk)
    server.close()
    (of_message,) = [each for each in sdk_spans.get_finished_spans() if each.name == "ServiceBus.message"]
    assert of_message.context is not None
    found = by_name(collector)
    assert set(found) == {"send source", "forward target", "receive target", "settle target"}
    for (span,) in found.values():
        assert int.from_bytes(span.trace_id) == of_message.context.trace_id
        assert int.from_bytes(span.parent_span_id) == of_message.context.span_id
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    settled = attributes_of(found["settle target"][0])
    assert settled["messaging.system"] == "servicebus"
    assert settled["messaging.servicebus.disposition_status"] == "completed"
    assert settled["messaging.destination.name"] == "target"


def test_a_message_without_a_trace_begins_one_and_a_topics_copies_stay_in_it(
    server: EmubusServer, collector: Collector
) -> None:
    server.create(TopicDescription("news", enable_partitioning=True))
    server.create(SubscriptionDescription("news", "all"))
    with sdk_of(server) as sdk:
        with sdk.get_topic_sender("news") as sender:
            sender.send_messages([ServiceBusMessage("x", partition_key="k") for _ in range(3)])
        with sdk.get_subscription_receiver("news", "all") as receiver:
            for message in receiver.receive_messages(3, WAIT_S):
                receiver.dead_letter_message(message, reason="bad")
    server.close()
    found = by_name(collector)
    traces = {each.trace_id for each in found["send news"]}
    assert len(traces) == 3
    for name in ("forward", "receive", "settle"):
        assert {each.trace_id for each in found[f"{name} news/Subscriptions/all"]} == traces
    assert attributes_of(found["settle news/Subscriptions/all"][0])["emubus.reason"] == "bad"


def test_metrics_are_those_of_the_page_and_come_each_interval(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with EmubusServer(QUEUES, otlp=collector.url) as server:
        with sdk_of(server) as sdk, sdk.get_queue_sender("target") as sender:
            sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
        server.call(lambda: server.clock.advance(60_000))
        collector.wait_for("/v1/metrics")
        (sent,) = collector.metrics()["emubus_messages_sent"].sum.data_points
        assert (sent.as_int, sent.attributes[0].value.string_value) == (2, "target")
        found = collector.metrics()
        assert found["emubus_messages_sent"].sum.is_monotonic
        assert found["emubus_store_commit_duration_seconds"].unit == "s"
        assert sum(each.count for each in found["emubus_store_commit_duration_seconds"].histogram.data_points) == 1
        server.call(lambda: server.clock.advance(60_000))
        collector.wait_for("/v1/metrics", 2)
    collector.wait_for("/v1/metrics", 3)  # the last ones, at the stop
    assert list(collector.spans()) == []


def test_a_collector_that_is_away_holds_up_neither_messages_nor_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "STOP_MS", 50)
    away = Collector()
    away.close()
    with every_level(), capture_logs() as lines, EmubusServer(QUEUES, otlp=away.url) as server, sdk_of(server) as sdk:
        send_and_settle(sdk)
    # One or two: whether there is something left to send after the first try depends on the exporter's retries.
    assert {line["log_level"] for line in lines if line["event"].startswith("not all traces")} == {"warning"}


class BadCollector(socketserver.ThreadingTCPServer):
    """A collector that answers with `answer`, again and again, and keeps the connection until it is released."""

    daemon_threads = True

    def __init__(self, answer: bytes, *, is_endless: bool = False) -> None:
        self.asked = threading.Event()
        self.ended = threading.Event()
        self.released = threading.Event()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1 << 16)
                outer.asked.set()
                try:
                    self.request.sendall(answer)
                    while is_endless:
                        self.request.sendall(b"x" * 65_536)
                except OSError:
                    outer.ended.set()
                    return
                outer.released.wait(WAIT_S)

        super().__init__(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"", None),
        (b"HTTP/1.1 200 OK\r\n", None),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "HTTP status 503"),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", "HTTP status 400"),
        (b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "HTTP status 307"),
        (bytes(range(256)) * 4, "ConnectionError"),
    ],
    ids=["nothing", "half a head", "busy", "refused", "redirect", "garbage"],
)
def test_a_stop_does_not_wait_for_a_collector_that_hangs_or_refuses(
    answer: bytes, cause: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each handler keeps its connection until after the stop: if that waited for an answer, it would never end."""
    monkeypatch.setattr(otlp, "STOP_MS", 50)
    bad = BadCollector(answer)
    with every_level(), capture_logs() as lines, EmubusServer(QUEUES, otlp=bad.url) as server:
        with sdk_of(server) as sdk:
            send_and_settle(sdk)
        server.call(lambda: server.clock.advance(60_000))
        assert bad.asked.wait(WAIT_S)
        if cause is not None:
            while cause not in facts(server)["Collector"]:
                pass
    assert not bad.released.is_set()
    bad.close()
    told = [line for line in lines if line["event"].startswith("the collector takes no ")]
    assert len(told) <= 2, "one for each signal"
    assert all(each["log_level"] == "warning" for each in told)
    assert [line for line in lines if line["log_level"] in ("error", "critical")] == []


def facts(server: EmubusServer) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/emubus/v1/about", timeout=WAIT_S) as answer:
        found: dict[str, str] = json.load(answer)["facts"]
    return found


def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    bad = BadCollector(b"HTTP/1.1 200 OK\r\n\r\n", is_endless=True)
    with EmubusServer(QUEUES, otlp=bad.url) as server:
        server.call(lambda: server.clock.advance(60_000))
        assert bad.ended.wait(WAIT_S), "the connection is closed behind the head"
        while facts(server)["Collector"] != "sound":
            pass
    bad.close()


def test_a_collector_that_fails_and_comes_back_is_told_twice() -> None:
    with every_level(), capture_logs() as lines:
        state = CollectorState()
        for problem in ("ReadTimeout", "ReadTimeout", "HTTP status 503", None, None):
            state.note("traces", problem)
            assert str(state) == ("sound" if problem is None else f"no traces: {problem}")
    assert [line["log_level"] for line in lines] == ["warning", "info"]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "milliseconds above 0"),
    ],
)
def test_variables_that_can_not_be_followed_are_named(variables: dict[str, str], text: str) -> None:
    with pytest.raises(OtlpError, match=text):
        Otlp("http://localhost:4318", variables, Clock())


def test_without_the_extra_a_start_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; from emubus.__main__ import main; sys.exit(main())"
    arguments = [
        "serve",
        "--durability",
        "none",
        "--amqp-port",
        "0",
        "--http-port",
        "0",
        "--otlp",
        "http://localhost:1",
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("emubus: error: --otlp (or OTEL_EXPORTER_OTLP_ENDPOINT) needs OpenTelemetry: ")
    assert "pip install 'emubus[otel]'" in line


def test_without_the_extra_the_variable_of_a_platform_does_not_keep_the_server_from_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = "http://localhost:1"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setitem(sys.modules, "emubus.telemetry.otlp", None)
    with EmubusServer(otlp=endpoint) as emubus:
        assert emubus.server.ready
