"""Writes docs/reference/asked.md from the table of what clients can ask for: `python -m docs.generate.asked`."""

from __future__ import annotations

from itertools import groupby

from docs import DOCS
from tests.amqp.asked import ROWS, Asked, Treatment

PAGE = DOCS / "reference" / "asked.md"

HEAD = """# What clients can ask for

Every field of the performatives, sources and targets of AMQP, every property, capability and filter that SDKs write,
back to those of 2017, and every field of a request to a node: whether emubus honours, refuses or ignores it. What it
ignores it answers as if it were not there. "Asked by" are the clients that send it, as far as is known: `all` are
Python, JavaScript, Go, Java and .NET. Whether the service obeys what is ignored here is a guess where no note says
more: its documents are silent about it, and no test of an SDK shows a difference.

This page is generated from `tests/amqp/asked.py` by `python -m docs.generate.asked`. `tests/amqp/test_asked.py` asks
for each row.
"""
TITLES = {
    "open": "Connection: `open`",
    "begin": "AMQP session: `begin`",
    "receiver": "Receiver: `attach`",
    "receiver.source": "Receiver: source, which is the entity",
    "receiver.target": "Receiver: target, which is the client's own",
    "sender": "Sender: `attach`",
    "sender.source": "Sender: source, which is the client's own",
    "sender.target": "Sender: target, which is the entity",
    "flow": "`flow`",
    "transfer": "`transfer` of a sender",
    "disposition": "`disposition` of a receiver",
    "detach": "`detach`",
    "end": "`end`",
    "close": "`close`",
}


def title(row: Asked) -> str:
    """The heading under which a row stands."""
    if row.talk == "plain":
        return TITLES[row.where]
    return {"a dead letter": "`com.microsoft:update-disposition`", "Premium": "On a Premium namespace"}.get(
        row.talk, f"`{row.talk}`" if row.talk[0] in "$c" else row.talk.capitalize()
    )


def line(row: Asked) -> str:
    """The row of a table."""
    name = row.name if row.talk == "plain" else f"{row.where}: {row.name}"
    what = f"refused: `{row.condition}`" if row.treatment is Treatment.REFUSED else row.treatment.value
    return f"| `{name}` | {row.clients} | {what} | {row.note} |"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for heading, rows in groupby(ROWS, title):
        parts.append(f"## {heading}\n\n| Field | Asked by | | Note |\n|---|---|---|---|")
        parts.append("\n".join(map(line, rows)) + "\n")
    counts = ", ".join(f"{sum(row.treatment is each for row in ROWS)} {each.value}" for each in Treatment)
    parts[0] = HEAD + f"\n{len(ROWS)} rows: {counts}.\n"
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
