"""What goes wrong on purpose: conditions, faults and outages in one table, forms to begin them; and snapshots.

Does not know what a condition or a fault does to clients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ...broker.admin import figures
from ...broker.amounts import Period, Seed, Span, Times
from ...broker.api import OutageKind
from ...broker.errors import BrokerError
from ...broker.names import SnapshotName
from ...conditions.behaviour import Parameter, Value
from ...conditions.faults import STRIKES, FaultKind, FaultOperation
from ...conditions.presets import PRESETS
from ...conditions.table import BEHAVIOURS
from .entity import set_outage
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, FormError, query_form, quoted, read_form
from .rendering import rate
from .site import Site, address

NUMBER_MAX: Final = (1 << 63) - 1
STRUCK_SHOWN_MAX: Final = 20
CREDITS: Final = "credits_per_s"
NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Running:
    """A row of the table: `end` are the fields of the form that ends it, `struck` what it did lately."""

    kind: str
    name: str
    entity: str
    ends: str
    count: int | None
    end: tuple[str, str]
    struck: Sequence[str] = ()


async def show(site: Site, request: web.Request, failed: Failed | None = None) -> web.Response:
    asked = query_form(request) if failed is None or failed.form != "condition" else Form(failed.values)
    chosen = asked.text("name")
    if chosen not in PRESETS and chosen not in BEHAVIOURS:
        chosen = next(iter(PRESETS))
    return site.render(
        request,
        "failures.html",
        failed=failed,
        live_path=address("failures"),
        running=running(site),
        chosen=chosen,
        parameters=parameters_of(chosen),
        hints=hints_of(chosen, _rate_per_s(site)),
        written=_value_text,
        presets=[(each.name, each.about) for each in PRESETS.values()],
        behaviours=[(row.name, row.about) for row in BEHAVIOURS.values()],
        fault_kinds=[(each.value, ", ".join(STRIKES[each])) for each in FaultKind],
        operations=["all", *FaultOperation],
        outage_kinds=list(OutageKind),
        stores=figures.stores(site.broker.namespace),
        snapshots=site.services.snapshots.list(),
    )


@dataclass(frozen=True, slots=True)
class Field:
    """The field of a parameter: its name in the form, its label, and what is filled in."""

    name: str
    label: str
    parameter: Parameter
    value: Value


def parameters_of(name: str) -> list[Field]:
    """The parameters of a preset or behaviour, with the values that they have if nothing else is said."""
    if name in BEHAVIOURS:
        return [Field(f"p.{each.name}", each.name, each, each.default) for each in BEHAVIOURS[name].parameters]
    return [
        Field(f"p.{behaviour}.{each.name}", f"{behaviour}: {each.name}", each, values.get(each.name, each.default))
        for behaviour, values in PRESETS[name].behaviours.items()
        for each in BEHAVIOURS[behaviour].parameters
    ]


def hints_of(name: str, per_s: float) -> list[str]:
    """Whether a budget of credits would be used up at so many operations in a second."""
    hints: list[str] = []
    for each in parameters_of(name):
        if each.parameter.name != CREDITS or isinstance(each.value, str) or not each.value:
            continue
        strikes = "strikes" if per_s > each.value else "does not strike"
        hints.append(
            f"At the present {rate(per_s)} messages/s in and out, {each.label} = {each.value:g} {strikes}: "
            f"it begins below {rate(per_s)}, more for topics with rules."
        )
    return hints


def _rate_per_s(site: Site) -> float:
    """Messages in and out of the namespace in the last sample."""
    rates = (site.services.sampler.rates(each.path) for each in site.broker.namespace.entities())
    return sum((each.in_per_s or 0) + (each.out_per_s or 0) for each in rates)


def _values_in(form: Form, name: str) -> dict[str, Value]:
    """The parameters that a form changes, by the name that `Conditions.start` takes. FormError."""
    found: dict[str, Value] = {}
    for each in parameters_of(name):
        text = form.text(each.name)
        if not text or text == _value_text(each.value):
            continue
        found[each.name.removeprefix("p.")] = text if each.parameter.choices else _number(text, each)
    return found


def _number(text: str, asked: Field) -> Value:
    try:
        return int(text) if NUMBER.fullmatch(text) else float(text)
    except ValueError:
        raise FormError(f"{asked.label}: {quoted(text)} is not a number.", asked.name) from None


def _value_text(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def running(site: Site) -> list[Running]:
    """Everything that is on, conditions first."""
    found: list[Running] = []
    conditions, now = site.services.conditions, site.services.clock.now_ms()
    for each in conditions.list():
        left = [] if each.left is None else [f"{each.left} more times"]
        left += [] if each.ends_at is None else [f"{max(0, each.ends_at - now) / 1000:.0f} s more"]
        struck = [f"{strike.behaviour}: {strike.what} ({strike.scope})" for strike in each.struck]
        found.append(
            Running(
                "condition",
                each.name,
                each.entity or "all",
                ", ".join(left) or "until it is ended",
                each.struck_count,
                ("condition", str(each.number)),
                struck[-STRUCK_SHOWN_MAX:],
            )
        )
    for fault in conditions.faults():
        chance = "" if fault.probability >= 1 else f", with probability {fault.probability:g}"
        ends = "until it is ended" if fault.left is None else f"{fault.left} more times"
        name = f"{fault.kind.value} of {', '.join(fault.operations)}"
        struck = [f"{each.what} ({each.scope})" for each in conditions.struck_by_fault(fault.number)]
        found.append(
            Running(
                "fault",
                name,
                fault.entity or "all",
                ends + chance,
                fault.hit_count,
                ("fault", str(fault.number)),
                struck,
            )
        )
    for store in figures.stores(site.broker.namespace):
        if store.outage is not None:
            name = f"{store.outage.kind.value} store {store.store}"
            found.append(
                Running("outage", name, "all in the store", "until it is ended", None, ("store", str(store.store)))
            )
    return found


async def begin(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    what = form.choice("what", "What", ("condition", "fault", "outage"))
    try:
        text = {"condition": _begin_condition, "fault": _begin_fault, "outage": set_outage}[what](site, form)
    except REFUSALS as error:
        return await show(site, request, form.failed(what, error))
    return site.redirect(address("failures"), Flash(text))


def _entity(site: Site, form: Form) -> str | None:
    path = form.optional("entity")
    return None if path is None else site.entity(path).path


def _begin_condition(site: Site, form: Form) -> str:
    known = [*PRESETS, *BEHAVIOURS]
    name = form.choice("name", "Condition", known)
    condition = site.services.conditions.start(
        name,
        seed=form.number("seed", "Seed", 0, Seed.MOST, 0),
        entity=_entity(site, form),
        duration_ms=form.finite_span("for", "Duration", 1, Period.MOST) if form.text("for") else None,
        count=form.number("count", "Count", 1, Times.MOST) if form.text("count") else None,
        values=_values_in(form, name),
    )
    return f"Condition {condition.number} ({name}) is on."


def _begin_fault(site: Site, form: Form) -> str:
    kind = FaultKind(form.choice("kind", "Fault", list(FaultKind)))
    operation = form.choice("operation", "Operation", ["all", *FaultOperation])
    fault = site.services.conditions.set_fault(
        kind,
        entity=_entity(site, form),
        operations=() if operation == "all" else (FaultOperation(operation),),
        count=form.number("count", "Count", 1, Times.MOST) if form.text("count") else None,
        probability=form.number("percent", "Probability", 1, 100, 100) / 100,
        delay_ms=form.finite_span("delay", "Delay", 0, Span.MOST, 1_000),
    )
    return f"Fault {fault.number} ({kind.value}) is set."


async def end(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    kind = form.choice("kind", "What", ("condition", "fault", "store"))
    number = form.number("number", "Number", 0, NUMBER_MAX)
    conditions = site.services.conditions
    if kind == "store":
        site.broker.outages.end(number)
    elif not (conditions.end if kind == "condition" else conditions.clear_fault)(number):
        raise FormError(f"There is no {kind} {number}; it may have ended.", status=404)
    return site.redirect(
        address("failures"), Flash(f"Ended: {'outage of ' if kind == 'store' else ''}{kind} {number}.")
    )


async def snapshot(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    snapshots = site.services.snapshots
    try:
        name = SnapshotName(form.text("name"))
        match form.choice("do", "Snapshot", ("take", "restore", "delete")):
            case "take":
                await snapshots.take(name)
                text = f"Snapshot '{name}' was taken."
            case "restore":
                await snapshots.restore(name)
                text = f"The namespace was restored from snapshot '{name}'."
            case _:
                await snapshots.delete(name)
                text = f"Snapshot '{name}' was deleted."
    except BrokerError as error:
        return await show(site, request, form.failed("snapshot", error))
    return site.redirect(address("failures"), Flash(text))
