"""Help, suggestions, exit codes, colours, completion, and the page that describes every command."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from docs.generate.cli import PAGE, page
from emubus.__main__ import root_parser
from emubus.commands.parsing import Parser
from emubus.commands.table import COMMANDS

from ..programs import PROGRAM_S_MAX
from .conftest import CommandLine

LINES_MAX = 24
COLUMNS_MAX = 80


def parsers() -> list[Parser]:
    """The parsers of all commands and their actions."""
    root = root_parser([*COMMANDS])
    return [each for command in root.commands() for each in dict.fromkeys((command, *command.commands()))]


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: str(parser.prog))
def test_help_fits_a_screen_and_has_a_text_for_every_argument(parser: Parser) -> None:
    lines = parser.format_help().splitlines()
    assert lines[0].startswith(f"usage: {parser.prog}")
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= COLUMNS_MAX


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_of_the_table_names_a_function_that_makes_a_command(name: str) -> None:
    parser = Parser(prog=name)
    COMMANDS[name].add_arguments(parser)
    assert all(callable(each.get_default("run")) for each in parser.commands())


def test_the_page_describes_the_commands_as_they_are() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate.cli"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serv"], "'serv' is none of serve, health"),
        (["serv"], "did you mean serve?"),
        (["serve", "--amqp-prt", "1"], "unrecognized arguments: --amqp-prt 1; did you mean --amqp-port?"),
        (["serve", "--amqp", "1"], "unrecognized arguments: --amqp 1"),
        (["config", "chek", "f"], "did you mean check?"),
        ([], "required: COMMAND"),
    ],
)
def test_a_misspelt_word_is_refused_with_the_nearest_one(
    offline: CommandLine, arguments: list[str], expected: str
) -> None:
    ended = offline(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


def test_the_overview_lists_every_command(offline: CommandLine) -> None:
    shown = offline.done("--help")
    assert all(f"\n  {name} " in shown for name in COMMANDS)


def test_colours_are_for_terminals_unless_the_environment_says_otherwise(
    emubus: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in emubus.done("ls")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert emubus.done("ls").startswith("\x1b[1mPATH")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in emubus.done("ls")


def test_control_characters_of_messages_do_not_reach_the_terminal(emubus: CommandLine) -> None:
    emubus.done("send", "orders", "a\x1b[2Jb\x07")
    shown = emubus.done("peek", "orders")
    assert "\x1b" not in shown
    assert "\x07" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_commands_and_options(offline: CommandLine, shell: str) -> None:
    script = offline.done("completion", shell)
    assert "resubmit" in script
    assert "amqp-port" in script
    assert "dead-letter" in script


def test_bash_completes_commands_options_and_actions(offline: CommandLine) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = offline.done("completion", "bash")

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _emubus; echo ${{COMPREPLY[@]}}"
        run = [bash, "--norc", "-c", f"{script}\n{ask}"]
        return subprocess.run(run, capture_output=True, text=True, check=True, timeout=PROGRAM_S_MAX).stdout.split()

    assert completed("emubus", "res") == ["resubmit", "reset"]
    assert completed("emubus", "clock", "fr") == ["freeze"]
    assert completed("emubus", "serve", "--amqp") == ["--amqp-port"]
