"""`JsonObject`: fields come with the types that the reader asks for, and with no others."""

from __future__ import annotations

import pytest

from emubus.web.json_object import JsonObject

GIVEN = JsonObject({"text": "a", "count": 2, "share": 0.5, "none": None, "list": [1, 2], "in": {"k": "v"}, "all": [{}]})


def test_fields_have_their_types() -> None:
    assert (GIVEN.one("text", str), GIVEN.optional("count", int)) == ("a", 2)
    assert (GIVEN.number("count"), GIVEN.number("share")) == (2, 0.5)
    assert GIVEN.list_of("list", int) == [1, 2]
    assert GIVEN.object_of("in").one("k", str) == "v"
    assert [dict(each) for each in GIVEN.objects_of("all")] == [{}]


@pytest.mark.parametrize("name", ["none", "absent"])
def test_null_and_absent_fields_are_empty(name: str) -> None:
    assert GIVEN.optional(name, str) is None
    assert (GIVEN.list_of(name, int), GIVEN.objects_of(name), dict(GIVEN.object_of(name))) == ([], [], {})


def test_another_type_is_a_mistake_of_the_program() -> None:
    for ask in (
        lambda: GIVEN.one("none", str),
        lambda: GIVEN.optional("text", int),
        lambda: GIVEN.number("text"),
        lambda: GIVEN.list_of("list", str),
        lambda: GIVEN.object_of("list"),
    ):
        with pytest.raises(TypeError):
            ask()
    with pytest.raises(KeyError):
        GIVEN.one("absent", str)
