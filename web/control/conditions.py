"""Endpoints for conditions: the service's bad days, started by name, read while they last, and ended.

Knows the JSON of the table, of a condition, and of what struck. Does not know what a behaviour does.
"""

from __future__ import annotations

from typing import Final

from ...broker.amounts import Times
from ...broker.errors import BrokerError, Condition
from ...conditions.behaviour import Parameter, Row, Way
from ...conditions.chance import SEED_MAX
from ...conditions.condition import STRUCK_MAX, StartedCondition
from ...conditions.engine import Conditions
from ...conditions.presets import PRESETS
from ...conditions.table import BEHAVIOURS, TABLE
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .message_json import NUMBER_MAX
from .schema import (
    DURATION_MS_MAX,
    Schema,
    array,
    boolean,
    choice,
    default,
    integer,
    named,
    nullable,
    record,
    text,
    without_default,
)

_INSTANT_MAX: Final = 253_402_300_799_999


def _instant(about: str) -> Schema:
    return integer(f"{about} (Unix ms).", 0, _INSTANT_MAX)


def _value_schema(parameter: Parameter) -> Schema:
    """The schema of a parameter's value; null stands for its default."""
    about = f"{parameter.about} Unit: {parameter.unit}." if parameter.unit else parameter.about
    schema: Schema
    if parameter.choices:
        schema = choice(about, parameter.choices)
    elif isinstance(parameter.default, int):
        schema = integer(about, int(parameter.least), int(parameter.most))
    else:
        schema = {"type": "number", "description": about, "minimum": parameter.least, "maximum": parameter.most}
    return default(nullable(schema), None)


_ENTITY: Final = default(
    nullable(text("Path of an entity, with its sub-queues; null: all entities.", chars_min=1, chars_max=400)), None
)
ASKED_FIELDS: Final = {
    "name": choice("A preset, or a single behaviour.", (*PRESETS, *BEHAVIOURS)),
    "seed": default(integer("The same seed and the same traffic give the same strikes.", 0, SEED_MAX), 0),
    "entity": _ENTITY,
    "duration_ms": default(
        nullable(integer("How long it lasts; null: as the preset says, or until it is ended.", 1, DURATION_MS_MAX)),
        None,
    ),
    "count": default(nullable(integer("How often it strikes at most; null: no limit.", 1, Times.MOST)), None),
    "set": default(
        named(
            "ConditionParameters",
            record(
                "Values of parameters in place of the table's.",
                {
                    f"{row.name}.{parameter.name}": _value_schema(parameter)
                    for row in BEHAVIOURS.values()
                    for parameter in row.parameters
                },
            ),
        ),
        {},
    ),
}
_STRUCK: Final = named(
    "ConditionStrike",
    record(
        "A strike.",
        {
            "number": integer("Its number.", 1, NUMBER_MAX),
            "at": _instant("When"),
            "behaviour": text("The behaviour."),
            "scope": text("The entity or connection."),
            "what": text("What it did."),
            "decision": integer("Which decision of its stream it was.", 0, NUMBER_MAX),
            "tracking_id": text("The id in the log."),
        },
    ),
)
CONDITION: Final = named(
    "Condition",
    record(
        "A condition.",
        {
            "id": integer("Its number.", 1, NUMBER_MAX),
            **{name: without_default(ASKED_FIELDS[name]) for name in ("name", "seed", "entity")},
            "is_on": boolean("Whether it is on; one that has ended can be read for a while."),
            "started_at": _instant("Its start"),
            "ends_at": nullable(_instant("Its end, if a time ends it")),
            "left": nullable(integer("How often it may still strike.", 0, NUMBER_MAX)),
            "values": array(
                "Its parameters.",
                named(
                    "ParameterValue",
                    record(
                        "A parameter.",
                        {
                            "name": text("Its name: behaviour.parameter."),
                            "value": {"type": ["number", "string"], "description": "Its value."},
                        },
                    ),
                ),
            ),
            "plan": array(
                "What it will do, as far as it is known beforehand.",
                named(
                    "PlannedEvent",
                    record(
                        "An event.",
                        {"at": _instant("When"), "behaviour": text("The behaviour."), "what": text("What.")},
                    ),
                ),
            ),
            "struck_count": integer("How often it has struck.", 0, NUMBER_MAX),
            "struck": array(f"The last {STRUCK_MAX} strikes, the oldest first.", _STRUCK),
        },
    ),
)
CONDITIONS: Final = named(
    "Conditions", record("Conditions.", {"conditions": array("Those that are on, the oldest first.", CONDITION)})
)
_ROW: Final = named(
    "ConditionRow",
    record(
        "A row of the table.",
        {
            **{
                name: text(about)
                for name, about in (
                    ("name", "Its name."),
                    ("topic", "Its topic."),
                    ("about", "What goes wrong."),
                    ("scope", "What its chance is kept for."),
                    ("wire", "What clients see."),
                    ("source", "Who says so."),
                )
            },
            "way": choice("How it is made to happen.", Way),
            "parameters": array(
                "Its parameters.",
                named(
                    "Parameter",
                    record(
                        "A parameter.",
                        {
                            "name": text("Its name."),
                            "about": text("What it does."),
                            "unit": text("Its unit."),
                            "default": {"type": ["number", "string"], "description": "Its default."},
                        },
                    ),
                ),
            ),
        },
    ),
)
TABLE_SCHEMA: Final = named(
    "ConditionTable",
    record(
        "Everything that can go wrong on purpose.",
        {
            "behaviours": array("The rows.", _ROW),
            "presets": array(
                "Behaviours that come together.",
                named(
                    "Preset",
                    record(
                        "A preset.",
                        {
                            "name": text("Its name."),
                            "about": text("What it stands for."),
                            "behaviours": array("Its behaviours.", text("A name.")),
                        },
                    ),
                ),
            ),
        },
    ),
)
ENDED: Final = named(
    "EndedConditions",
    record("Ended conditions.", {"ended_count": integer("Number of conditions ended.", 0, NUMBER_MAX)}),
)
_ID: Final = {"id": integer("Its number.", 1, NUMBER_MAX)}


