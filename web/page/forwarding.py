"""Forwarding as a graph: entities in columns, from the source to the last target; loops and dead ends are marked.

Knows the lines and their problems. Does not know who stands where (`layered`) and how it is drawn. Pure but for `show`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from aiohttp import web

from ...broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from .forms import query_form
from .layered import placed
from .site import Site

NODES_MAX: Final = 200
COLUMN_PX: Final = 250
ROW_PX: Final = 58
BOX_WIDTH_PX: Final = 180
BOX_HEIGHT_PX: Final = 38
MARGIN_PX: Final = 12
BACK_PX: Final = 48
NAME_CHARS_MAX: Final = 24

Described = QueueDescription | TopicDescription | SubscriptionDescription


class Way(StrEnum):
    """Why messages go from one entity to another."""

    SUBSCRIPTION = "subscription"
    FORWARD = "forwards to"
    DEAD_LETTERS = "forwards dead letters to"


@dataclass(frozen=True, slots=True)
class Edge:
    """Messages go from one path to another; `problem` is "" for an edge without one."""

    source: str
    target: str
    way: Way
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An entity at a place (pixels); `problem` says why messages end there."""

    path: str
    kind: str
    x: int
    y: int
    problem: str = ""

    @property
    def label(self) -> str:
        name = self.path.rsplit("/", 1)[-1]
        return name if len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 1]}…"


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and edges, with the size of the picture; `left_out` nodes did not fit."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    width: int
    height: int
    left_out: int = 0
    lanes: Mapping[tuple[str, str], Sequence[tuple[int, int]]] = field(
        default_factory=dict[tuple[str, str], Sequence[tuple[int, int]]]
    )
    """Where a line over several columns passes each of them: column and row."""

    def node(self, path: str) -> Node:
        return next(each for each in self.nodes if each.path == path)

    def points(self, edge: Edge) -> str:
        """The line of an edge as an SVG path."""
        source, target = self.node(edge.source), self.node(edge.target)
        y1, y2 = source.y + BOX_HEIGHT_PX // 2, target.y + BOX_HEIGHT_PX // 2
        if target.x > source.x:
            path, x, y = f"M{source.x + BOX_WIDTH_PX} {y1}", source.x + BOX_WIDTH_PX, y1
            for column, row in self.lanes.get((edge.source, edge.target), ()):
                left, level = MARGIN_PX + column * COLUMN_PX, MARGIN_PX + row * ROW_PX + BOX_HEIGHT_PX // 2
                path += f"{_curve(x, y, left, level)}L{left + BOX_WIDTH_PX} {level}"
                x, y = left + BOX_WIDTH_PX, level
            return f"{path}{_curve(x, y, target.x - 4, y2)}"
        x1, x2 = source.x + BOX_WIDTH_PX, target.x + BOX_WIDTH_PX  # back: around the right ends of the boxes
        outside = max(x1, x2) + BACK_PX
        return f"M{x1} {y1 - 7}C{outside} {y1 - 7} {outside} {y2 + 7} {x2 + 4} {y2 + 7}"


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    """A curve that leaves and arrives level."""
    middle = (x1 + x2) // 2
    return f"C{middle} {y1} {middle} {y2} {x2} {y2}"


async def show(site: Site, request: web.Request) -> web.Response:
    query_form(request)
    graph = graph_of([each.description for each in site.broker.namespace.entities()])
    return site.render(
        request,
        "forwarding.html",
        graph=graph,
        width_px=BOX_WIDTH_PX,
        height_px=BOX_HEIGHT_PX,
        problems=[each for each in graph.edges if each.problem],
        ends=[each for each in graph.nodes if each.problem],
    )


def graph_of(descriptions: Iterable[Described]) -> Graph:
    """The graph of the entities that take part in forwarding, and of topics with their subscriptions."""
    known = {entity_key(_path(each)): each for each in descriptions}
    edges = _edges(known)
    paths = list(dict.fromkeys(path for each in edges for path in (each.source, each.target)))
    paths += [_path(each) for each in known.values() if isinstance(each, TopicDescription) and _path(each) not in paths]
    left_out = max(0, len(paths) - NODES_MAX)
    kept = set(paths[:NODES_MAX])
    edges = [each for each in edges if each.source in kept and each.target in kept]
    looping = _looping(edges)
    edges = [
        Edge(
            each.source,
            each.target,
            each.way,
            each.problem or ("loop" if (each.source, each.target) in looping else ""),
        )
        for each in edges
    ]
    at = placed(
        [path for path in paths if path in kept],
        [(each.source, each.target) for each in edges if each.problem != "loop"],
    )
    nodes = _boxes(at.nodes, known, edges)
    rows = [row for _, row in at.nodes.values()] + [row for lane in at.lanes.values() for _, row in lane]
    width = max((each.x for each in nodes), default=0) + BOX_WIDTH_PX + BACK_PX
    height = max(rows, default=0) * ROW_PX + BOX_HEIGHT_PX + 3 * MARGIN_PX
    return Graph(nodes, edges, width, height, left_out, at.lanes)


def _path(description: Described) -> str:
    if isinstance(description, SubscriptionDescription):
        return f"{description.topic_name}/Subscriptions/{description.name}"
    return description.name


def _edges(known: Mapping[str, Described]) -> list[Edge]:
    found: list[Edge] = []
    for each in known.values():
        path = _path(each)
        if isinstance(each, SubscriptionDescription):
            found.append(Edge(each.topic_name, path, Way.SUBSCRIPTION))
        if isinstance(each, TopicDescription):
            continue
        for way, target in ((Way.FORWARD, each.forward_to), (Way.DEAD_LETTERS, each.forward_dead_letters_to)):
            if target is not None:
                there = known.get(entity_key(target))
                problem = "" if there is not None else "the target does not exist"
                found.append(Edge(path, target if there is None else _path(there), way, problem))
    return found


def _looping(edges: Sequence[Edge]) -> set[tuple[str, str]]:
    """The edges whose target leads back to their source."""
    targets: dict[str, set[str]] = {}
    for each in edges:
        targets.setdefault(each.source, set()).add(each.target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in targets.get(waiting.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return seen

    from_there = {each: reached(each) for each in targets}
    return {
        (each.source, each.target)
        for each in edges
        if each.source == each.target or each.source in from_there.get(each.target, ())
    }


def _boxes(places: Mapping[str, tuple[int, int]], known: Mapping[str, Described], edges: Sequence[Edge]) -> list[Node]:
    left = {each.source for each in edges}
    nodes: list[Node] = []
    for path, (column, row) in places.items():
        description = known.get(entity_key(path))
        kind = "missing" if description is None else description.kind.value
        x, y = MARGIN_PX + column * COLUMN_PX, MARGIN_PX + row * ROW_PX
        nodes.append(Node(path, kind, x, y, _end(path, description, left)))
    return nodes


def _end(path: str, description: Described | None, left: set[str]) -> str:
    """Why messages that reach an entity go no further, "" if a receiver may get them."""
    if description is None:
        return "does not exist"
    if isinstance(description, TopicDescription) and path not in left:
        return "has no subscription: messages are lost"
    if description.status in (EntityStatus.DISABLED, EntityStatus.SEND_DISABLED):
        return "takes no messages: it is disabled"
    return ""
