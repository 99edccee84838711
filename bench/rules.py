"""Cost of finding the copies of a message by a topic's rules: `python bench/rules.py [--quick]`.

Measures `RuleIndex.matches` alone, with a fresh context for each of many messages, for 1 to 1 000 subscriptions with
one rule each. No server, no store. "selective" rules match one subscription (the messages go round them), "scanned"
ones cannot be indexed. Prints microseconds per message; the last lines have the cost of the parser, once and per
filter.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emubus.broker.message.message import Message, parse_message
from emubus.broker.model.descriptions import CorrelationFilter, Filter, RuleDescription, SqlFilter, TrueFilter
from emubus.broker.rules import MessageContext, RuleIndex, compile_filter
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Ulong

COUNTS: Final = (1, 10, 100, 1_000)
MESSAGES: Final = 1_000  # different ones, so that nothing is measured that only the first look at a message costs

_Make = Callable[[int], RuleDescription]


def _rule(make: Callable[[int], Filter], action: str | None = None) -> _Make:
    return lambda number: RuleDescription("rule", make(number), action)


CASES: Final[dict[str, _Make]] = {
    "true": _rule(lambda _: TrueFilter()),
    "correlation, selective": _rule(lambda number: CorrelationFilter(label=f"l{number}")),
    "correlation, 3 parts": _rule(
        lambda number: CorrelationFilter(to="t", label=f"l{number}", properties={"region": "eu"})
    ),
    "correlation, property": _rule(lambda number: CorrelationFilter(properties={"number": number})),
    "sql =, selective": _rule(lambda number: SqlFilter(f"number = {number} AND region LIKE 'e%'")),
    "sql =, none": _rule(lambda number: SqlFilter(f"colour = 'c{number}' AND region LIKE 'e%'")),
    "sql >, scanned": _rule(lambda number: SqlFilter(f"number > {number + 1_000_000}")),
    "sql LIKE, scanned": _rule(lambda number: SqlFilter(f"region LIKE '%x{number}' OR sys.Label LIKE 'm%'")),
    "sql action, selective": _rule(
        lambda number: SqlFilter(f"number = {number}"), "SET sys.Label = 'copy'; SET number = number + 1"
    ),
}


def _message(number: int) -> Message:
    properties = ["id", None, "t", f"l{number}"]
    user = {"number": number, "region": "eu", "priority": 5}
    sections = ((0x73, properties), (0x74, user), (0x75, b"x" * 1024))
    return parse_message(b"".join(encode_described(Ulong(code), encode(value)) for code, value in sections))


def _measure(make: _Make, count: int, duration_s: float) -> float:
    """Microseconds per message."""
    index = RuleIndex()
    for number in range(count):
        index.put_subscription(f"s{number}", [make(number)])
    messages = [_message(number % count) for number in range(MESSAGES)]
    matches, best_s = index.matches, float("inf")
    end_s = time.perf_counter() + duration_s
    while time.perf_counter() < end_s:
        for start in range(0, MESSAGES, 50):
            batch = messages[start : start + 50]
            began_s = time.perf_counter()
            for message in batch:
                matches(MessageContext(message))
            best_s = min(best_s, (time.perf_counter() - began_s) / len(batch))
    return best_s * 1e6


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs: a test, not a measurement")
    parser.add_argument("--data", help="ignored: nothing is stored")
    duration_s = 0.05 if parser.parse_args(argv).quick else 0.5
    began_s = time.perf_counter()
    compile_filter(SqlFilter("a = 1"))
    first_s = time.perf_counter() - began_s
    texts = [f"number = {number} AND region LIKE 'e%'" for number in range(500)]
    began_s = time.perf_counter()
    for text in texts:
        compile_filter(SqlFilter(text))
    each_s = (time.perf_counter() - began_s) / len(texts)
    print(f"{'rules, us/message':<26}" + "".join(f"{count:>9} sub" for count in COUNTS), flush=True)
    for name, make in CASES.items():
        figures = [_measure(make, count, duration_s) for count in COUNTS]
        print(f"{name:<26}" + "".join(f"{figure:>13.2f}" for figure in figures), flush=True)
    print(f"first SQL filter {first_s * 1e3:.0f} ms, each further one {each_s * 1e6:.0f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
