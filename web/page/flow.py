"""The flow of messages as a graph: senders, entities with their forwarding, receivers; loops and dead ends are marked.

Knows the lines and their problems, and what stands in a box. Does not know who stands where (`layered`), how it is
drawn, and how rates are sampled. Pure but for `show`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from aiohttp import hdrs, web

from ...broker.admin import figures
from ...broker.api import Counted, Entity
from ...broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from ..json_object import JsonObject
from .flashes import Flash
from .forms import FormError, query_form, read_form
from .layered import placed
from .site import Site, address

NODES_MAX: Final = 200
NUMBER_MAX: Final = (1 << 63) - 1
COLUMN_PX: Final = 250
ROW_PX: Final = 58
BOX_WIDTH_PX: Final = 180
BOX_HEIGHT_PX: Final = 38
MARGIN_PX: Final = 12
BACK_PX: Final = 48
NAME_CHARS_MAX: Final = 24
CLIENT_NODES_MAX: Final = 40
CLIENTS: Final = ("sender", "receiver")
"""Kinds of boxes of clients; their paths are a kind, a blank and a name, as no entity's is."""
OWN: Final = "$"
"""Links to nodes that begin so are for tokens and administration: they are no flow of messages."""

Described = QueueDescription | TopicDescription | SubscriptionDescription


class Way(StrEnum):
    """Why messages go from one entity to another."""

    SUBSCRIPTION = "subscription"
    FORWARD = "forwards to"
    DEAD_LETTERS = "forwards dead letters to"
    SENDS = "sends to"
    RECEIVES = "is received by"


@dataclass(frozen=True, slots=True)
class Edge:
    """Messages go from one path to another; `problem` is "" for an edge without one."""

    source: str
    target: str
    way: Way
    problem: str = ""
    per_s: float = 0

    @property
    def width(self) -> int:
        """How broad the line is, from 0 to 4: each step is ten times the messages a second."""
        return sum(self.per_s >= least for least in (0.1, 10, 100, 1_000))


@dataclass(frozen=True, slots=True)
class Node:
    """An entity or a client at a place (pixels); `problem` says why messages end there, `facts` what goes on."""

    path: str
    kind: str
    x: int
    y: int
    problem: str = ""
    facts: str = ""

    @property
    def is_client(self) -> bool:
        """Whether it is no entity."""
        return self.kind in CLIENTS

    @property
    def name(self) -> str:
        """The path of an entity, the name of a client."""
        return self.path.partition(" ")[2] if self.is_client else self.path

    @property
    def label(self) -> str:
        name = self.name if self.is_client else self.path.rsplit("/", 1)[-1]
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
    connections = [JsonObject(each) for each in site.services.connections()]
    flows = client_flows(connections)
    graph = graph_of([each.description for each in site.broker.namespace.entities()], flows)
    graph = _with_figures(site, graph)
    return site.render(
        request,
        "flow.html",
        live_path=address("flow"),
        graph=graph,
        width_px=BOX_WIDTH_PX,
        height_px=BOX_HEIGHT_PX,
        problems=[each for each in graph.edges if each.problem],
        ends=[each for each in graph.nodes if each.problem],
        connections=[(dict(each), client_name(each), [dict(link) for link in links_of(each)]) for each in connections],
        held=site.services.ledger.survey(),
    )


async def moved(_: Site, request: web.Request) -> web.Response:
    """The way to this page from the two that it took the place of."""
    query_form(request)
    return web.Response(status=308, headers={hdrs.LOCATION: address("flow")})


async def drop(site: Site, request: web.Request) -> web.Response:
    """Cut a connection."""
    form = await read_form(request)
    number = form.number("number", "Connection", 1, NUMBER_MAX)
    if not site.services.faults.drop_connection(number):
        raise FormError(f"There is no connection {number}; it may have ended.", status=404)
    return site.redirect(address("flow"), Flash(f"Connection {number} was dropped; SDKs connect again."))


def client_name(connection: JsonObject) -> str:
    """What a client calls itself: its program, else the product and version of its SDK, else its container."""
    sdk = " ".join(filter(None, (connection.one("product", str), connection.one("version", str))))
    return connection.one("application", str) or sdk or connection.one("container", str)


def links_of(connection: JsonObject) -> list[JsonObject]:
    """The links that carry messages."""
    return [each for each in connection.objects_of("links") if not each.one("address", str).startswith(OWN)]


