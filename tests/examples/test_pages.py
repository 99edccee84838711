"""The pages for users: each block of code in them is a file that is run, is run from the page, or says that it is not.

A block stands behind a comment that names the file of examples/ which it repeats, or the test that runs or checks it,
or the reason why it is not run. The pages of `ELSEWHERE` are run as a whole by other tests.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from emubus.__main__ import parse
from emubus.commands.table import COMMANDS
from emubus.testing import EmubusServer

from ..building import ROOT
from ..programs import PROGRAM_S_MAX

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "clients").glob("*.md")))
ELSEWHERE = {
    "CONDITIONS.md": "tests/conditions/test_page.py",
    "TESTING.md": "tests/kit/test_docs.py",
    "SPARK.md": "tests/spark/test_docs.py",
    "SPARK_BEHAVIOUR.md": "tests/spark/test_docs.py",
    "SPARK_OPTIONS.md": "tests/spark/test_docs.py",
}
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
IN_TESTS = "from emubus.testing import QueueDescription"  # the block of the README that tests/kit/test_docs.py runs
MARK = re.compile(r"examples/(?P<file>\S+)|(?:run|checked) by (?P<test>tests/\S+::\w+)|not run here: (?P<reason>.+)")
CONNECTION = re.compile(r"Endpoint=sb://localhost[:\d]*;SharedAccessKeyName=RootManageSharedAccessKey;.*")


def blocks(page: Path) -> Iterator[tuple[str | None, str, str]]:
    """Mark, language and code of each block of a page."""
    for found in BLOCK.finditer(page.read_text()):
        yield found["mark"], found["kind"], found["code"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_code_is_run_or_says_why_not(page: Path) -> None:
    if page.name in ELSEWHERE:
        assert page.name in (ROOT / ELSEWHERE[page.name]).read_text()
        return
    for mark, kind, code in blocks(page):
        if IN_TESTS in code:
            continue
        found = MARK.fullmatch(mark or "")
        assert found is not None, f"{page.name}: {kind} block without a mark:\n{code}"
        if found["file"]:
            assert code == (ROOT / "examples" / found["file"]).read_text(), found["file"]
        if found["test"]:
            file, _, name = found["test"].partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(), mark


# ---------------------------------------------------------------- requests


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer(config_file=ROOT / "docker" / "Config.json") as running:
        yield running


def shell(code: str, server: EmubusServer) -> str:
    """What the requests of a block are answered with; each has to succeed."""
    script = code.replace("http://localhost:5300", f"http://127.0.0.1:{server.http_port}")
    script = script.replace("curl ", "curl --noproxy '*' --max-time 20 ")
    done = subprocess.run(
        ["bash", "-e", "-c", script], capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False
    )
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout


def test_the_requests_of_the_tour_do_what_is_said(server: EmubusServer) -> None:
    server.reset()
    codes = [code for mark, _, code in blocks(ROOT / "docs" / "TOUR.md") if mark and "requests_of_the_tour" in mark]
    first, keyed, outage, clock = codes
    sent = shell(first, server)
    assert sent.endswith("hello")
    assert '"message_id"' in sent
    answers = shell(keyed, server)
    routed, end = json.JSONDecoder().raw_decode(answers)
    partitions = json.loads(answers[end:])
    counts = {each["partition_id"]: each["messages"]["active"] for each in partitions["partitions"]}
    assert {number: count for number, count in counts.items() if count} == {routed["partition_id"]: 3}
    shell(outage, server)
    assert server.message_counts("queue.partitioned")["active"] == 4
    shell(clock, server)
    assert server.message_counts("queue.partitioned")["active"] == 0


def test_the_requests_of_the_pages_are_answered(server: EmubusServer) -> None:
    server.reset()
    asked = [code for page in PAGES for mark, _, code in blocks(page) if mark and "requests_of_the_pages" in mark]
    assert asked
    for code in asked:
        assert shell(code, server).endswith("hello")


# ---------------------------------------------------------------- commands


def commands() -> Iterator[tuple[str, list[str]]]:
    """The page and words of each command `make` and `emubus` in blocks and in the text of the pages."""
    for page in PAGES:
        text = page.read_text()
        code = "\n".join(each for _, _, each in blocks(page)) + "".join(re.findall(r"^ {4}\S.*\n", text, re.MULTILINE))
        for line in re.findall(r"^ *((?:make|(?:\.venv/bin/)?emubus) [a-z-].*)$", code, re.MULTILINE):
            yield page.name, shlex.split(line, comments=True)
        for code in re.findall(r"`((?:make|emubus) [a-z-]+(?: [^`]*)?)`", text):
            yield page.name, shlex.split(code)


def is_known(words: list[str]) -> bool:
    """Whether a make target exists, or the command line of emubus understands the words."""
    if words[0] == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return words[1] in targets
    arguments = [re.sub(r"^(DIR|FILE)$", "x", word) for word in words[1:] if word not in ("…", "...")]
    if arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        return False
    if len(arguments) == 1:
        return True  # a name alone speaks of the command
    try:
        parse(arguments)
    except SystemExit as ended:
        return ended.code == 0
    return True


def test_every_make_target_and_every_emubus_command_of_the_pages_exists(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(commands())
    assert len(found) > 10
    assert [(page, words) for page, words in found if not is_known(words)] == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["make", "nothing"], ["emubus", "srve"], ["emubus", "serve", "--no-such-option"]])
def test_a_command_that_does_not_exist_is_found(words: list[str]) -> None:
    assert not is_known(words)


def test_every_connection_string_of_the_pages_is_the_usual_one() -> None:
    lines = [
        line.strip() for page in PAGES for line in page.read_text().splitlines() if line.startswith("    Endpoint=")
    ]
    assert lines
    assert [line for line in lines if not CONNECTION.fullmatch(line)] == []


# ---------------------------------------------------------------- troubleshooting, comparison


def test_the_error_texts_of_python_are_those_of_the_page(server: EmubusServer) -> None:
    page = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text()
    string = server.connection_string.replace("127.0.0.1", "localhost")
    for given, text in (
        (string, "Error condition: amqp:client-error"),
        (
            string.replace(f":{server.amqp_port}", ":1"),
            "[Errno 111] Connection refused Error condition: amqp:socket-error",
        ),
    ):
        with (
            ServiceBusClient.from_connection_string(given, retry_total=0) as client,
            pytest.raises(ServiceBusError) as raised,
            client.get_queue_sender("queue1") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))
        assert text in page
        assert text in str(raised.value).replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("can't listen on", "emubus/listener.py"),
        ("is in use by another emubus", "storage/folder.py"),
        ("and emubus runs as user", "storage/folder.py"),
        ("can't be changed", "broker/model/catalog.py"),
        ("emubus can't be installed; missing: ", "tests/can_build.py"),
        ("the broker does not run on Windows", "emubus/__init__.py"),
        ("The token has an invalid signature", "broker/access.py"),
        ("The lock supplied is invalid", "broker/service_errors.py"),
        ("amqp:link:message-size-exceeded", "broker/errors.py"),
        ("com.microsoft:session-cannot-be-locked", "broker/errors.py"),
        (
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver",
            "broker/service_errors.py",
        ),
    ],
)
def test_the_texts_of_emubus_are_those_of_the_page(text: str, file: str) -> None:
    assert text in (ROOT / "docs" / "TROUBLESHOOTING.md").read_text()
    source = (ROOT / file).read_text()
    assert text in source or all(part in source for part in re.split(r" (?=another)", text))


def test_every_cell_of_the_comparison_has_its_source() -> None:
    text = (ROOT / "docs" / "COMPARISON.md").read_text()
    numbers = set(re.findall(r"^(\d)\. .*<https://\S+>$", text, re.MULTILINE))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "**" not in line]
    assert len(rows) > 20
    for feature, ours, *theirs in rows[1:]:
        assert re.search(r"\]\([\w./#-]+\)$|`tests/[\w/.]+`$", ours), (feature, ours)
        assert len(theirs) == 3
        assert [cell for cell in theirs if (re.findall(r"\[(\d)\]$", cell) or ["none"])[0] not in numbers] == []
        for path in re.findall(r"`(tests/[\w/.]+)`", ours):
            assert (ROOT / path).exists()
