"""Over HTTP, too, every message of a batch is judged before anything is stored, wherever the bad one stands."""

from __future__ import annotations

from typing import Any

import pytest

from .rest import Rest

KEYED, UNKEYED = {"Body": "x", "BrokerProperties": {"PartitionKey": "k"}}, {"Body": "x"}
GOOD: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ((KEYED, KEYED), (KEYED, UNKEYED), (UNKEYED, UNKEYED))
BAD: dict[str, dict[str, Any]] = {
    "keys that differ": {"SessionId": "s", "PartitionKey": "k"},
    "a long SessionId": {"SessionId": "s" * 129},
    "a long MessageId": {"MessageId": "m" * 129},
    "a long PartitionKey": {"PartitionKey": "k" * 129},
    "a MessageId that is a list": {"MessageId": ["m"]},
    "half a surrogate pair": {"SessionId": "\ud800"},
    "half a surrogate pair as id": {"MessageId": "\udfff"},
    "a scheduled time that is none": {"ScheduledEnqueueTimeUtc": "soon"},
}
PATHS = ("plain", "forwarding", "unique", "sessions", "topic")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_refused_with_its_batch_at_every_place(rest: Rest, name: str) -> None:
    bad = {"Body": "x", "BrokerProperties": BAD[name]}
    for path in PATHS:
        assert rest.send(path, b"x", **BAD[name]).status == 400
        for first, second in GOOD:
            for batch in ((bad, first, second), (first, bad, second), (first, second, bad)):
                assert rest.send_batch(path, *batch).status == 400, (path, batch)
    for path in ("plain", "unique", "topic/Subscriptions/one"):
        assert rest.receive(path).status == 204
    assert rest.send("plain", b"good").status == 201
    assert rest.receive("plain").content == b"good"
