"""Scenarios of JMS 2.0 against a Premium namespace: both generations of Qpid JMS, and the library of Service Bus.

One Java process for each client runs them all (`program/`), and tells how each has ended. The library finds no
queue and no topic: it makes them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emubus.broker.model.descriptions import SubscriptionDescription
from emubus.broker.model.profiles import Profile
from emubus.testing import EmubusServer
from emubus.tls import ca_file

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
PASSWORD = "changeit"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("jms_client", "of_library"),
    [("qpid-jms-1", False), ("qpid-jms-2", False), ("qpid-jms-2", True)],
    ids=["qpid-jms-1", "qpid-jms-2", "azure-servicebus-jms-2"],
)
def test_the_scenarios_of_jms_pass_and_only_what_is_durable_is_left(
    jms_client: str, of_library: bool, tmp_path: Path
) -> None:
    build(f"the program of {jms_client}", BUILDS[jms_client])
    with EmubusServer(profile=Profile.PREMIUM, tls_dir=tmp_path) as server:
        options = trust(tmp_path) if of_library else []
        if not of_library:
            for name in SCENARIOS:
                server.create_queue(name)
                server.create_topic(f"{name}-topic")
        address = f"localhost:{server.amqp_port}"
        uri = address if of_library else f"amqp://{address}?{OPTIONS}"
        command = ("java", *BRIEF_JAVA, *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-jar")
        done = subprocess.run(
            (*command, str(jar(jms_client)), uri), capture_output=True, text=True, timeout=RUN_S_MAX, check=True
        )
        ends = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        assert {name: end.replace("\\n", "\n") for name, end in ends.items() if end != "passed"} == {}
        assert tuple(ends) == SCENARIOS
        assert server.call(lambda: passing_entities(server)) == []


def trust(folder: Path) -> list[str]:
    """The options with which Java trusts the server's CA."""
    store = folder / "trust.p12"
    command = ("keytool", "-importcert", "-noprompt", "-file", str(ca_file(folder)), "-keystore", str(store))
    subprocess.run((*command, "-storetype", "PKCS12", "-storepass", PASSWORD), check=True, capture_output=True)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]


def passing_entities(server: EmubusServer) -> list[str]:
    """The temporary destinations, and the subscriptions that are not durable."""
    descriptions = [entity.description for entity in server.server.broker.entities()]
    return [
        each.name
        for each in descriptions
        if (
            each.jms is not None and not each.jms.is_durable
            if isinstance(each, SubscriptionDescription)
            else each.is_temporary
        )
    ]
