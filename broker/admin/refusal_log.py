"""One log line per refusal of a client: who, which entity, why, and what to do about it; the last ones can be read.

Knows remedies, and that a client that tries again and again is logged once in a while. Does not know protocols:
adapters call `refused`. A time-out is no refusal: the client asked for the wait.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

import structlog

from ..address import parse_address
from ..clock import Clock
from ..errors import BrokerError, Condition
from ..lazy_dataclass import dataclass
from ..service_errors import THROTTLING

AGAIN_US: Final = 10_000_000
"""How long the same refusal of the same client is not logged again."""
KNOWN_MAX: Final = 1_000
LINES_PER_S_MAX: Final = 20
"""Of all clients together: names made at random must not fill the log."""
COMPARED_MAX: Final = 1_000
"""Entities that a name is compared with; more would take too long."""
REASON_CHARS_MAX: Final = 500
RECENT_MAX: Final = 500
"""Refusals that can be read, the last ones: half a megabyte if all their texts are long."""
EXPECTED: Final = frozenset({Condition.TIMEOUT})
_REMEDIES: Final[Mapping[Condition, str]] = {
    Condition.UNAUTHORIZED_ACCESS: "use a key of this server (emubus connection-string), or start it with --auth none",
    Condition.MESSAGE_SIZE_EXCEEDED: "send less, or start with --profile premium or relaxed",
    Condition.ENTITY_DISABLED: "emubus update ENTITY --set Status=Active",
    Condition.SESSION_CANNOT_BE_LOCKED: "another receiver holds the session: emubus sessions ENTITY",
    Condition.RESOURCE_LIMIT_EXCEEDED: "emubus show ENTITY has the sizes and quotas, emubus purge ENTITY makes room",
}

log = structlog.get_logger("emubus")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client was refused, `count` times; `at` is the last time (Unix ms), and `number` the last one's number.

    `remedy` is "" if none is known.
    """

    number: int
    at: int
    client: str
    entity: str
    code: str
    reason: str
    remedy: str
    count: int


class RefusalLog:
    """Logs refusals; `paths` returns the entities that there are, for suggestions."""

    def __init__(
        self,
        paths: Callable[[], Iterable[str]],
        stopwatch_us: Callable[[], int] = Clock.stopwatch_us,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._paths = paths
        self._stopwatch_us = stopwatch_us
        self._now_ms = now_ms
        self._recent: OrderedDict[tuple[str, str, str], Refusal] = OrderedDict()
        self._last_number = 0
        self._logged: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._hidden: dict[tuple[str, str, str], int] = {}
        self._second = 0
        self._lines = 0  # in this second
        self.counts: Counter[str] = Counter()
        """Refusals by entity path; those of names beyond `KNOWN_MAX` under ""."""
        self.throttled: Counter[str] = Counter()
        """Refusals because of throttling, by entity path as `counts`."""
        self.by_code: Counter[str] = Counter()
        """Refusals by condition, or by the code of another protocol."""

    @property
    def recent(self) -> list[Refusal]:
        """The last refusals, the oldest first; the same one of the same client stands once, where it came last."""
        return list(self._recent.values())

    @property
    def last_number(self) -> int:
        """How many clients were refused since the start."""
        return self._last_number

    def forget(self) -> None:
        """Forget the last refusals, and that they were logged; the counts stay."""
        self._recent.clear()
        self._logged.clear()
        self._hidden.clear()

    def refused(self, client: str, address: str, error: BrokerError) -> None:
        if error.condition not in EXPECTED:
            self.refused_because(client, address, error.condition.value, error.description, error.condition)

    def refused_because(
        self, client: str, address: str, code: str, reason: str, condition: Condition | None = None
    ) -> None:
        """As `refused`, for a refusal with a code of another protocol."""
        path = parse_address(address).path
        counted_as = path if path in self.counts or len(self.counts) < KNOWN_MAX else ""
        self.counts[counted_as] += 1
        self.by_code[code] += 1
        if THROTTLING in reason:
            self.throttled[counted_as] += 1
        is_due = self.is_due(client, path, code)
        remedy = self._remedy(path, condition) if is_due else ""
        self._keep(client, path, code, reason[:REASON_CHARS_MAX], remedy)
        if not is_due:
            return
        hidden = self._hidden.pop((client, path, code), 0)
        more = {"remedy": remedy} if remedy else {}
        more |= {"repeated": str(hidden)} if hidden else {}
        log.info("refused", client=client, entity=path, code=code, reason=reason[:REASON_CHARS_MAX], **more)

    def _keep(self, client: str, path: str, code: str, reason: str, remedy: str) -> None:
        self._last_number += 1
        key = client, path, code
        before = self._recent.pop(key, None)
        now, number = self._now_ms(), self._last_number
        self._recent[key] = (
            Refusal(number, now, client, path[:REASON_CHARS_MAX], code, reason, remedy, 1)
            if before is None
            else replace(
                before, number=number, at=now, reason=reason, remedy=remedy or before.remedy, count=before.count + 1
            )
        )
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)

    def is_due(self, client: str, path: str, code: str) -> bool:
        """Whether this refusal is to be logged now; counts it if not."""
        key, now_us = (client, path, code), self._stopwatch_us()
        before_us = self._logged.get(key)
        if before_us is not None and now_us - before_us < AGAIN_US:
            self._hidden[key] = self._hidden.get(key, 0) + 1
            return False
        if now_us // 1_000_000 != self._second:
            self._second, self._lines = now_us // 1_000_000, 0
        self._lines += 1
        if self._lines > LINES_PER_S_MAX:
            return False
        self._logged[key] = now_us
        self._logged.move_to_end(key)
        if len(self._logged) > KNOWN_MAX:
            oldest, _ = self._logged.popitem(last=False)
            self._hidden.pop(oldest, None)
        return True

    def _remedy(self, path: str, condition: Condition | None) -> str:
        if condition is not Condition.NOT_FOUND:
            return "" if condition is None else _REMEDIES.get(condition, "")
        from difflib import get_close_matches  # only for a mistake: a start does not need it

        known = {each.lower(): each for each in islice(self._paths(), COMPARED_MAX)}
        close = get_close_matches(parse_address(path).key, known, n=1)
        if not close:
            return f"create it: emubus create queue {path}, or add it to Config.json"
        return f"no queue, topic or subscription '{path}'; did you mean '{known[close[0]]}'?"
