"""The section *emubus* in the report of a test that fails, as pytest prints it, here and against a running emubus."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import run_pytest, serving

TESTS = """
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

@pytest.fixture
def client(servicebus_connection_string):
    with ServiceBusClient.from_connection_string(servicebus_connection_string, retry_total=0) as client:
        yield client

def test_all_of_it(emubus, emubus_clock, client):
    emubus.create_topic("prices")
    emubus.create_subscription("prices/all")
    emubus.send("prices", "x", message_id="left")
    with emubus.conditions("throttle-credits", entity="queue.1", seed=7, credits_per_s=1):
        with client.get_queue_sender("queue.1") as sender:
            sender.send_messages(ServiceBusMessage("y"))
            emubus.add_fault("server-busy", entity="queue.1", operations=["send"], count=2)
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("y"))
    emubus.purge("queue.1")
    emubus.begin_outage(3)
    emubus_clock.advance(3_600_000)
    with client.get_queue_sender("quee.1") as sender:
        sender.send_messages(ServiceBusMessage("x"))

def test_nothing_to_say(emubus):
    assert emubus.peek("queue.1") != []

def test_that_passes(emubus):
    emubus.send("queue.1", "left")
"""
EXPECTED = (
    "Refused:\n",
    "  quee.1: amqp:not-found: The messaging entity 'sb://",
    "\n    no queue, topic or subscription 'quee.1'; did you mean 'queue.1'?\n",
    "Conditions and faults:\n  throttle-credits on queue.1 (seed 7, ended) struck ",
    "  fault server-busy on queue.1 struck once\n",
    "Outages:\n  messaging store 3 is down\n",
    "Clock:\n  ",
    " UTC, frozen, +",
    "Messages there:\n  prices/Subscriptions/all: 1 active\n",
    "What nobody took:\n  'left' in prices/Subscriptions/all, active, delivery count 0\n",
    "prices: 1 of 1 subscriptions take the message\n",
    "prices/Subscriptions/all: Copied to the subscription\n",
)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the process", "over HTTP"])
def test_a_failed_test_says_what_the_broker_knows(tmp_path: Path, elsewhere: bool) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    if elsewhere:
        folder = tmp_path / "server"
        folder.mkdir()
        with serving(folder) as served:
            finished = run_pytest(tmp_path, f"--emubus-url={served.url}")
    else:
        finished = run_pytest(tmp_path)
    assert finished.tests["test_that_passes"] == "passed"
    first, second = finished.output.split("test_nothing_to_say", 1)
    section = first.partition(" emubus -")[2]
    assert section, finished.output
    assert [each for each in EXPECTED if each not in section] == [], section
    assert " emubus -" not in second


def test_an_emubus_that_is_gone_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(emubus):\n    emubus.close()\n    assert False\n")
    output = run_pytest(tmp_path).output
    assert "The emubus can't be asked what happened: no emubus answers at http://localhost:" in output
