"""The graph of forwarding: where entities are placed, which lines are loops, and where messages end. No server."""

from __future__ import annotations

from emubus.broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.web.page.flow import NODES_MAX, Way, graph_of


def test_entities_stand_to_the_right_of_their_sources() -> None:
    graph = graph_of(
        [
            TopicDescription("t"),
            SubscriptionDescription("t", "s", forward_to="q", forward_dead_letters_to="dead"),
            QueueDescription("q", forward_to="last"),
            QueueDescription("last"),
            QueueDescription("dead"),
            QueueDescription("alone"),
        ]
    )
    places = {each.path: each.x for each in graph.nodes}
    assert places["t"] < places["t/Subscriptions/s"] < places["q"] < places["last"]
    assert "alone" not in places
    assert [(each.source, each.way) for each in graph.edges if each.target == "dead"] == [
        ("t/Subscriptions/s", Way.DEAD_LETTERS)
    ]
    assert {each.problem for each in graph.edges} | {each.problem for each in graph.nodes} == {""}
    assert graph.width > max(places.values())


def test_a_loop_is_marked_on_each_of_its_lines_and_on_no_other() -> None:
    graph = graph_of(
        [
            QueueDescription("a", forward_to="b"),
            QueueDescription("b", forward_to="C"),
            QueueDescription("c", forward_to="b"),
            QueueDescription("self", forward_dead_letters_to="self"),
        ]
    )
    assert {(each.source, each.target): each.problem for each in graph.edges} == {
        ("a", "b"): "",
        ("b", "c"): "loop",
        ("c", "b"): "loop",
        ("self", "self"): "loop",
    }
    assert all(graph.points(each).startswith("M") for each in graph.edges)


def test_dead_ends_are_marked() -> None:
    graph = graph_of(
        [
            QueueDescription("a", forward_to="gone"),
            TopicDescription("nobody"),
            QueueDescription("b", forward_to="closed"),
            QueueDescription("closed", status=EntityStatus.DISABLED),
        ]
    )
    assert {each.path: each.problem for each in graph.nodes if each.problem} == {
        "gone": "does not exist",
        "nobody": "has no subscription: messages are lost",
        "closed": "takes no messages: it is disabled",
    }
    assert [each.problem for each in graph.edges] == ["the target does not exist", ""]


def test_a_large_namespace_is_drawn_in_part() -> None:
    graph = graph_of([QueueDescription(f"q{number}", forward_to=f"q{number + 1}") for number in range(NODES_MAX + 50)])
    assert len(graph.nodes) == NODES_MAX
    assert graph.left_out == 51
