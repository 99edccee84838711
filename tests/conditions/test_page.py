"""docs/CONDITIONS.md: it agrees with the table, and its example passes."""

from __future__ import annotations

import re
from collections.abc import Callable

from docs.generate.conditions import PAGE, page
from emubus.testing import EmubusServer, QueueDescription


def test_the_page_agrees_with_the_table() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate.conditions"


def test_the_example_of_the_page_passes() -> None:
    example, _ = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    module: dict[str, Callable[[EmubusServer], None]] = {}
    exec(example, module)  # the example is ours
    (test,) = (each for name, each in module.items() if name.startswith("test_"))
    with EmubusServer([QueueDescription("queue.1")]) as server:
        test(server)
