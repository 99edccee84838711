"""Lines that anybody can cause are written a few times, then counted."""

from __future__ import annotations

from emubus.broker.clock import Clock
from emubus.broker.repeated_lines import LINES_MAX, WHILE_MS, RepeatedLines


async def test_the_first_lines_of_a_kind_are_written_and_then_how_many_more_there_were() -> None:
    clock = Clock(start_at=0, manual=True)
    written: list[tuple[str, object]] = []

    def write(event: str, **fields: object) -> None:
        written.append((event, fields.get("number")))

    lines = RepeatedLines(clock)
    for number in range(LINES_MAX + 1_234):
        lines.write(write, "closed", number=number)
    lines.write(write, "other", number=0)
    assert written == [*(("closed", number) for number in range(LINES_MAX)), ("other", 0)]
    written.clear()
    clock.advance(WHILE_MS)
    assert written == [("closed: 1,234 more of these lines in the last 10 s", None)]
    written.clear()
    lines.write(write, "closed", number=1)
    clock.advance(WHILE_MS)
    assert written == [("closed", 1)]
    clock.close()
