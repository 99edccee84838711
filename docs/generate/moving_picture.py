"""Makes docs/moving/failing-test.svg from a run of pytest: `make moving-picture`. A test compares both.

Knows the test that is shown, and how a terminal looks. Instants, ports and releases are made the same in every run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from docs import DOCS

PICTURE: Final = DOCS / "moving" / "failing-test.svg"
TEST: Final = """\
from emubus.testing import RuleDescription, SqlFilter, SubscriptionDescription


def test_a_large_order_is_checked(emubus):
    emubus.create_topic("orders")
    rule = RuleDescription("large", SqlFilter("amount > 1000"))
    emubus.create_subscription(SubscriptionDescription("orders", "check", rules=(rule,)))
    emubus.create_subscription("orders/all")
    emubus.send("orders", "order 7", message_id="order-7", application_properties={"amount": 50})
    emubus.wait_for("orders/Subscriptions/check", active=1, timeout_s=0)
"""
COMMAND: Final = "pytest -q test_orders.py"
SECTION: Final = " emubus "
CHARS_MAX: Final = 122
LINE_PX: Final = 18
CHAR_PX: Final = 7.8
MARGIN_PX: Final = 14
STEP_S: Final = 0.35
READ_S: Final = 8.0
"""How long the whole stands before it begins anew."""
GOOD: Final = "#9ece6a"
PLAIN: Final = "#c0caf5"
BAD: Final = "#f7768e"
_SAME: Final = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "2026-01-05 10:00:00.000"),
    (r"\d+\.\d+s\b", "0.42s"),
)


def lines_of_a_run() -> list[str]:
    """What a terminal shows: the test, the command, what failed, and the section of emubus."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_orders.py").write_text(TEST)
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "test_orders.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=300
        )
    output = done.stdout
    for pattern, text in _SAME:
        output = re.sub(pattern, text, output)
    shown = [each for each in output.splitlines() if each.startswith("E  ")][:1]
    section = output[output.index(f"{SECTION}-") :].splitlines()[1:]
    end = next(at for at, each in enumerate(section) if each.startswith("=") or "short test summary" in each)
    ruler = SECTION.center(CHARS_MAX, "-")
    return [
        "$ cat test_orders.py",
        *TEST.splitlines(),
        f"$ {COMMAND}",
        *shown,
        ruler,
        *(each[:CHARS_MAX] for each in section[:end]),
    ]


def picture(lines: list[str]) -> str:
    """The lines as an SVG in which they appear one after the other; all at once for who wants no motion."""
    begun = len(TEST.splitlines()) + 1  # the test is there at once
    whole_s = (len(lines) - begun) * STEP_S + READ_S
    styles, texts = [], []
    for number, line in enumerate(lines):
        y = MARGIN_PX + (number + 1) * LINE_PX
        color = GOOD if line.startswith("$") else BAD if line.startswith("E ") or "does not take" in line else PLAIN
        percent = max(0.0, (number - begun) * STEP_S / whole_s * 100)
        if percent:
            styles.append(
                f"@keyframes l{number}{{0%,{percent:.2f}%{{opacity:0}}{percent + 0.01:.2f}%,100%{{opacity:1}}}}"
                f"#l{number}{{animation:l{number} {whole_s:.2f}s infinite}}"
            )
        texts.append(
            f'<text id="l{number}" x="{MARGIN_PX}" y="{y}" fill="{color}" xml:space="preserve">{escape(line)}</text>'
        )
    width, height = round(CHARS_MAX * CHAR_PX + 2 * MARGIN_PX), len(lines) * LINE_PX + 2 * MARGIN_PX + 6
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="13"'
            ' font-family="ui-monospace,Menlo,Consolas,monospace">',
            "<title>A test fails, and pytest shows which rule did not take the message</title>",
            f"<style>{''.join(styles)}@media(prefers-reduced-motion:reduce){{text{{animation:none!important}}}}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1a1b26"/>',
            *texts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(lines_of_a_run()))
