"""The load as applications make it: what it says of messages that are missing or were completed twice."""

from __future__ import annotations

import pytest
from mixed import Run

STRING = "Endpoint=sb://localhost:5672;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"


@pytest.mark.parametrize(
    ("got", "problems"),
    [
        (["a 1", "a 2"], []),
        (["a 2"], ["1 messages are missing, 'a 1' for one"]),
        (["a 1", "a 2", "a 2"], ["1 messages were completed twice, 'a 2' for one"]),
    ],
)
async def test_a_run_with_missing_or_doubled_messages_says_so(got: list[str], problems: list[str]) -> None:
    run = Run(STRING, 0, 1)
    run.sent.update(["a 1", "a 2"])
    run.got.update(got)
    assert run.problems() == problems