def _condition(conditions: Conditions, condition: StartedCondition) -> dict[str, object]:
    return {
        "id": condition.number,
        "name": condition.name,
        "seed": condition.seed,
        "entity": condition.entity,
        "is_on": conditions.is_on(condition.number),
        "started_at": condition.started_at,
        "ends_at": condition.ends_at,
        "left": condition.left,
        "values": [
            {"name": f"{each.on.row.name}.{name}", "value": value}
            for each in condition.behaviours
            for name, value in each.on.values.items()
        ],
        "plan": [{"at": each.at, "behaviour": each.behaviour, "what": each.what} for each in condition.plan],
        "struck_count": condition.struck_count,
        "struck": [
            {
                "number": each.number,
                "at": each.at,
                "behaviour": each.behaviour,
                "scope": each.scope,
                "what": each.what,
                "decision": each.decision,
                "tracking_id": each.tracking_id,
            }
            for each in condition.struck
        ],
    }


def _row(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "topic": row.topic,
        "about": row.about,
        "scope": row.scope,
        "wire": row.wire,
        "source": row.source,
        "way": row.way.value,
        "parameters": [
            {"name": each.name, "about": each.about, "unit": each.unit, "default": each.default}
            for each in row.parameters
        ],
    }


async def read_table(call: ControlCall) -> object:
    del call
    return {
        "behaviours": [_row(row) for row in TABLE],
        "presets": [
            {"name": each.name, "about": each.about, "behaviours": list(each.behaviours)} for each in PRESETS.values()
        ],
    }


async def list_conditions(call: ControlCall) -> object:
    conditions = call.services.conditions
    return {"conditions": [_condition(conditions, each) for each in conditions.list()]}


async def start_condition(call: ControlCall) -> object:
    body, conditions = call.body, call.services.conditions
    given = {name: value for name, value in body.object_of("set").items() if isinstance(value, int | float | str)}
    try:
        condition = conditions.start(
            body.one("name", str),
            seed=body.one("seed", int),
            entity=body.optional("entity", str),
            duration_ms=body.optional("duration_ms", int),
            count=body.optional("count", int),
            values=given,
        )
    except BrokerError as error:
        if error.condition is Condition.ARGUMENT_ERROR:  # a parameter that this condition does not have
            raise ControlRefusal(409, error.description) from None
        raise
    return _condition(conditions, condition)


async def get_condition(call: ControlCall) -> object:
    """A condition that is on, or has ended lately."""
    conditions = call.services.conditions
    number = call.path.one("id", int)
    condition = conditions.get(number)
    if condition is None:
        raise ControlRefusal(404, f"There is no condition {number}.")
    return _condition(conditions, condition)


async def end_condition(call: ControlCall) -> object:
    number = call.path.one("id", int)
    if not call.services.conditions.end(number):
        on = ", ".join(str(each.number) for each in call.services.conditions.list()) or "none"
        raise ControlRefusal(404, f"No condition {number} is on; it may have ended. On are: {on}.")
    return {"ended_count": 1}


async def end_conditions(call: ControlCall) -> object:
    return {"ended_count": call.services.conditions.end_all()}


ENDPOINTS: Final = (
    Endpoint("GET", "/conditions", "The conditions that are on", list_conditions, CONDITIONS),
    Endpoint("GET", "/conditions/table", "Everything that can go wrong on purpose", read_table, TABLE_SCHEMA),
    Endpoint(
        "POST",
        "/conditions",
        "Start a condition: a preset or a single behaviour",
        start_condition,
        CONDITION,
        body=record("The condition.", ASKED_FIELDS),
        example={"name": "throttled", "entity": "orders", "duration_ms": 60_000},
        status=201,
        errors=(409,),
    ),
    Endpoint("DELETE", "/conditions", "End all conditions", end_conditions, ENDED),
    Endpoint("GET", "/conditions/{id}", "A condition, its plan and what struck", get_condition, CONDITION, at=_ID),
    Endpoint("DELETE", "/conditions/{id}", "End a condition", end_condition, ENDED, at=_ID),
)
