"""The places of a graph's nodes: random graphs, none of whose lines runs through a box. No server."""

from __future__ import annotations

import random
import re

import pytest

from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.web.page.flow import BOX_HEIGHT_PX, graph_of
from emubus.web.page.layered import placed


def lines_of(seed: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Nodes and lines without a loop: a line leads to a later node."""
    draw = random.Random(seed)
    nodes = [f"n{number}" for number in range(draw.randrange(2, 30))]
    lines = [sorted(draw.sample(range(len(nodes)), 2)) for _ in range(draw.randrange(1, 60))]
    return nodes, [(nodes[a], nodes[b]) for a, b in lines]


@pytest.mark.parametrize("seed", range(60))
def test_every_node_and_every_passing_line_has_a_place_of_its_own(seed: int) -> None:
    nodes, lines = lines_of(seed)
    at = placed(nodes, lines)
    places = [*at.nodes.values(), *(place for lane in at.lanes.values() for place in lane)]
    assert len(places) == len(set(places))
    for (source, target), lane in at.lanes.items():
        first, last = at.nodes[source][0], at.nodes[target][0]
        assert first < last, "a line leads to the right"
        assert [column for column, _ in lane] == list(range(first + 1, last))
    sources = {target: [source for source, other in lines if other == target] for target in nodes}
    for node, (column, _) in at.nodes.items():
        assert column == max((at.nodes[each][0] + 1 for each in sources[node]), default=0)


def test_lines_are_drawn_past_the_boxes_between() -> None:
    graph = graph_of(
        [
            QueueDescription("a", forward_to="z"),
            QueueDescription("z"),
            TopicDescription("t"),
            *(SubscriptionDescription("t", f"s{n}", forward_to="z" if n == 1 else None) for n in range(4)),
        ]
    )
    (edge,) = (each for each in graph.edges if each.source == "a")
    (passing,) = re.findall(r"L\d+ (\d+)", graph.points(edge))
    column = next(each.x for each in graph.nodes if each.path == "t/Subscriptions/s1")
    boxes = [each.y for each in graph.nodes if each.x == column]
    assert len(boxes) == 4
    assert not [y for y in boxes if y <= int(passing) <= y + BOX_HEIGHT_PX]


def test_few_lines_cross() -> None:
    at = placed(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    assert at.nodes["y"][1] < at.nodes["x"][1]
