"""How much a search does: one look at each message for count, groups and page, and none if nothing has changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.admin.overview import Overview, Seen
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer
from emubus.web.messages.filter import RUN_BYTES_MAX, RUN_COUNT, MessageFilter, runs
from emubus.web.messages.search import Found, Query
from emubus.web.messages.survey import Survey, Surveys

from .namespace import send

COUNT = 300
NUMBERS = count(1)
PAGE = 25


class Searches:
    """Searches of one queue; `looked` counts how often each message was looked at since the last one."""

    def __init__(self, server: EmubusServer, name: str) -> None:
        self._server = server
        self.name = name
        self._surveys = Surveys(server._services.clock)
        self._overview = Overview(server._services.broker.namespace)
        self.query = Query(self._overview.entity(name), SubQueue.ACTIVE, PAGE)
        self.looked: Counter[int] = Counter()

    def find(self, is_meant: Callable[[Seen], bool], query: Query, group: str = "") -> tuple[Survey, Found]:
        self.looked.clear()

        def sieve(seen: Seen) -> bool:
            self.looked[seen.sequence_number] += 1
            return is_meant(seen)

        asked = replace(query, filter=MessageFilter((sieve,)))
        return self._server.run(self._surveys.with_page(self._overview, asked, is_meant, group))


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def searches(request: pytest.FixtureRequest, server: EmubusServer) -> Searches:
    name = f"searched-{next(NUMBERS)}"
    server.create(QueueDescription(name, enable_partitioning=request.param))
    server.freeze()
    for first in range(0, COUNT, 10):
        messages = [NewMessage(b"m%d." % n, {"subject": str(n % 3)}) for n in range(first, first + 10)]
        send(server, name, *messages)
        server.advance(1_000)
    return Searches(server, name)


def nothing(_: Seen) -> bool:
    return False


def a_tenth(seen: Seen) -> bool:
    return re.search(rb"m\d*0\.", seen.encoded) is not None


def everything(_: Seen) -> bool:
    return True


@pytest.mark.parametrize("is_newest_first", [False, True], ids=["oldest", "newest"])
@pytest.mark.parametrize(("is_meant", "found_count"), [(nothing, 0), (a_tenth, COUNT // 10), (everything, COUNT)])
def test_count_groups_and_page_take_one_look_at_each_message(
    searches: Searches, is_meant: Callable[[Seen], bool], found_count: int, is_newest_first: bool
) -> None:
    query = replace(searches.query, is_newest_first=is_newest_first)
    survey, found = searches.find(is_meant, query, "subject")
    assert set(searches.looked.values()) == {1}
    assert len(searches.looked) == COUNT
    assert (survey.count, sum(survey.values.values())) == (found_count, found_count)
    assert len(found.messages) == min(PAGE, found_count)
    assert (found.following is None) == (found_count <= PAGE)
    assert not survey.is_cut


def test_what_is_counted_is_remembered_until_a_message_comes(searches: Searches, server: EmubusServer) -> None:
    for is_meant in (nothing, a_tenth):
        searches.find(is_meant, searches.query)
    assert searches.find(nothing, searches.query)[1].messages == []
    assert not searches.looked
    _, found = searches.find(a_tenth, searches.query)
    assert max(searches.looked.values()) == 1
    after, rest = searches.find(a_tenth, replace(searches.query, first=found.following or 0))
    assert (after.count, len(rest.messages), rest.following) == (COUNT // 10 - PAGE, COUNT // 10 - PAGE, None)
    send(server, searches.name, NewMessage(b"another"))
    searches.find(nothing, searches.query)
    assert len(searches.looked) == COUNT + 1


def test_pages_from_the_newest_on_have_each_message_once(searches: Searches) -> None:
    seen: list[int] = []
    query = replace(searches.query, is_newest_first=True)
    while True:
        _, found = searches.find(everything, query)
        seen += (each.sequence_number for each in found.messages)
        if found.following is None:
            break
        query = replace(query, skip=found.following)
    assert len(seen) == len(set(seen)) == COUNT


def test_messages_are_looked_at_in_runs_of_so_many_and_so_large_at_most() -> None:
    sizes = [10] * (2 * RUN_COUNT + 1) + [RUN_BYTES_MAX - 1, 2, RUN_BYTES_MAX + 5, 1]
    messages = [Seen(0, number, bytes(size), None) for number, size in enumerate(sizes)]
    found = [run for run in runs(messages) if run]
    assert [each for run in found for each in run] == messages
    assert max(map(len, found)) == RUN_COUNT
    assert all(len(run) == 1 or sum(len(each.encoded) for each in run) <= RUN_BYTES_MAX for run in found)
