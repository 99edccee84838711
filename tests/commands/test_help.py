"""Help, suggestions, exit codes, colours, completion, and the page that describes every command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from docs.generate.cli import PAGE, page
from emubus.commands.all_commands import click_command, parse
from emubus.commands.completion import completed
from emubus.commands.declaring import COMPLETING, Command, plain
from emubus.commands.parsing import help_text
from emubus.commands.table import COMMANDS

from ..programs import PROGRAM_S_MAX
from .conftest import CommandLine

SHORT_LINES = [
    *(["serve"], ["serve", "--amqp-port", "1", "--fresh", "--host=h", "--namespace", "a", "--namespace", "b@1"]),
    *(
        ["health", "--timeout", "2"],
        ["ls"],
        ["ls", "--json", "--url", "http://h"],
        ["reset", "--to", "empty", "--json"],
    ),
    *(["purge", "--all"], ["trace", "--on"], ["outage"], ["fault", "--operation", "send"]),
    *(
        ["connections", "--number", "3"],
        ["exercise", "--presets", "unsure,throttled", "--report", "r"],
        ["clock"],
        ["token"],
    ),
]
LINES_MAX = 24
COLUMNS_MAX = 80


def commands() -> list[Command]:
    """All commands and their actions."""
    found = [entry.command(name) for name, entry in COMMANDS.items()]
    return [each for command in found for each in dict.fromkeys((command, *command.commands()))]


@pytest.mark.parametrize("command", commands(), ids=lambda command: str(command.prog))
def test_help_fits_a_screen_and_has_a_text_for_every_argument(command: Command) -> None:
    lines = help_text(command).splitlines()
    assert lines[0].startswith(f"usage: {command.prog}")
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= COLUMNS_MAX


@pytest.mark.parametrize("words", ["", "send", "config", "config check"])
def test_help_is_a_command_too(offline: CommandLine, words: str) -> None:
    asked = words.split()
    assert offline.done("help", *asked) == offline.done(*asked, "--help")


def test_help_of_no_command_says_what_was_perhaps_meant(offline: CommandLine) -> None:
    ended = offline("help", "sned")
    assert (ended.code, ended.err) == (
        2,
        "emubus: error: there is no command 'sned'; did you mean send? (see emubus --help)\n",
    )


@pytest.mark.parametrize("command", commands(), ids=lambda command: str(command.prog))
def test_every_row_of_the_table_names_a_function_that_makes_a_command(command: Command) -> None:
    assert callable(command.run) != bool(command.actions)


def test_the_page_describes_the_commands_as_they_are() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate.cli"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serv"], "there is no command 'serv'"),
        (["serv"], "did you mean serve?"),
        (
            ["serve", "--amqp-prt", "1"],
            "there is no option --amqp-prt; did you mean --amqp-port? (see emubus serve --help)",
        ),
        (["serve", "--amqp", "1"], "there is no option --amqp"),
        (["config", "chek", "f"], "did you mean check?"),
        ([], "COMMAND is missing"),
        (["config"], "ACTION is missing: check, export, schema (see emubus config --help)"),
        (["config", "check"], "FILE is missing: the Config.json (see emubus config check --help)"),
        (["--verison"], "there is no option --verison; did you mean --version?"),
        (["conditions"], "there is no command 'conditions'; did you mean "),
        (["serve", "extra"], "'extra' is more than `emubus serve [OPTIONS]` takes"),
        (["send", "q", "--ttl"], "--ttl needs a value: SPAN"),
        (["serve", "--fresh=1"], "--fresh takes no value"),
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


@pytest.mark.parametrize("words", SHORT_LINES, ids=" ".join)
def test_a_line_that_is_read_without_click_means_the_same_as_with_it(words: list[str]) -> None:
    """Two readers of one declaration: the quick one leaves to Click what is not plain."""
    command = COMMANDS[words[0]].command(words[0])
    quick = plain(command, words[1:])
    assert quick is not None
    assert vars(quick) | {"run": None} == vars(parse(words)) | {"run": None}


@pytest.mark.parametrize(
    "words",
    [
        *(["serve", "extra"], ["serve", "--no-such"], ["serve", "--help"], ["serve", "--amqp-port"]),
        *(
            ["serve", "--fresh=1"],
            ["serve", "--host", "-x"],
            ["health", "--timeout", "x"],
            ["serve", "--host", "a"] * 2,
        ),
        *(["peek"], ["peek", "orders"], ["config"], ["purge", "orders"], ["reset", "--to", "strt"]),
    ],
    ids=" ".join,
)
def test_a_line_with_arguments_help_or_a_mistake_is_read_by_click(words: list[str]) -> None:
    assert plain(COMMANDS[words[0]].command(words[0]), words[1:]) is None


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_emubus(offline: CommandLine, shell: str) -> None:
    script = offline.done("completion", shell)
    assert f"{COMPLETING}={shell}_complete" in script
    assert offline.json("completion", shell) == {"shell": shell, "script": script}


def test_bash_completes_commands_options_actions_values_entities_and_files(
    emubus: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = emubus.done("completion", "bash")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Config.json").touch()
    program = shlex.join([str(Path(sys.executable).with_name("emubus"))])

    def completed(*lines: str) -> list[list[str]]:
        asks = []
        for line in lines:
            words = line.split(" ")
            asks.append(f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()")
            asks.append(f"_emubus_completion {program}; echo ${{COMPREPLY[@]}}")
        run = [bash, "--norc", "-c", "\n".join([script, *asks])]
        done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=PROGRAM_S_MAX)
        return [line.split() for line in done.stdout.splitlines()]

    assert completed("emubus res", "emubus serve --amqp", "emubus peek new") == [
        ["resubmit", "reset"],
        ["--amqp-port"],
        ["news", "news/all"],
    ]


ONE_ANSWER = {
    "emubus serve --amqp": "--amqp-port",
    "emubus serve --profile pr": "premium",
    "emubus clock fr": "freeze",
    "emubus config ch": "check",
    "emubus peek orde": "orders",
    "emubus peek news/a": "news/all",
    "emubus config check Conf": "Config.json",
    "emubus check fol": "folder",
}
"""What is typed before the key, and the word that is there after it."""


def by_zsh(zsh: str, script: Path) -> list[str]:
    """The last words of all lines, by a zsh that has a terminal: completion works nowhere else."""
    asks = [
        "zmodload zsh/zpty",
        f"zpty shell 'TERM=dumb {zsh} -f -i'",
        f"zpty -w shell 'PS1=; autoload -U compinit; compinit -D -u; source {script}; print rea\"\"dy'",
        "zpty -r -m shell seen '*ready*'",
    ]
    for line in ONE_ANSWER:
        asks.append(f"zpty -w -n shell $'{line}\\t\\x01print -r -- done: \\n'")  # Ctrl+A: to the beginning
        asks.append("zpty -r -m shell seen $'*\\ndone: *\\n*'; print -r -- $seen")
    said = subprocess.run(
        [zsh, "-f", "-c", "\n".join(asks)], capture_output=True, text=True, check=True, timeout=PROGRAM_S_MAX
    ).stdout
    return [line.split()[-1] for line in re.split(r"[\r\n]+", said) if line.startswith("done: ")]


def by_fish(fish: str, script: Path) -> list[str]:
    """The only word that fish offers for each line; it adds a description behind a tab."""
    asks = [f"source {script}", *(f"complete -C '{line}'; echo next" for line in ONE_ANSWER)]
    said = subprocess.run(
        [fish, "--no-config", "-c", "\n".join(asks)], capture_output=True, text=True, check=True, timeout=PROGRAM_S_MAX
    ).stdout
    return [each.strip().partition("\t")[0] for each in said.split("next\n")[:-1]]


def test_zsh_and_fish_complete_the_same_where_they_are_installed(
    emubus: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "Config.json").touch()
    (tmp_path / "folder").mkdir()
    for name, ask in (("zsh", by_zsh), ("fish", by_fish)):
        script = tmp_path / f"completion.{name}"
        script.write_text(emubus.done("completion", name))
        if (shell := shutil.which(name)) is not None:
            words = [each.rstrip("/") for each in ask(shell, script)]  # zsh takes the slash back at the next key
            assert dict(zip(ONE_ANSWER, words, strict=True)) == ONE_ANSWER, name


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("clock fr", ["freeze"]),
        ("serve --profile pr", ["premium"]),
        ("serve --profile=pr", ["premium"]),
        ("serve --conditions throttled,rolling", ["throttled,rolling-upgrade"]),
        ("serve --config ", ["file"]),
        ("serve --data ", ["dir"]),
        ("serve --failp", []),
        ("show par", ["parts"]),
        ("settle orders comp", ["complete"]),
        ("rules news/", ["news/all"]),
        ("send --url http://127.0.0.1:1 o", []),
        ("config ch", ["check"]),
        ("completion b", ["bash"]),
    ],
)
def test_values_entities_and_files_are_completed(emubus: CommandLine, line: str, offered: list[str]) -> None:
    *words, beginning = line.split(" ")
    shell = ShellComplete(click_command(completed), {}, "emubus", COMPLETING)
    found = shell.get_completions(words, beginning)
    assert [each.value if each.type == "plain" else each.type for each in found] == offered
