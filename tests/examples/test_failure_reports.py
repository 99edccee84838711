"""The helpers of examples/ that add what emubus knows to a failing test, each run by its framework.

Every program has two tests: in both a send is refused; the second leaves a message and fails. .NET's are called by a
program in the place of xunit and NUnit (`frameworks/`), whose packages can't be had everywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from emubus.testing import EmubusServer, QueueDescription

from ..building import ROOT
from ..programs import PROGRAM_S_MAX
from ..sdk.prepare import ALL_CLIENTS, DRIVERS, prepare
from ..toolchains import BRIEF_JAVA
from ..web.prepare import NODE_TOOLS, prepare_node_tools
from .dotnet import program

EXAMPLES = ROOT / "examples"
JAVASCRIPT = """
const url = process.env.EMUBUS_URL;
const send = (queue) => fetch(`${url}/${queue}/messages`, { method: "POST", body: "x" });
const move = () => fetch(`${url}/emubus/v1/clock/advance`, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: '{"ms": 60000}' });

test("it passes", async () => {
  await send("earlier.1");
  await move();
});

test("it fails", async () => {
  await send("queue.1");
  const answer = await send("quee.1");
  expect(answer.status).toBe(201);
});
"""
GO = """
package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

func send(t *testing.T, path string, kind string, body string) int {
	answer, err := http.Post(os.Getenv("EMUBUS_URL")+path, kind, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestItPasses(t *testing.T) {
	reportOnFailure(t)
	send(t, "/earlier.1/messages", "text/plain", "x")
	send(t, "/emubus/v1/clock/advance", "application/json", `{"ms": 60000}`)
}

func TestItFails(t *testing.T) {
	reportOnFailure(t)
	send(t, "/queue.1/messages", "text/plain", "x")
	if status := send(t, "/quee.1/messages", "text/plain", "x"); status != 201 {
		t.Fatal(status)
	}
}
"""
JAVA = """
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(EmubusReport.class)
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class OrdersTest {
    private static int send(String path, String kind, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(System.getenv("EMUBUS_URL") + path))
                .header("Content-Type", kind).POST(HttpRequest.BodyPublishers.ofString(body)).build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
    }

    @Test
    @Order(1)
    void itPasses() throws Exception {
        send("/earlier.1/messages", "text/plain", "x");
        send("/emubus/v1/clock/advance", "application/json", "{\\"ms\\": 60000}");
    }

    @Test
    @Order(2)
    void itFails() throws Exception {
        send("/queue.1/messages", "text/plain", "x");
        assertEquals(201, send("/quee.1/messages", "text/plain", "x"));
    }
}
"""
SECTION: Final = (
    "emubus\n",
    "Refused:\n",
    "quee.1: 410: ",
    "Clock:\n",
    "Messages there:\n",
    "queue.1: 1 active\n",
    "What nobody took:\n",
    " in queue.1, active, delivery count 0\n",
    "queue.1: Sent",
)


@pytest.fixture
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("queue.1")], story=True) as running:
        yield running


@pytest.fixture
def node_tools() -> Path:
    """The folder of the frameworks for Node.js, installed."""
    prepare_node_tools()
    return NODE_TOOLS


def url_of(server: EmubusServer) -> dict[str, str]:
    return {"EMUBUS_URL": f"http://localhost:{server.http_port}"}


def run(command: list[str], folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of a program and what it prints, with the indentation of the framework taken off."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "0", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=False,
    )
    return done.returncode, "".join(f"{line.strip()}\n" for line in done.stdout.splitlines())


def node_folder(folder: Path, helper: str) -> None:
    (folder / "node_modules").symlink_to(NODE_TOOLS / "node_modules")
    shutil.copy(EXAMPLES / "javascript" / helper, folder)


def vitest(folder: Path) -> list[str]:
    node_folder(folder, "emubus-vitest.mjs")
    (folder / "orders.test.mjs").write_text(f'import {{ expect, test }} from "vitest";\n{JAVASCRIPT}')
    settings = 'cacheDir: "cache", test: { setupFiles: ["./emubus-vitest.mjs"] }'
    (folder / "vitest.config.mjs").write_text(f"export default {{ {settings} }};\n")
    return ["node", "node_modules/vitest/vitest.mjs", "run", "--pool=threads", "--poolOptions.threads.singleThread"]


def jest(folder: Path) -> list[str]:
    node_folder(folder, "emubus-jest.mjs")
    (folder / "orders.test.js").write_text(JAVASCRIPT)
    settings = 'testEnvironment: "./emubus-jest.mjs", cacheDirectory: "cache", transform: {}'
    (folder / "jest.config.mjs").write_text(f"export default {{ {settings} }};\n")
    return ["node", "node_modules/jest/bin/jest.js", "--runInBand", "--watchman=false"]


def go(folder: Path) -> list[str]:
    shutil.copy(EXAMPLES / "go" / "emubus_report_test.go", folder)
    (folder / "go.mod").write_text("module orders\n\ngo 1.21\n")
    (folder / "orders_test.go").write_text(GO)
    return ["go", "test", "-count=1", "-vet=off", "."]


def java(folder: Path) -> list[str]:
    prepare(ALL_CLIENTS["java"])
    shutil.copy(EXAMPLES / "java" / "src" / "test" / "java" / "EmubusReport.java", folder)
    (folder / "OrdersTest.java").write_text(JAVA)
    (library,) = (DRIVERS / "java" / "target" / "junit").glob("junit-platform-console-standalone-*.jar")
    brief = [f"-J{each}" for each in BRIEF_JAVA]
    compiled = run(
        ["javac", *brief, "-Xlint:all", "-Werror", "-proc:none", "-cp", str(library), "-d", ".", *_sources(folder)],
        folder,
        {},
    )
    assert compiled == (0, "")
    options = ["--disable-banner", "--disable-ansi-colors", "--select-class=OrdersTest", "--details=tree"]
    main = "org.junit.platform.console.ConsoleLauncher"
    return ["java", *BRIEF_JAVA, "-cp", f"{library}{os.pathsep}.", main, "execute", *options]


def _sources(folder: Path) -> list[str]:
    return [each.name for each in folder.glob("*.java")]


@pytest.mark.sdk
@pytest.mark.parametrize(
    ("sdk", "command"),
    [("go", go), ("java", java)],
    ids=["go", "junit"],
)
def test_the_report_of_a_failing_test_has_what_emubus_knows(
    sdk: str, command: Callable[[Path], list[str]], server: EmubusServer, tmp_path: Path
) -> None:
    assert sdk
    check(command(tmp_path), tmp_path, server)


@pytest.mark.sdk
@pytest.mark.usefixtures("node_tools")
@pytest.mark.parametrize("command", [vitest, jest])
def test_the_report_of_a_failing_test_in_javascript_has_what_emubus_knows(
    command: Callable[[Path], list[str]], server: EmubusServer, tmp_path: Path
) -> None:
    check(command(tmp_path), tmp_path, server)


def check(command: list[str], folder: Path, server: EmubusServer) -> None:
    """One test of two passes; what is said of the other has nothing of before its begin."""
    code, output = run(command, folder, url_of(server))
    assert code == 1, output
    assert [each for each in SECTION if each not in output] == [], output
    assert "earlier.1" not in output.partition("Refused:")[2], output


@pytest.mark.sdk
@pytest.mark.parametrize("sdk", ["dotnet"])
def test_the_helpers_of_dotnet_write_what_emubus_knows_after_a_failure(
    sdk: str, server: EmubusServer, tmp_path: Path
) -> None:
    assert sdk
    command = program(str(Path(__file__).parent / "frameworks" / "frameworks.csproj"), tmp_path)
    variables = {**url_of(server), "SERVICEBUS_CONNECTION_STRING": server.connection_string}
    code, output = run(command, tmp_path, variables)
    assert code == 0, output
    _, *parts = output.split("unit: ")
    assert [part.splitlines()[0] for part in parts] == ["passed", "passed", "failed", "failed"]
    for passed in parts[:2]:
        assert "emubus" not in passed
    for failed in parts[2:]:
        assert "emubus\nRefused:\nquee.1: amqp:not-found: " in failed
        assert "did you mean 'queue.1'?" in failed
