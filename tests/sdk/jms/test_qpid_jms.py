"""Scenarios of JMS 2.0 that both generations of Qpid JMS run against a Premium namespace.

One Java process for each generation runs them all (`program/`), and tells how each has ended.
"""

from __future__ import annotations

import subprocess

import pytest

from emubus.broker.model.descriptions import SubscriptionDescription
from emubus.broker.model.profiles import Profile
from emubus.testing import EmubusServer

from ...building import build
from ...toolchains import BRIEF_JAVA
from .prepare import BUILDS, jar

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

SCENARIOS = (
    *("queue-selector", "two-selectors", "selector-and-redelivery", "bad-selector", "browser", "message-types"),
    *("headers", "anonymous-producer", "delivery-delay", "unshared-non-durable", "durable-resumes"),
    *("durable-is-exclusive", "durable-selector", "shared-durable", "shared-non-durable", "unsubscribe", "no-local"),
    *("request-reply", "temporary-topic", "transaction", "dead-letter"),
)
OPTIONS = "amqp.saslMechanisms=ANONYMOUS&jms.deserializationPolicy.allowList=*&jms.deserializationPolicy.whiteList=*"
RUN_S_MAX = 240


def run(client: str) -> tuple[dict[str, str], list[str]]:
    """How each scenario has ended, and the names of the entities that are left and were not there at the start."""
    build(f"the program of {client}", BUILDS[client])
    with EmubusServer(profile=Profile.PREMIUM) as server:
        for name in SCENARIOS:
            server.create_queue(name)
            server.create_topic(f"{name}-topic")
        broker = server.server.broker
        before = server.call(lambda: {entity.path for entity in broker.entities()})
        command = ("java", *BRIEF_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-jar", str(jar(client)))
        uri = f"amqp://localhost:{server.amqp_port}?{OPTIONS}"
        done = subprocess.run((*command, uri), capture_output=True, text=True, timeout=RUN_S_MAX, check=True)
        left = server.call(
            lambda: sorted(
                entity.path
                for entity in broker.entities()
                if entity.path not in before and not is_durable(entity.description)
            )
        )
    lines = (line.partition(": ") for line in done.stdout.splitlines())
    return {name: end.replace("\\n", "\n") for name, _, end in lines}, left


def is_durable(description: object) -> bool:
    return (
        isinstance(description, SubscriptionDescription) and description.jms is not None and description.jms.is_durable
    )


@pytest.fixture(params=sorted(BUILDS))
def jms_client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.timeout(600)
def test_the_scenarios_of_jms_pass_and_nothing_is_left_that_is_not_durable(jms_client: str) -> None:
    ends, left = run(jms_client)
    assert {name: end for name, end in ends.items() if end != "passed"} == {}
    assert tuple(ends) == SCENARIOS
    assert left == []
