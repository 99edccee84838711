"""What a reader of templates and plans hands on, and how messages name it."""

import pytest

from emubus.declared.resources import Declared, Kind, LeftOut, Origin, Resources, joined


def test_a_resource_is_named_by_its_kind_and_path() -> None:
    assert Declared(Kind.RULE, ("t", "s", "r"), {}).label == "rule t/Subscriptions/s/Rules/r"
    assert Declared(Kind.AUTHORIZATION_RULE, ("q", "send"), {}).label == "authorization rule q/send"
    assert Declared(Kind.NAMESPACE, (), {}).label == "namespace"


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin(), ""),
        (Origin("main.json"), "main.json"),
        (Origin("main.json", 12, "$.resources[3]"), "main.json:12 $.resources[3]"),
        (Origin(path="$.resources[3]"), "$.resources[3]"),
    ],
)
def test_an_origin_says_what_is_known(origin: Origin, text: str) -> None:
    assert str(origin) == text


def test_a_line_of_what_is_left_out_has_reason_remedy_and_place() -> None:
    found = LeftOut("queue q", "its name is not known", "give the parameter 'name'", Origin("a.json", 3))
    assert str(found) == "queue q: its name is not known; give the parameter 'name' (a.json:3)"
    assert str(LeftOut("queue q", "no reason")) == "queue q: no reason"


def test_resources_of_other_services_are_one_line_with_the_commonest_types_first() -> None:
    assert Resources().foreign_line() == ""
    assert Resources(foreign={"Microsoft.Web/sites": 1}).foreign_line() == (
        "1 resource of other services: Microsoft.Web/sites"
    )
    many = {"e/e": 1, "d/d": 1, "c/c": 1, "b/b": 1, "a/a": 7}
    assert Resources(foreign=many).foreign_line() == "11 resources of other services: a/a, b/b, c/c, d/d, …"


def test_readings_are_joined_in_their_order() -> None:
    one, two = Declared(Kind.QUEUE, ("a",), {}), Declared(Kind.QUEUE, ("b",), {})
    left = LeftOut("x", "y")
    found = joined([Resources((one,), (left,), {"a": 1}), Resources((two,), (), {"a": 2, "b": 1})])
    assert found == Resources((one, two), (left,), {"a": 3, "b": 1})
