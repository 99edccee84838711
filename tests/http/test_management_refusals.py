"""Requests of management that mean harm, or ask for more than a profile has: names, bodies, what SDKs always say."""

from __future__ import annotations

from pathlib import Path

import pytest

from .administering import entry, raw, running

MAX_SPAN = "P10675199DT2H48M5.4775807S"


@pytest.mark.parametrize(
    "path",
    ["/a%00b", "/a%0ab", "/a%7fb", "/%2e%2e", "/..%2fb", "/a%5cb", "/%ff", "/%", "/a%E0%80%80", "/%E2%80%AEx", "/%2fa"],
)
async def test_names_that_pretend_to_be_others_are_refused(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as server, raw(server) as http:
        before = [entity.path for entity in server.broker.namespace.entities()]
        refused = await http.put(path, "<QueueDescription/>")
        assert (refused.status, refused.root.findtext("Code")) == (400, "400")
        assert refused.detail.startswith(("SubCode=40000. Name is '", f"SubCode=40000. 'http://{http.authority}/"))
        assert [entity.path for entity in server.broker.namespace.entities()] == before


BOMB = (
    '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    f"{entry('<QueueDescription><UserMetadata>&b;</UserMetadata></QueueDescription>')}"
)
DEEP = "<a>" * 30_000 + "</a>" * 30_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (BOMB, 400),
        (BOMB.replace('"aaaaaaaaaa"', 'SYSTEM "file:///etc/hostname"'), 400),
        (DEEP, 400),
        (entry(f"<QueueDescription><UserMetadata>{DEEP}</UserMetadata></QueueDescription>"), 400),
        (entry(f"<QueueDescription><MaxDeliveryCount>{'9' * 5_000}</MaxDeliveryCount></QueueDescription>"), 400),
        (entry(f"<QueueDescription><LockDuration>P{'9' * 5_000}D</LockDuration></QueueDescription>"), 400),
        (entry(f"<QueueDescription>{'x' * 300_000}</QueueDescription>"), 413),
    ],
    ids=range(7),
)
async def test_bodies_that_are_meant_to_do_harm_are_refused(tmp_path: Path, body: str, status: int) -> None:
    async with running(tmp_path) as server, raw(server) as http:
        assert (await http("PUT", "/harmful", body)).status == status
        assert server.broker.namespace.entity("harmful") is None


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
async def test_what_sdks_say_of_their_own_accord_is_brought_within_a_smaller_profile(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, profile="ms-emulator") as server, raw(server) as http:
        size = "<MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"
        span = f"<DefaultMessageTimeToLive>{MAX_SPAN}</DefaultMessageTimeToLive>"
        made = await http.put("/of-java", f"<{kind}Description>{span}{size}</{kind}Description>")
        assert made.status == 201
        shown = (made.elements["MaxSizeInMegabytes"], made.elements["DefaultMessageTimeToLive"])
        assert shown == ("1024", "P3650D")
        refused = await http.put(
            "/too-large", f"<{kind}Description><MaxSizeInMegabytes>10240</MaxSizeInMegabytes></{kind}Description>"
        )
        words = "The property 'MaxSizeInMegabytes', must be one of the following values: 100"
        assert (refused.status, words in refused.detail) == (400, True)
