"""A data folder with a part that is missing, cut short, damaged, exchanged or older: refused, or served rightly.

Every folder is opened in a process of its own kind, so that a page that ends a process fails one test.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ..programs import PROGRAM_S_MAX
from ..rounds import rounds
from .folders.opening import rows_of
from .folders.small import MESSAGES, copy, groups, journals, run

PAGE_BYTES: Final = 4096
FILES: Final = ("emubus.json", "namespace/data.mdb", "store-00/data.mdb", "store-01/data.mdb")
RUN_S_MAX: Final = 300

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`older`: a folder; `closed` and `open`: the same one run later, stopped or killed.

    `other`: another one, `other open` as a kill would have left it.
    """
    base = tmp_path_factory.mktemp("made")
    run(base / "closed")
    shutil.copytree(base / "closed", base / "older")
    run(base / "closed", killed=base / "open")
    run(base / "other", killed=base / "other open")
    return base


def cut(name: str, length: int) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.truncate(length)

    return damage


def overwrite(name: str, at: int, content: bytes) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(at)
            file.write(content)

    return damage


def take_from(source: Path, name: str, target: str | None = None) -> Damage:
    def damage(folder: Path) -> None:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / (target or name))
        else:
            shutil.copyfile(source / name, folder / (target or name))

    return damage


def replace(name: str, content: bytes) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return damage


def as_of_the_making(folder: Path) -> None:
    """Let the manifest say what it said before the first message."""
    values = json.loads((folder / "emubus.json").read_text())
    (folder / "emubus.json").write_text(json.dumps({**values, "state": "making"}))


def swap(first: str, second: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / first).rename(folder / "x")
        (folder / second).rename(folder / first)
        (folder / "x").rename(folder / second)

    return damage


def remove(name: str) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def exchanges(made: Path) -> Iterator[tuple[str, Damage]]:
    """Whole files and folders: each must be refused."""
    for name in (*FILES, "namespace", "store-00", "store-01"):
        yield f"{name} missing", remove(name)
    for name in FILES:
        yield f"{name} empty", cut(name, 0)
        yield f"{name} of another folder", take_from(made / "other", name)
    for name in FILES[1:]:
        yield f"{name} older", take_from(made / "older", name)
    yield "stores swapped", swap("store-00", "store-01")
    yield "catalog and store swapped", swap("namespace", "store-01")
    yield "one store too many", take_from(made / "other", "store-00", "store-02")
    yield "manifest of the making", as_of_the_making
    yield "newer format", replace("emubus.json", b'{"format": 99, "release": "9.9"}')


def damages(made: Path, state: str) -> Iterator[tuple[str, Damage]]:
    """Every page of every store zeroed, overwritten or the first that is missing, and bytes of the manifest.

    Behind the pages in use a store has room for more: one page of it stands for all.
    """
    chance = random.Random(7)
    for name in FILES:
        content = (made / state / name).read_bytes()
        size_bytes = min(len(content), len(content.rstrip(b"\0")) + PAGE_BYTES)
        step = PAGE_BYTES if name.endswith(".mdb") else size_bytes // 7
        for number, at in enumerate(range(0, size_bytes, step)):
            length = min(step, size_bytes - at)
            yield f"{name} cut at {number}", cut(name, at + chance.randrange(step))
            yield f"{name} zeros in {number}", overwrite(name, at, bytes(length))
            yield f"{name} noise in {number}", overwrite(name, at, chance.randbytes(length))


