"""The suites: where each comes from, and how it runs. What fails in them for a known reason stands in `known.toml`.

A suite comes as its authors publish it, with a package registry's own client. What it needs besides is supplied from
outside: names, ports, keys, and for one the test tools of its repository. The lines that are replaced in a copy of its
tests stand here; clients stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.toolchains import GO, NODE, Toolchain

HERE: Final = Path(__file__).parent
HOST: Final = "emulator.servicebus.windows.net"
"""The name that leads to the server in a network of its own; see `own_network.py`."""


def connection_string(rule: str, key: str) -> str:
    """How clients of a rule of `own_network.CONFIG` come to the server."""
    return f"Endpoint=sb://{HOST}/;SharedAccessKeyName={rule};SharedAccessKey={key}"


ROOT_STRING: Final = connection_string("RootManageSharedAccessKey", "SAS_KEY_VALUE")
KEYS: Final = ("--auth", "sas")
NO_KEYS: Final = ("--auth", "none")


@dataclass(frozen=True)
class Round:
    """One run of a part of a suite, beside a server of its own."""

    name: str
    options: tuple[str, ...]  # of `emubus serve`
    tests: tuple[str, ...]  # files for pytest and mocha; for Go the package, then options of its binary
    without: str = ""  # Go: a regular expression of tests that another round has


@dataclass(frozen=True)
class Replacement:
    """A line of a suite's tests, and what stands there in the copy that runs."""

    file: str
    line: str
    by: str


@dataclass(frozen=True)
class Suite:
    """A suite of tests. Its `runner` is pytest, go or mocha."""

    name: str
    version: str
    runner: str
    package: str  # its name in the registry
    client: str  # what talks to the server
    rounds: tuple[Round, ...]
    folder: str = "."  # of the tests, in the package
    needs: tuple[str, ...] = ()  # further packages
    environment: Mapping[str, str] = field(default_factory=dict)
    config: str = ""  # the suite's own Config.json, in the package
    supplied: tuple[Path, ...] = ()  # folders with modules that the tests import
    options: tuple[str, ...] = ()  # of the runner
    replacements: tuple[Replacement, ...] = ()
    toolchain: Toolchain | None = None


GO_STRINGS: Final = {
    "SERVICEBUS_ENDPOINT": HOST,
    "SERVICEBUS_ENDPOINT_PREMIUM": HOST,
    "SERVICEBUS_CONNECTION_STRING": ROOT_STRING,
    "SERVICEBUS_CONNECTION_STRING_PREMIUM": ROOT_STRING,
    "SERVICEBUS_CONNECTION_STRING_NO_MANAGE": connection_string("both-rule", "both-rule-key"),
    "SERVICEBUS_CONNECTION_STRING_SEND_ONLY": connection_string("send-rule", "send-rule-key"),
    "SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY": connection_string("listen-rule", "listen-rule-key"),
    "AZURE_RECORD_MODE": "live",
}
WITH_KEYS: Final = "ConnectionString|SendOnly|ListenOnly|NoManage|Unauthorized|Auth|Claim"
"""Tests of the Go SDK that sign in with keys; the others sign in with Entra ID, which the server doesn't ask."""

SUITES: Final[tuple[Suite, ...]] = (
    Suite(
        name="azure-servicebus (Python)",
        version="7.15.0",
        runner="pytest",
        package="azure-servicebus",
        client="azure-servicebus 7.15.0",
        folder="tests",
        needs=(
            *("azure-common", "aiohttp", "websocket-client", "pytest-asyncio", "pytest-timeout"),
            *("azure-core-tracing-opentelemetry", "opentelemetry-sdk"),  # test_tracing.py
        ),
        environment={"SERVICEBUS_ENDPOINT_SUFFIX": ".servicebus.windows.net"},
        supplied=(HERE / "azure_python",),
        options=("-c", str(HERE / "azure_python" / "pytest.ini"), "--rootdir", ".", "-p", "devtools_testutils.plugin"),
        rounds=(
            Round("administration", KEYS, ("mgmt_tests",)),
            Round("queues", KEYS, ("test_queues.py",)),
            Round("queues, asynchronous", KEYS, ("async_tests/test_queues_async.py",)),
            Round("sessions", KEYS, ("test_sessions.py",)),
            Round("sessions, asynchronous", KEYS, ("async_tests/test_sessions_async.py",)),
            Round(
                "clients and topics",
                KEYS,
                (
                    *("test_sb_client.py", "test_topic.py", "test_subscriptions.py", "test_list_sessions.py"),
                    *("async_tests/test_sb_client_async.py", "async_tests/test_topic_async.py"),
                    *("async_tests/test_subscriptions_async.py", "async_tests/test_list_sessions_async.py"),
                ),
            ),
            Round(
                "without a server",
                KEYS,
                (
                    *("test_batch_sizing.py", "test_connection_string_parser.py", "test_dictmixin_amqp.py"),
                    *("test_message.py", "test_mgmt_client_kwargs.py", "test_tracing.py", "unittests"),
                ),
            ),
        ),
    ),
    Suite(
        name="azservicebus (Go)",
        version="1.11.0",
        runner="go",
        package="github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus",
        client="azservicebus 1.11.0",
        environment=GO_STRINGS,
        replacements=(
            Replacement(
                "internal/test/test_helpers.go",
                "tokenCred, err := credential.New(nil)",
                "var tokenCred azcore.TokenCredential = &credential.Fake{}\n\tvar err error",
            ),
        ),
        rounds=(
            Round("client", NO_KEYS, (".",), without=WITH_KEYS),
            Round("client, keys", KEYS, (".", "-test.run", WITH_KEYS)),
            Round("links", NO_KEYS, ("./internal",)),
            Round("administration", NO_KEYS, ("./admin",), without="Premium"),
            Round("administration, premium", (*NO_KEYS, "--profile", "premium"), ("./admin", "-test.run", "Premium")),
        ),
        toolchain=GO,
    ),
    Suite(
        name="Go CDK, pubsub/azuresb",
        version="0.47.0",
        runner="go",
        package="gocloud.dev",
        client="azservicebus",
        environment={"SERVICEBUS_CONNECTION_STRING": ROOT_STRING},
        options=("-record",),
        rounds=(Round("all", KEYS, ("./pubsub/azuresb",)),),
        toolchain=GO,
    ),
    Suite(
        name="faststream-azure-servicebus",
        version="0.2.1",
        runner="pytest",
        package="faststream-azure-servicebus",
        client="azure-servicebus",
        folder=".",
        needs=(
            *("pytest-asyncio==1.3.0", "pytest-timeout", "pytest-xdist", "dirty-equals==0.11", "testcontainers>=4.13"),
            *("azure-identity", "opentelemetry-sdk", "prometheus-client", "pytest-rerunfailures", "aiohttp"),
        ),
        environment={"SERVICEBUS_CONNECTION_STRING": ROOT_STRING},
        config="tests/infra/servicebus-config.json",
        rounds=(Round("all", KEYS, ("tests",)),),
    ),
    Suite(
        name="systemic-azure-bus",
        version="2.3.1",
        runner="mocha",
        package="systemic-azure-bus",
        client="@azure/service-bus 1.1 (JavaScript)",
        environment={"AZURE_SERVICEBUS_CONNECTION_STRING": ROOT_STRING},
        config=str(HERE / "systemic.json"),
        rounds=(Round("all", KEYS, ("test/**/*.test.js",)),),
        toolchain=NODE,
    ),
)