def client_flows(connections: Iterable[JsonObject]) -> list[tuple[str, str, str]]:
    """Who sends to which entity and who receives from it: (kind of client, its name, path), each once."""
    found: dict[tuple[str, str, str], None] = {}
    for each in connections:
        for link in links_of(each):
            path = link.one("address", str).partition("/$")[0]
            found[link.one("role", str), client_name(each)[: 2 * NAME_CHARS_MAX], path] = None
    return list(found)


def _with_figures(site: Site, graph: Graph) -> Graph:
    """The graph with what goes on: rates, copies of a topic's messages, refusals, outages."""
    entities = {each.path: each for each in site.broker.namespace.entities()}
    counts = dict(figures.message_counts(site.broker.namespace))
    refused = site.broker.refusals.counts
    nodes = [replace(each, facts=_facts(each, entities.get(each.path), counts, refused)) for each in graph.nodes]
    edges: list[Edge] = []
    for each in graph.edges:
        rates = site.services.sampler.rates(each.target if each.way is Way.SENDS else each.source)
        per_s = rates.in_per_s if each.way in (Way.SENDS, Way.SUBSCRIPTION) else rates.out_per_s
        edges.append(replace(each, per_s=per_s or 0))
    return replace(graph, nodes=nodes, edges=edges)


def _facts(
    node: Node, entity: Entity | None, counts: Mapping[str, Counter[tuple[Counted, str]]], refused: Mapping[str, int]
) -> str:
    """What goes on in an entity, in a few words."""
    if entity is None:
        return node.kind
    facts: list[str] = []
    if isinstance(entity.description, SubscriptionDescription):
        came = _total(counts, entity.description.topic_name, (Counted.SENT, Counted.FORWARDED))
        facts.append(f"took {_total(counts, entity.path, (Counted.COPIED,)):,} of {came:,}")
    else:
        facts.append(node.kind)
    if refused.get(entity.path):
        facts.append(f"{refused[entity.path]:,} refused")
    if entity.is_limited:
        facts.append("partition out")
    return ", ".join(facts)


def _total(counts: Mapping[str, Counter[tuple[Counted, str]]], path: str, what: Sequence[Counted]) -> int:
    return sum(counts[path][each, ""] for each in what) if path in counts else 0


def graph_of(descriptions: Iterable[Described], flows: Sequence[tuple[str, str, str]] = ()) -> Graph:
    """The graph of the entities that take part in forwarding, of topics with their subscriptions, and of clients with
    the entities that they use: `flows` are (kind of client, its name, path)."""
    known = {entity_key(_path(each)): each for each in descriptions}
    edges = [*_client_edges(known, flows), *_edges(known)]
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
    has_senders = any(each.way is Way.SENDS for each in edges)
    entities = [path for path in paths if path in kept and path.partition(" ")[0] not in CLIENTS]
    at = placed(
        [path for path in paths if path in kept],
        [(each.source, each.target) for each in edges if each.problem != "loop"],
        dict.fromkeys(entities, 1 if has_senders else 0),
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


def _client_edges(known: Mapping[str, Described], flows: Sequence[tuple[str, str, str]]) -> list[Edge]:
    names = list(dict.fromkeys((kind, name) for kind, name, _ in flows))[:CLIENT_NODES_MAX]
    found: list[Edge] = []
    for kind, name, path in flows:
        there = known.get(entity_key(path))
        if there is not None and (kind, name) in names:
            node = f"{kind} {name}"
            is_sender = kind == CLIENTS[0]
            ends = (node, _path(there)) if is_sender else (_path(there), node)
            found.append(Edge(*ends, Way.SENDS if is_sender else Way.RECEIVES))
    return found


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
        client = path.partition(" ")[0]
        is_client = client in CLIENTS and " " in path
        kind = client if is_client else "missing" if description is None else description.kind.value
        x, y = MARGIN_PX + column * COLUMN_PX, MARGIN_PX + row * ROW_PX
        nodes.append(Node(path, kind, x, y, "" if is_client else _dead_end_reason(path, description, left)))
    return nodes


def _dead_end_reason(path: str, description: Described | None, left: set[str]) -> str:
    """Why messages that reach an entity go no further, "" if a receiver may get them."""
    if description is None:
        return "does not exist"
    if isinstance(description, TopicDescription) and path not in left:
        return "has no subscription: messages are lost"
    if description.status in (EntityStatus.DISABLED, EntityStatus.SEND_DISABLED):
        return "takes no messages: it is disabled"
    return ""
