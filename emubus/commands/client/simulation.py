"""`emubus clock`, `outage`, `fault`, `condition`: the clock, outages of messaging stores, injected faults, bad days."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from ...conditions.faults import DELAYING, FaultKind
from ...config_file.cursor import suggestion
from ...exits import EXIT_OK
from ...kit.answers import Answer, AnswerError
from ...options import ConfigError
from ...terminal import one_line
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, count_of, instant, pairs, show, span_ms, table

SHOWING: Final = ("list", "show")
ABOUT_CHARS: Final = 80
DELAY_MS: Final = 1_000
OUTAGES: Final = ("down", "slow", "failing", "full")


def _add_common(parser: Command) -> None:
    add_json(parser)
    add_server_options(parser)


# ---------------------------------------------------------------- clock


def add_clock(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["list", "show", "advance", "freeze", "thaw"],
        default="show",
        metavar="ACTION",
        help="show or list (default), advance, freeze or thaw",
    )
    parser.argument("by", nargs="?", convert=span_ms, metavar="SPAN", help="with advance: how far, such as 30s, 5m, 2d")
    _add_common(parser)
    parser.run = _clock


def _clock(parsed: Parsed) -> int:
    if (parsed.action == "advance") != (parsed.by is not None):
        raise ConfigError("`emubus clock advance` needs a SPAN such as 5m; the other actions have none")
    with connect(parsed) as api:
        if parsed.action in SHOWING:
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
        known=[*SHOWING, "begin", *OUTAGES, "end"],
        default="list",
        metavar="ACTION",
        help="list (default); begin KIND: down, slow, failing or full; end: all outages, or those of STORE",
    )
    parser.argument(
        "what",
        nargs="*",
        metavar="KIND|STORE",
        help="kind (begin), numbers of stores; KIND is an ACTION, too",
        completes=lambda: OUTAGES,
    )
    parser.option(
        "--for", name="duration", convert=span_ms, metavar="SPAN", help="how long; default: until it is ended"
    )
    parser.option("--delay", convert=span_ms, metavar="SPAN", help="slow: added to each commit (1s)")
    _add_common(parser)
    parser.run = _outage


def _outage(parsed: Parsed) -> int:
    kind, stores = _kind_and_stores(parsed.action, parsed.what)
    _only_with(parsed, "begin", is_begun=kind is not None, names=("duration", "delay"))
    if parsed.delay is not None and kind != "slow":
        raise ConfigError(f"--delay is for an outage that is slow, not for {kind}")
    with connect(parsed) as api:
        known = [each.number("store") for each in api.get("/stores").parts("stores")]
        if not known:
            raise AnswerError("it has no stores")
        unknown = [each for each in stores if each not in known]
        if unknown:
            raise ConfigError(f"STORE is {unknown[0]}; this server has the stores {min(known)} to {max(known)}")
        if kind is not None:
            asked = {"stores": stores, "kind": kind, "delay_ms": DELAY_MS if parsed.delay is None else parsed.delay}
            api.post("/outages", {**asked, "duration_ms": parsed.duration})
        elif parsed.action == "end":
            for path in [f"/stores/{each}/outage" for each in stores] or ["/outages"]:
                api.call("DELETE", path)
        answer = api.get("/stores")
    rows = [
        [each["store"], each["health"], each["delay_ms"], each["commit_count"], each["failed_commit_count"]]
        for each in answer.parts("stores")
    ]
    show(parsed, answer, table(["STORE", "HEALTH", "DELAY MS", "COMMITS", "FAILED"], rows))
    return EXIT_OK


def _kind_and_stores(action: str, what: list[str]) -> tuple[str | None, list[int]]:
    """The kind that begins, None if nothing does, and the stores. ConfigError."""
    kind: str | None = None
    if action in OUTAGES:
        kind = action
    elif action == "begin":
        if not what:
            raise ConfigError(f"KIND is missing; `emubus outage begin KIND STORE …` has a KIND of {', '.join(OUTAGES)}")
        kind, *what = what
        if kind not in OUTAGES:
            known = f"`emubus outage begin KIND STORE …` has a KIND of {', '.join(OUTAGES)}"
            raise ConfigError(f"KIND is '{kind}'{suggestion(kind, OUTAGES)}; {known}")
    if kind is not None and not what:
        raise ConfigError(f"`emubus outage {action}` needs the numbers of the stores; `emubus outage` lists them")
    if action in SHOWING and what:
        raise ConfigError(f"`emubus outage {action}` takes no STORE; it lists all")
    for each in what:
        if not (each.isascii() and each.isdecimal() and len(each) <= 9):
            raise ConfigError(f"STORE is '{each}'; allowed is the number of a messaging store, from 0")
    return kind, [int(each) for each in what]


def _only_with(parsed: Parsed, action: str, *, is_begun: bool, names: Iterable[str]) -> None:
    """ConfigError: an option of what begins is given to another action, which would not heed it."""
    given = [name for name in names if getattr(parsed, name) not in (None, (), [])]
    if given and not is_begun:
        flag = "--for" if given[0] == "duration" else f"--{given[0]}"
        raise ConfigError(f"{flag} goes with {action}, not with {parsed.action}")


# ---------------------------------------------------------------- fault


def add_fault(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=[*SHOWING, "begin", "add", "end", "clear"],
        default="list",
        metavar="ACTION",
        help="list (default), begin or end; add and clear are the same",
    )
    parser.argument(
        "what",
        nargs="?",
        metavar="KIND|ID",
        help="begin: the kind, such as server-busy; end: one fault",
        completes=lambda: [*FaultKind],
    )
    parser.option("--entity", metavar="ENTITY", help="only operations on this entity")
    parser.option("--operation", repeats=True, metavar="NAME", help="such as send; may be repeated")
    parser.option("--count", convert=count_of, metavar="N", help="how often; default: until it is cleared")
    parser.option("--probability", convert=_probability, metavar="P", help="each time, from 0 to 1 (1)")
    parser.option("--delay", convert=span_ms, metavar="SPAN", help="of confirmations (1s)")
    _add_common(parser)
    parser.run = _fault


def _fault(parsed: Parsed) -> int:
    is_begun = parsed.action in ("begin", "add")
    _only_with(parsed, "begin", is_begun=is_begun, names=("entity", "operation", "count", "probability", "delay"))
    if parsed.action in SHOWING and parsed.what is not None:
        raise ConfigError(f"`emubus fault {parsed.action}` takes no KIND or ID; it lists all")
    with connect(parsed) as api:
        if is_begun:
            known = [*map(str, FaultKind)]
            if parsed.what not in known:
                given = "missing" if parsed.what is None else f"'{parsed.what}'"
                near = "" if parsed.what is None else suggestion(parsed.what, known)
                raise ConfigError(f"KIND is {given}{near}; `emubus fault begin KIND` has a KIND of {', '.join(known)}")
            if parsed.delay is not None and FaultKind(parsed.what) not in DELAYING:
                raise ConfigError(f"--delay is for {', '.join(sorted(DELAYING))}, not for {parsed.what}")
            asked = _fault_json(parsed)
            if parsed.entity is not None:  # a misspelt one would never be struck
                asked["entity"] = api.get(api.entity(parsed.entity)).text("path")
            answer = api.post("/faults", asked)
            show(parsed, answer, [f"added fault {answer['id']}: {answer['kind']}"])
        elif parsed.action in ("end", "clear"):
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


def _probability(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:  # also what is no number
        raise ValueError(f"is {text!r}; allowed is a number that is more than 0 and at most 1")
    return found


def _fault_json(parsed: Parsed) -> dict[str, object]:
    return {
        "kind": parsed.what,
        "entity": parsed.entity,
        "operations": parsed.operation,
        "count": parsed.count,
        "probability": 1.0 if parsed.probability is None else parsed.probability,
        "delay_ms": DELAY_MS if parsed.delay is None else parsed.delay,
    }


# ---------------------------------------------------------------- condition


def add_condition(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=[*SHOWING, "begin", "end", "names"],
        default="list",
        metavar="ACTION",
        help="list (default); begin NAME; end: all, or NAME, or ID; names: all there are, with their parameters",
    )
    parser.argument(
        "what", nargs="*", metavar="NAME|ID", help="such as throttled (docs/CONDITIONS.md)", completes=_condition_names
    )
    parser.option(
        "--for", name="duration", convert=span_ms, metavar="SPAN", help="how long (as it says, or until it ends)"
    )
    parser.option("--count", convert=count_of, metavar="N", help="how often it strikes at most")
    parser.option("--entity", metavar="ENTITY", help="strike this entity only")
    parser.option("--seed", convert=int, default=0, metavar="N", help="of its chance (0)")
    parser.option("--set", repeats=True, metavar="NAME=VALUE", help="a parameter, such as credits_per_s=5; repeatable")
    _add_common(parser)
    parser.run = _condition


def _condition_names() -> list[str]:
    from ...conditions.presets import PRESETS  # loads the table of all that can go wrong
    from ...conditions.table import BEHAVIOURS

    return [*PRESETS, *BEHAVIOURS]


def _condition(parsed: Parsed) -> int:
    """List, begin or end; the exit code. ConfigError, CommandError."""
    if parsed.action != "begin" and (parsed.set or parsed.duration or parsed.count or parsed.entity):
        raise ConfigError(f"--set, --for, --count and --entity go with begin, not with {parsed.action}")
    with connect(parsed) as api:
        if parsed.action == "names":
            answer = api.get("/conditions/table")
            show(parsed, answer, _names(answer, parsed.what))
        elif parsed.action == "begin":
            asked = _condition_json(parsed)
            if parsed.entity is not None:  # a misspelt one would never be struck
                asked["entity"] = api.get(api.entity(parsed.entity)).text("path")
            begun = api.post("/conditions", asked)
            ends = instant(begun.number_or_none("ends_at"))
            until = "until it is ended" if ends is None else f"until {ends}"
            end = f"`emubus condition end {begun['id']}`"
            show(parsed, begun, [f"condition {begun['id']} begins: {begun['name']}, {until} ({end})", *_values(begun)])
        elif parsed.action == "end":
            ids = _ids(api.get("/conditions").parts("conditions"), parsed.what)
            paths = [f"/conditions/{each}" for each in ids] or ["/conditions"]
            count = sum(api.call("DELETE", path).number("ended_count") for path in paths)
            show(parsed, {"ended_count": count}, [f"ended {count} conditions"])
        else:
            if parsed.what:
                raise ConfigError(f"`emubus condition {parsed.action}` takes no NAME; it lists what is on")
            answer = api.get("/conditions")
            rows = [
                [
                    each["id"],
                    each["name"],
                    each["entity"],
                    instant(each.number_or_none("ends_at")),
                    each["struck_count"],
                ]
                for each in answer.parts("conditions")
            ]
            show(parsed, answer, table(["ID", "NAME", "ENTITY", "UNTIL", "STRUCK"], rows))
    return EXIT_OK


def _ids(on: list[Answer], wanted: list[str]) -> list[int]:
    """The ids of conditions that are wanted by id or by name. ConfigError."""
    found: list[int] = []
    for each in wanted:
        own = [one.number("id") for one in on if each == one["name"]]
        if each.isascii() and each.isdecimal() and len(each) <= 15:
            own = [int(each)]  # the server says which there are
        if not own:
            known = ", ".join(f"{one['id']} ({one['name']})" for one in on) or "none"
            near = suggestion(each, {one.text("name") for one in on})
            raise ConfigError(f"No condition '{each}' is on{near}; on are: {known}")
        found += own
    return found


def _condition_json(parsed: Parsed) -> dict[str, object]:
    """The request for a condition; a parameter named alone is that of each behaviour which has it. ConfigError."""
    from ...conditions.presets import PRESETS
    from ...conditions.table import BEHAVIOURS

    known = _condition_names()
    if len(parsed.what) != 1:
        raise ConfigError(
            "`emubus condition begin` needs one NAME, such as throttled; `emubus condition names` has all"
        )
    (name,) = parsed.what
    if name not in known:
        raise ConfigError(f"NAME is '{name}'{suggestion(name, known)}; `emubus condition names` has all {len(known)}")
    rows = [BEHAVIOURS[each] for each in (PRESETS[name].behaviours if name in PRESETS else (name,))]
    parameters = {f"{row.name}.{each.name}": each for row in rows for each in row.parameters}
    values: dict[str, object] = {}
    for given in parsed.set:
        written, equals, text = given.partition("=")
        found = [each for each in parameters if written in (each, each.partition(".")[2])]
        if not equals or not found:
            near = suggestion(written, [*parameters, *(each.partition(".")[2] for each in parameters)])
            raise ConfigError(f"--set is '{given}'{near}; {name} has {', '.join(parameters) or 'no parameters'}")
        values |= {each: _number_or_text(text) for each in found}
    return {
        "name": name,
        "seed": parsed.seed,
        "entity": parsed.entity,
        "duration_ms": parsed.duration,
        "count": parsed.count,
        "set": values,
    }


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _values(condition: Answer) -> list[str]:
    return [f"    {each['name']} = {each['value']}" for each in condition.parts("values")]


def _names(answer: Answer, wanted: list[str]) -> list[str]:
    """All names, or those that are wanted with their parameters."""
    presets, rows = answer.parts("presets"), [each for each in answer.parts("behaviours") if each["way"] == "condition"]
    known = [*(each.text("name") for each in presets), *(each.text("name") for each in rows)]
    for each in wanted:
        if each not in known:
            raise ConfigError(
                f"NAME is '{each}'{suggestion(each, known)}; `emubus condition names` has all {len(known)}"
            )
    if not wanted:
        both = [*presets, *rows]
        return table(["NAME", "ABOUT"], [[each["name"], one_line(each.text("about"), ABOUT_CHARS)] for each in both])
    chosen = {name for each in presets if each["name"] in wanted for name in each.texts("behaviours")} | {*wanted}
    return table(
        ["PARAMETER", "DEFAULT", "UNIT", "ABOUT"],
        [
            [f"{row['name']}.{each['name']}", each["default"], each["unit"], one_line(each.text("about"), ABOUT_CHARS)]
            for row in rows
            if row["name"] in chosen
            for each in row.parts("parameters")
        ],
    )
