"""Writes docs/CONDITIONS.md from the behaviours: `python -m docs.generate.conditions`. A test compares both."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from docs import DOCS
from emubus.conditions.behaviour import Row, Way
from emubus.conditions.presets import PRESETS
from emubus.conditions.table import TABLE

PAGE = DOCS / "CONDITIONS.md"
EXAMPLES = DOCS.parent / "examples" / "conditions"

HEAD = """# Conditions: the service's bad days, on demand

Code that passes against a perfect broker fails in production: the service throttles, closes idle links, moves entities,
loses locks, answers a peek short. A condition makes that happen: by name, by a seed, by the broker's clock. Nothing is
on by default.

| From | How |
|---|---|
| Python | `with emubus.conditions("throttled", seed=7, throttle_credits__credits_per_s=50) as on:`, then `on.report` |
| HTTP | `POST /emubus/v1/conditions`: `{"name": "throttled", "seed": 7, "set": {"throttle-admin.credits_per_s": 50}}` |
| Command line | `emubus condition begin throttled --seed 7 --set credits_per_s=50`; `list`, `end`, `names` |
| HTTP, later | `GET /emubus/v1/conditions/1` (its plan and what struck), `DELETE /emubus/v1/conditions/1` |
| Start | `emubus serve --conditions rolling-upgrade --seed 7` |
| A soak | `emubus exercise --minutes 10 --seed 7` |

* **Name**: a preset, or a single behaviour. Several conditions may be on; the first behaviour that strikes wins.
* **Scope**: all entities, or one (`entity`) with its sub-queues and its management node.
* **End**: after `duration_ms`, after `count` strikes, when it is ended, or with a reset. What was only withheld comes
  at once.
* **Seed**: the same seed and the same traffic give the same strikes. A decision depends on the seed, the behaviour, the
  entity or connection, and its number there; another entity or behaviour does not shift it.
* **Clock**: every timer is the broker's, so a test that freezes the clock moves it to the next event.
* **Record**: what struck is in the API, in the log (`condition struck`) and in the metric
  `emubus_condition_strikes_total`, so that a failing test can say because of what.

No condition but `region-failover` with `lost_ms` loses an acknowledged message, and none changes the order within a
partition or a message session. The texts and conditions are the service's. Sources name issues of the SDKs'
repositories on GitHub by repository and number.

## A test that survives throttling

```python
from azure.servicebus import ServiceBusClient, ServiceBusMessage


def test_orders_are_sent_although_the_namespace_is_throttled(emubus):
    with emubus.conditions("throttle-credits", credits_per_s=0, count=1) as on:
        with ServiceBusClient.from_connection_string(emubus.connection_string) as client:
            with client.get_queue_sender("queue.1") as sender:
                sender.send_messages(ServiceBusMessage("order 7"))  # the SDK waits and tries again
    assert on.report.struck_count == 1
    assert len(emubus.peek("queue.1")) == 1
```

With `retry_total=0` the same code gets a `ServiceBusServerBusyError`, and the order is lost.

## A soak for an application

`emubus exercise --minutes 10 --seed 7` starts all presets one after the other on a running server while your own tests
run against it. The seed gives their order and all chances. A preset has its share of the time, a fifth of which is a
rest in which clients recover; times that are longer, such as the ten minutes of `idle-link`, are shortened to fit.
`--presets throttled,unsure` takes these only, `--entity orders` strikes one entity.

`exercise.json` and `exercise.md` (`--report FILE`) have what was on when, with which values, what was planned, and what
struck. Both are written also when the exercise ends early: then a step that was on is ended. Exit code 0: all steps
were on for their time; 1: the server refuses, or its clock is frozen; 3: no server answers.

In a test, `for on in emubus.exercise(minutes=10, seed=7):` has each preset on for one turn of the loop, see
[TESTING](TESTING.md).

