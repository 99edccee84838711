"""Spring's template and listeners over the library for JMS 2.0, as its starter for a Premium namespace sets them up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emubus.broker.model.profiles import Profile
from emubus.config import Auth
from emubus.testing import EmubusServer

from ...building import build
from ...toolchains import BRIEF_JAVA
from .prepare import BUILDS, jar

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_listeners_of_spring_get_their_messages_also_when_their_connections_break(
    tls_folder: Path, trust: list[str]
) -> None:
    build("the program of qpid-jms-2", BUILDS["qpid-jms-2"])
    with EmubusServer(profile=Profile.PREMIUM, auth=Auth.SAS, tls_dir=tls_folder) as server:
        address = f"localhost:{server.amqp_port}"
        options = (*BRIEF_JAVA, *trust, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
        command = ("java", *options, "-cp", str(jar("qpid-jms-2")), "emubus.spring.Listeners", address)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "drop\n"
            assert server.drop_connections() > 1
            output, _ = program.communicate("\n")
        assert output.splitlines() == [
            "after: after after",
            "before: before before",
            "orders: 20",
            "poison: 10 p",
            "request-reply: answer",
            "selector: urgent other",
            "template: hello",
        ]
