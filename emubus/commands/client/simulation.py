"""`emubus clock`, `outage`, `fault`: the clock, outages of messaging stores and injected faults."""

from __future__ import annotations

from urllib.parse import quote

from ...exits import EXIT_OK
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, count_of, instant, pairs, show, span_ms, table


def _add_common(parser: Command) -> None:
    add_json(parser)
    add_server_options(parser)


# ---------------------------------------------------------------- clock


def add_clock(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["show", "advance", "freeze", "thaw"],
        default="show",
        metavar="ACTION",
        help="show (default), advance, freeze or thaw",
    )
    parser.argument("by", nargs="?", convert=span_ms, metavar="SPAN", help="with advance: how far, such as 30s, 5m, 2d")
    _add_common(parser)
    parser.run = _clock


def _clock(parsed: Parsed) -> int:
    if (parsed.action == "advance") != (parsed.by is not None):
        raise ConfigError("`emubus clock advance` needs a SPAN such as 5m; the other actions have none")
    with connect(parsed) as api:
        if parsed.action == "show":
            answer = api.get("/clock")
        else:
            answer = api.post(f"/clock/{parsed.action}", {"ms": parsed.by} if parsed.by is not None else None)
    ahead = f"{answer['offset_ms']} ms ahead of the machine's clock"
    lines = pairs([("Time", instant(answer.number("now_ms"))), ("Offset", ahead), ("Frozen", answer["is_frozen"])])
    show(parsed, answer, lines)
    return EXIT_OK


# ---------------------------------------------------------------- outage


def add_outage(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["show", "down", "slow", "failing", "full", "end"],
        default="show",
        metavar="ACTION",
        help="show (default); down, slow, failing or full: begin an outage; end: end all, or those of STORE",
    )
    parser.argument("store", nargs="*", convert=int, metavar="STORE", help="numbers of messaging stores, from 0")
    parser.option(
        "--for", name="duration", convert=span_ms, metavar="SPAN", help="how long; default: until it is ended"
    )
    parser.option("--delay", convert=span_ms, default=1000, metavar="SPAN", help="slow: added to each commit (1s)")
    _add_common(parser)
    parser.run = _outage


def _outage(parsed: Parsed) -> int:
    begins = parsed.action not in ("show", "end")
    if begins and not parsed.store:
        raise ConfigError(f"`emubus outage {parsed.action}` needs the numbers of the stores")
    with connect(parsed) as api:
        if begins:
            asked = {"stores": parsed.store, "kind": parsed.action, "delay_ms": parsed.delay}
            api.post("/outages", {**asked, "duration_ms": parsed.duration})
        elif parsed.action == "end":
            for path in [f"/stores/{each}/outage" for each in parsed.store] or ["/outages"]:
                api.call("DELETE", path)
        answer = api.get("/stores")
    rows = [
        [each["store"], each["health"], each["delay_ms"], each["commit_count"], each["failed_commit_count"]]
        for each in answer.parts("stores")
    ]
    show(parsed, answer, table(["STORE", "HEALTH", "DELAY MS", "COMMITS", "FAILED"], rows))
    return EXIT_OK


# ---------------------------------------------------------------- fault


def add_fault(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["show", "add", "clear"],
        default="show",
        metavar="ACTION",
        help="show (default), add or clear",
    )
    parser.argument("what", nargs="?", metavar="KIND|ID", help="add: the kind, such as server-busy; clear: one fault")
    parser.option("--entity", metavar="ENTITY", help="only operations on this entity")
    parser.option("--operation", repeats=True, metavar="NAME", help="such as send; may be repeated")
    parser.option("--count", convert=count_of, metavar="N", help="how often; default: until it is cleared")
    parser.option("--probability", convert=float, default=1.0, metavar="P", help="each time, from 0 to 1 (1)")
    parser.option("--delay", convert=span_ms, default=1000, metavar="SPAN", help="of confirmations (1s)")
    _add_common(parser)
    parser.run = _fault


def _fault(parsed: Parsed) -> int:
    with connect(parsed) as api:
        if parsed.action == "add":
            if parsed.what is None:
                raise ConfigError("`emubus fault add` needs the KIND of fault, such as server-busy")
            answer = api.post("/faults", _asked(parsed))
            show(parsed, answer, [f"added fault {answer['id']}: {answer['kind']}"])
        elif parsed.action == "clear":
            path = "/faults" if parsed.what is None else f"/faults/{quote(parsed.what, safe='')}"
            answer = api.call("DELETE", path)
            show(parsed, answer, [f"cleared {answer['cleared_count']} faults"])
        else:
            answer = api.get("/faults")
            rows = [
                [
                    each["id"],
                    each["kind"],
                    each["entity"],
                    ", ".join(each.texts("operations")),
                    each["count"],
                    each["hit_count"],
                ]
                for each in answer.parts("faults")
            ]
            show(parsed, answer, table(["ID", "KIND", "ENTITY", "OPERATIONS", "LEFT", "HITS"], rows))
    return EXIT_OK


def _asked(parsed: Parsed) -> dict[str, object]:
    return {
        "kind": parsed.what,
        "entity": parsed.entity,
        "operations": parsed.operation,
        "count": parsed.count,
        "probability": parsed.probability,
        "delay_ms": parsed.delay,
    }