def journal_damages(made: Path) -> Iterator[tuple[str, Damage]]:
    """A journal that is missing, cut, exchanged or changed before its last group: each must be refused."""
    chance = random.Random(8)
    (file,) = journals(made / "open")
    (other,) = journals(made / "other open")
    name, size_bytes = file.name, file.stat().st_size
    for length in (0, 1, PAGE_BYTES, PAGE_BYTES + 1, size_bytes // 2, size_bytes - 1, size_bytes + 1):
        yield f"cut to {length}", cut(name, length)
    yield "missing", remove(name)
    yield "of another folder", take_from(made / "other open", other.name, name)
    yield "junk", replace(name, chance.randbytes(PAGE_BYTES))
    yield "long junk", replace(name, b"emubus" * (size_bytes // 6))
    yield "zeros", replace(name, bytes(size_bytes))
    yield "head zeroed", overwrite(name, 0, bytes(PAGE_BYTES))
    yield "another id", overwrite(name, 20, b"x")
    yield "manifest names another one", overwrite_journal_id
    *earlier, (last, _) = groups(file)
    for begin, end in earlier:
        yield f"noise at {begin}", overwrite(name, begin, chance.randbytes(end - begin))
        yield f"a byte at {begin}", overwrite(name, chance.randrange(begin, end - 4), b"\x99\x98\x97\x96")
    yield "zeros before the last group", overwrite(name, earlier[0][0], bytes(last - earlier[0][0]))


def overwrite_journal_id(folder: Path) -> None:
    values = json.loads((folder / "emubus.json").read_text())
    (folder / "emubus.json").write_text(json.dumps({**values, "journal": "0123456789"}))


def outcomes(tmp_path: Path, intact: Path, cases: list[tuple[str, Damage]]) -> dict[str, dict[str, Any]]:
    """What the check and a start make of each damaged copy, by the name of the damage."""
    listed: list[str] = []
    for number, (_, damage) in enumerate(cases):
        copy(intact, tmp_path / str(number))
        damage(tmp_path / str(number))
        listed.append(str(tmp_path / str(number)))
    (tmp_path / "list").write_text("\n".join(listed))
    done = subprocess.run(
        [sys.executable, "-m", "tests.emubus.folders.opening", str(tmp_path / "list")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{cases[len(lines)][0]}: {done.stderr[-3000:]}"
    return {name: json.loads(line) for (name, _), line in zip(cases, lines, strict=True)}


def intact_rows(made: Path, state: str, tmp_path: Path) -> dict[str, str]:
    copy(made / state, tmp_path / "intact")
    return rows_of(tmp_path / "intact")


def is_a_refusal(found: dict[str, Any]) -> bool:
    """Whether a start refuses the folder with one line that names it and a remedy, and the check found it, too."""
    text = found.get("refused", "")
    return "data folder /" in text and "\n" not in text and "--data" in text and bool(found["problems"])


@pytest.mark.parametrize("state", ["closed", "open"])
def test_a_folder_whose_parts_are_missing_foreign_or_older_is_refused(made: Path, state: str, tmp_path: Path) -> None:
    found = outcomes(tmp_path, made / state, list(exchanges(made)))
    assert [name for name, each in found.items() if not is_a_refusal(each)] == []
    assert [name for name, each in found.items() if each["check_wrote"]] == []


@pytest.mark.parametrize("state", ["closed", "open"])
def test_a_folder_with_a_damaged_page_is_refused_or_served_rightly(made: Path, state: str, tmp_path: Path) -> None:
    expected = intact_rows(made, state, tmp_path)
    every = list(damages(made, state))
    found = outcomes(tmp_path, made / state, random.Random(3).sample(every, rounds(len(every) // 4, len(every))))
    wrong = {
        name: each
        for name, each in found.items()
        if not (is_a_refusal(each) or (each.get("rows") == expected and not each["problems"]))
    }
    assert wrong == {}
    assert [name for name, each in found.items() if each["check_wrote"]] == []
    assert sum(1 for each in found.values() if is_a_refusal(each)) > len(found) // 2


def test_a_killed_folder_whose_journal_is_missing_foreign_or_damaged_is_refused_by_its_name(
    made: Path, tmp_path: Path
) -> None:
    found = outcomes(tmp_path, made / "open", list(journal_damages(made)))
    named = {"manifest names another one": "journal-0123456789"}
    (file,) = journals(made / "open")
    assert [
        name
        for name, each in found.items()
        if not (is_a_refusal(each) and named.get(name, file.name) in each["refused"])
    ] == []
    assert [name for name, each in found.items() if each["check_wrote"]] == []
    assert f"{file.name} is missing" in found["missing"]["refused"]
    assert [each["problems"] for each in found.values() if len(each["problems"]) != 1] == []


def test_a_killed_folder_whose_last_group_is_torn_is_served_without_it(made: Path, tmp_path: Path) -> None:
    (file,) = journals(made / "open")
    *earlier, (begin, end) = groups(file)
    assert earlier != []
    places = [begin + (end - begin) * part // 4 for part in range(4)]
    cases = [(f"zeros from {at}", overwrite(file.name, at, bytes(end - at))) for at in places]
    found = outcomes(tmp_path, made / "open", cases)
    assert {name: each.get("refused") for name, each in found.items() if "rows" not in each or each["problems"]} == {}
    assert [name for name, each in found.items() if each["check_wrote"]] == []
    first, *others = [each["rows"] for each in found.values()]
    assert others == [first] * len(others)
    assert first != intact_rows(made, "open", tmp_path)


def test_an_older_manifest_is_refused_after_a_stop(made: Path, tmp_path: Path) -> None:
    (found,) = outcomes(tmp_path, made / "closed", [("older", take_from(made / "older", "emubus.json"))]).values()
    assert is_a_refusal(found)
    assert "was changed since the last stop, or the manifest is an older copy" in found["refused"]


def test_whole_copies_of_a_folder_open_with_all_messages(made: Path, tmp_path: Path) -> None:
    counts = {}
    for state in ("older", "closed", "open"):
        rows = intact_rows(made, state, tmp_path / state)
        counts[state] = sum(int(rows[f"store-0{index} messages"].split()[0]) for index in range(2))
    assert counts == {"older": MESSAGES, "closed": 2 * MESSAGES, "open": 2 * MESSAGES}


@pytest.mark.parametrize("part", ["store-01/data.mdb", "emubus.json", "journal-*"])
def test_the_program_refuses_a_damaged_folder_with_one_line_and_exit_code_2(
    made: Path, part: str, tmp_path: Path
) -> None:
    copy(made / "open", tmp_path / "data")
    (damaged,) = (tmp_path / "data").glob(part)
    name = str(damaged.relative_to(tmp_path / "data"))
    damaged.unlink()
    for command, code in (("serve --amqp-port 0 --http-port 0 --data", 2), ("check", 1)):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "emubus", *command.split(), str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S_MAX,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (code, False)
        shown = done.stderr if command.startswith("serve") else done.stdout
        assert [line for line in shown.splitlines() if f"{name} is missing" in line] != []
        assert len(done.stderr.splitlines()) == (1 if command.startswith("serve") else 0)
