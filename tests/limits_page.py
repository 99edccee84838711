"""Writes docs/LIMITS.md from the table of limits: `python -m tests.limits_page`. A test holds that both agree."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from emubus.broker.model.durations import format_duration
from emubus.broker.model.profiles import LIMITS, Defaults, Limits, Range

PAGE = Path(__file__).parent.parent / "docs" / "LIMITS.md"

HEAD = """# Limits by profile

Every limit of `broker/model/profiles.py`, as the profile has it; `emubus serve --profile NAME` chooses one. Bytes end
in `bytes_max`, milliseconds in `_ms`, megabytes in `_mb`, characters in `length_max`. A range is inclusive;
"unlimited" is without an upper bound. A Premium namespace with `--premium-partitions 2` has two partitions, all its
entities are partitioned, and a message has at most 1 MB.

This page is generated: `python -m tests.limits_page` writes it. `tests/broker/test_limits_enforced.py` holds that it
agrees with the table and that each limit is enforced.
"""


def shown(name: str, value: object) -> str:
    """A value of the table as people read it."""
    if value is None:
        return {"message_bytes_settable": "not settable", "max_size_mb_choices": "any"}.get(name, "unlimited")
    if isinstance(value, Range):
        stop = "unlimited" if value.stop is None else shown(name, value.stop)
        return f"{shown(name, value.start)} to {stop}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_ms"):
        return format_duration(value)
    return str(value)


def rows(limits: Limits) -> dict[str, str]:
    """The fields of a profile and its defaults, in the order of the table."""
    found = {f"default {each.name}": shown(each.name, getattr(limits.defaults, each.name)) for each in fields(Defaults)}
    for each in fields(Limits):
        if each.name not in {"profile", "defaults"}:
            found[each.name] = shown(each.name, getattr(limits, each.name))
    return found


def page() -> str:
    """The whole page."""
    columns = {profile.value: rows(limits) for profile, limits in LIMITS.items()}
    lines = [f"| limit | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name in next(iter(columns.values())):
        lines.append(f"| `{name}` | {' | '.join(column[name] for column in columns.values())} |")
    return HEAD + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