## Presets
"""
SURVIVAL = """
Each program below sends an order and processes it once while an entity is not found, an outcome is lost with its
connection, and a lock is lost. With the argument `fragile` it does what does not survive: it sends once, without an id
of the order's. The programs are in [examples/conditions](../examples/conditions); `tests/conditions/test_samples.py`
runs those in Python, JavaScript, Java, Go and .NET.
"""
SURVIVES = (
    (
        "throttling, moves, network: a send fails",
        "tries again for longer than the SDK, some minutes in all",
        "takes the first error for the end, or an error of one kind only",
    ),
    (
        "`phantom-not-found`, `create-not-visible`",
        'tries "not found" again, which no SDK does',
        "stops, or creates the entity",
    ),
    (
        "`accept-lost`, `accept-late`, `reroute-slow`",
        "gives each message the id of what it stands for: duplicate detection or the receiver drops a second one",
        "lets the SDK make an id for each try",
    ),
    (
        "`lock-lost`, `short-lock`, `settle-lost`",
        'takes `MessageLockLost` for "it comes again", and knows what is done by the message id',
        "works again, or stops",
    ),
    (
        "`foreign-cache`, `dry-spell`, `accepted-not-visible`",
        "receives again after an empty receive",
        "takes one empty receive for an empty queue",
    ),
    (
        "`session-moved`, `broker-move`",
        "accepts the session again, and reads its state first",
        "goes on with the dead receiver",
    ),
    (
        "`peek-short`, `peek-partition-end`",
        "peeks until nothing comes",
        "takes a short reply for the last one",
    ),
    (
        "`conflict-cleanup`, `admin-500-done`",
        "reads what is there after an error, and tries again",
        'takes 409 for "it exists already"',
    ),
    (
        "`discharge-lost`",
        "looks whether the work is done before it is done again",
        "repeats the transaction",
    ),
    (
        "`region-failover`, `tls-fails`, `name-unknown`",
        "makes a new connection for minutes, and looks after a forced failover whether its last messages are there",
        "takes a connection that fails for a wrong configuration, and stops",
    ),
    (
        "`rule-late`",
        "filters again in the receiver, or waits after a change of rules",
        "changes a rule and sends at once",
    ),
    (
        "`unsettled-window`, `partitioned-20-minutes`",
        "settles each message, and closes a receiver that it no longer needs",
        "leaves messages to the end of their locks",
    ),
    (
        "`half-open`, `no-credit`, `entity-away`",
        "limits each call in time",
        "waits for ever, as Python does without `timeout`",
    ),
)
"""For conditions: what survives them, and what does not."""
SAMPLES = {
    "Python": ("python", "survive.py"),
    "JavaScript": ("javascript", "survive.mjs"),
    "Java": ("java", "Survive.java"),
    "Go": ("go", "go/survive.go"),
    ".NET": ("csharp", "Survive.cs"),
}
TAIL = """
This page is generated by `python -m docs.generate.conditions`.
"""
WAYS = {
    Way.CONDITION: "",
    Way.FAULT: "Set by `POST /emubus/v1/faults` or `emubus.add_fault`, see [TESTING](TESTING.md).",
    Way.OUTAGE: "Begun by `POST /emubus/v1/outages` or `emubus.begin_outage`, see [TESTING](TESTING.md).",
    Way.DROP: "Done by `POST /emubus/v1/connections/drop` and `/links/drop`.",
    Way.ALWAYS: "Happens without being asked for.",
    Way.KIT: "From the test kit: `emubus.unresolved_connection_string`.",
}


def presets() -> Iterator[str]:
    """The table of the presets."""
    yield from ("| Preset | Stands for | Behaviours and values | Lasts |", "|---|---|---|---|")
    for preset in PRESETS.values():
        behaviours = " · ".join(
            f"`{name}`" + "".join(f" {key}={value}" for key, value in values.items())
            for name, values in preset.behaviours.items()
        )
        lasts = "until ended"
        if preset.lasts_ms is not None:
            lasts = f"{preset.lasts_ms // 1000} s"
        if preset.lasts_ms_per_entity:
            lasts += f" and {preset.lasts_ms_per_entity // 1000} s for each entity"
        yield f"| `{preset.name}` | {preset.about} | {behaviours} | {lasts} |"


def behaviour(row: Row) -> Iterator[str]:
    """One behaviour."""
    yield f"### {row.name}\n"
    yield row.about + "\n"
    yield f"On the wire: {row.wire}. Chance and state are kept by {row.scope}. Source: {row.source}.\n"
    if row.parameters:
        yield from ("| Parameter | Default | Unit | Meaning |", "|---|---|---|---|")
        for each in row.parameters:
            allowed = f" One of: {', '.join(each.choices)}." if each.choices else ""
            yield f"| `{each.name}` | {each.default} | {each.unit} | {each.about}{allowed} |"
        yield ""


def samples() -> Iterator[str]:
    """The programs that survive, in each language."""
    yield "## Code that survives\n"
    yield from ("| Condition | Survives | Does not |", "|---|---|---|")
    yield from (f"| {' | '.join(row)} |" for row in SURVIVES)
    yield SURVIVAL
    for language, (kind, name) in SAMPLES.items():
        yield f"### {language}\n"
        yield f"```{kind}\n{(EXAMPLES / name).read_text()}```\n"


def page() -> str:
    """The whole page."""
    lines = [HEAD, *presets(), ""]
    for topic, rows in groupby(sorted(TABLE, key=lambda row: order(row.topic)), key=lambda row: row.topic):
        found = list(rows)
        lines.append(f"## {topic}\n")
        if WAYS[found[0].way]:
            lines.append(WAYS[found[0].way] + "\n")
        for row in found:
            lines += behaviour(row)
    lines += samples()
    return "\n".join(lines).rstrip() + "\n" + TAIL


def order(topic: str) -> int:
    """Topics in the order in which the table first has them."""
    return [row.topic for row in TABLE].index(topic)


if __name__ == "__main__":
    PAGE.write_text(page())
