"""The draw of functions: all of the product, each once, and again the same from a seed."""

from __future__ import annotations

from draw import DRAWN, FOLDERS, drawn, functions


def test_functions_and_methods_of_every_folder_are_drawn_from_and_none_twice() -> None:
    found = functions()
    assert len({(each.file, each.line) for each in found}) == len(found)
    assert {each.file.split("/")[0] for each in found} == set(FOLDERS)
    by_name = {(each.file, each.name): each.source for each in found}
    assert by_name["broker/partition/locks.py", "Locks.remove"].startswith("def remove(")
    assert by_name["amqp/wire/link.py", "run_events"].startswith("def run_events(")


def test_a_seed_repeats_a_draw() -> None:
    first, again, other = drawn(1), drawn(1), drawn(2)
    assert len(first) == DRAWN
    assert first == again != other
