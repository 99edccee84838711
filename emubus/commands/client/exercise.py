"""`emubus exercise`: start all presets of conditions one after the other on a running server, and report what struck.

Knows the order of the steps (`kit/exercise.py` plans them), how to wait for each by the broker's clock, and
where the report goes. Does not know what a condition does.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...conditions.chance import SEED_MAX
from ...conditions.presets import PRESETS
from ...config_file.cursor import suggestion
from ...exits import EXIT_FAILED, EXIT_OK, CommandError
from ...kit.answers import Answer, AnswerError
from ...kit.exercise import Step, steps
from ...terminal import Progress, json_text, safe
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import Api, connect
from .output import add_json, instant, show, table

MINUTE_MS: Final = 60_000
POLL_MS: Final = 1_000
STRIKES_SHOWN: Final = 100
"""Strikes of a step in the Markdown report; the JSON report has all that the server lists."""


def add_exercise(parser: Command) -> None:
    parser.option("--minutes", convert=_minutes, default=10.0, metavar="N", help="how long it lasts in all (10)")
    parser.option("--seed", convert=_seed_in, default=0, metavar="N", help="of the order, and of all conditions (0)")
    parser.option("--presets", convert=_presets_in, default=tuple(PRESETS), metavar="NAME,…", help="these only (all)")
    parser.option("--entity", metavar="ENTITY", help="strike this entity only")
    parser.option(
        "--report",
        convert=Path,
        default=Path("exercise"),
        metavar="FILE",
        help="writes FILE.json and FILE.md (exercise)",
    )
    add_json(parser)
    add_server_options(parser)
    parser.run = _exercise


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0.001 <= minutes <= 10_000:
        raise ValueError(f"is {text!r}; allowed is 0.001 to 10000")
    return minutes


def _presets_in(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    for each in found:
        if each not in PRESETS:
            known = ", ".join(PRESETS)
            raise ValueError(f"has '{each}'{suggestion(each, PRESETS)}; allowed is {known}, separated by commas")
    return found


def _seed_in(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) <= SEED_MAX):
        raise ValueError(f"is {text!r}; allowed is 0 to {SEED_MAX}")
    return int(text)


def _exercise(parsed: Parsed) -> int:
    """Run all steps; the report is written whatever happens. ConfigError, CommandError."""
    with connect(parsed) as api:
        if parsed.entity is not None:
            api.entity(parsed.entity)  # a misspelt one would never be struck
        entities = 1 if parsed.entity is not None else api.get("/entities?count=1").number("total")
        planned = steps(int(parsed.minutes * MINUTE_MS), parsed.seed, parsed.presets, entities)
        exercise = Exercise(api, planned, parsed.seed, parsed.entity)
        try:
            exercise.run()
        finally:
            report = exercise.report()
            _write(parsed.report, report)
    show(parsed, report, [*_table(report), f"report: {parsed.report}.json, {parsed.report}.md"])
    return EXIT_OK if report["is_complete"] else EXIT_FAILED


def wait(ms: int) -> None:
    """Let time pass."""
    select.select([], [], [], ms / 1000)


class Exercise:
    """One run over a server; `report` has what was done so far."""

    def __init__(self, api: Api, planned: list[Step], seed: int, entity: str | None) -> None:
        self._api = api
        self._planned = planned
        self._seed = seed
        self._entity = entity
        self._started_at = self._now()
        self._done: list[Answer] = []
        self._is_complete = False

    def run(self) -> None:
        """Run the steps; a condition that is on is ended if that fails. CommandError: the clock stands still."""
        progress = Progress("exercise, step", len(self._planned))
        try:
            for number, step in enumerate(self._planned):
                progress.step(number)
                self._step(step)
            self._is_complete = True
        finally:
            progress.end()

    def _step(self, step: Step) -> None:
        asked = {"name": step.name, "seed": self._seed, "entity": self._entity, "set": dict(step.values)}
        begun = self._api.post("/conditions", {**asked, "duration_ms": step.on_ms})
        at, started_at = f"/conditions/{begun.number('id')}", begun.number("started_at")
        try:
            self._wait_until(started_at + step.on_ms)
        finally:
            found = self._api.get(at)
            if found["is_on"]:
                self._api.call("DELETE", at)
            self._done.append(Answer(found, is_on=False, ended_at=self._now()))
        self._wait_until(started_at + step.on_ms + step.rest_ms)

    def _wait_until(self, at_ms: int) -> None:
        last_ms: int | None = None
        while True:
            clock = self._api.get("/clock")
            now_ms = clock.number("now_ms")
            if now_ms >= at_ms:
                return
            if clock["is_frozen"]:
                raise CommandError("the broker's clock is frozen, so no condition would end; see `emubus clock thaw`")
            if last_ms is not None and now_ms <= last_ms:
                raise AnswerError("now_ms does not grow, though the clock is not frozen")
            last_ms = now_ms
            wait(min(at_ms - now_ms, POLL_MS))

    def _now(self) -> int:
        return self._api.get("/clock").number("now_ms")

    def report(self) -> Answer:
        """What was done, when (Unix ms), and what struck."""
        return Answer(
            seed=self._seed,
            entity=self._entity,
            is_complete=self._is_complete,
            started_at=self._started_at,
            ended_at=self._done[-1]["ended_at"] if self._done else self._started_at,
            order=[each.name for each in self._planned],
            steps=self._done,
        )


def _write(path: Path, report: Answer) -> None:
    try:
        path.with_name(f"{path.name}.json").write_text(json_text(report) + "\n")
        path.with_name(f"{path.name}.md").write_text(safe("\n".join(markdown(report))) + "\n")
    except OSError as error:
        raise CommandError(f"can't write {path}.json and {path}.md: {error.strerror}") from error


def _table(report: Answer) -> list[str]:
    rows = [
        [each["name"], instant(each.number("started_at")), instant(each.number("ended_at")), each["struck_count"]]
        for each in report.parts("steps")
    ]
    return table(["PRESET", "FROM", "UNTIL", "STRUCK"], rows)


def markdown(report: Answer) -> Iterator[str]:
    entity = f"the entity `{report['entity']}`" if report["entity"] is not None else "all entities"
    how = "Complete" if report["is_complete"] else "Not complete"
    yield from ("# Exercise", "")
    begun, ended = instant(report.number("started_at")), instant(report.number("ended_at"))
    yield f"{how}: seed {report['seed']}, {entity}, from {begun} to {ended}."
    yield from ("", "| Preset | From | Until | Struck | Behaviours |", "|---|---|---|---|---|")
    for each in report.parts("steps"):
        counts = Counter(struck.text("behaviour") for struck in each.parts("struck"))
        behaviours = ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "nothing"
        yield (
            f"| {each['name']} | {instant(each.number('started_at'))} | {instant(each.number('ended_at'))} | "
            f"{each['struck_count']} | {behaviours} |"
        )
    for each in report.parts("steps"):
        yield from ("", f"## {each['name']}", "")
        yield from (
            f"* {instant(plan.number('at'))}: planned, {plan['behaviour']}: {plan['what']}"
            for plan in each.parts("plan")
        )
        struck = each.parts("struck")[-STRIKES_SHOWN:]
        left = each.number("struck_count") - len(struck)
        yield from ([f"* {left} earlier strikes"] if left else [])
        yield from (
            f"* {instant(one.number('at'))}: {one['behaviour']}, {one['scope']}: {one['what']}" for one in struck
        )
        yield from ([] if each["plan"] or each["struck_count"] else ["* Nothing struck."])
