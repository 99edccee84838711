"""Tokens that are refused, ends of transactions that fail, and rules that can't be added for a while."""

from __future__ import annotations

import pytest

from emubus.broker.model.descriptions import RuleDescription
from emubus.codec.types import Described, Uint, Ulong

from ..amqp.asking import Asker
from ..amqp.conftest import _brokers_stop, bare, open_transaction, wire
from ..amqp.fakes import FakeQueue
from ..amqp.test_claims import NOW_S, put, sas, strict
from ..amqp.transacting import DISCHARGE, ID, command, coordinate, declare
from ..amqp.wire import DETACH, Wire, accepted
from .wires import error_of

__all__ = ["_brokers_stop", "bare", "open_transaction", "wire"]


@pytest.mark.parametrize(
    ("why", "status", "words"),
    [
        ("expired", 401, "ExpiredToken: The token is expired. Expiration time: '2023-11-14 22:13:19Z'."),
        ("signature", 401, "InvalidSignature: The token has an invalid signature."),
        ("node", 500, "The service was unable to process the request; please retry the operation."),
    ],
)
async def test_a_good_token_is_refused_once(why: str, status: int, words: str) -> None:
    wire = strict()
    wire.state.conditions.start("token-refused", count=1, values={"why": why})
    found, text = await put(wire, sas(NOW_S + 600))
    assert (found, text.startswith(words)) == (status, True)
    assert (await put(wire, sas(NOW_S + 600)))[0] == 202
    wire.lose()


async def test_a_link_is_lost_with_its_token_and_comes_back_with_a_new_one_only() -> None:
    wire = strict()
    wire.state.conditions.start("quiet-hours")
    assert (await put(wire, sas(NOW_S + 60)))[0] == 202
    wire.attach_sender()
    wire.clock.advance(61_000)
    (detach,) = await wire.turn()
    condition, text = error_of(detach)
    assert (condition, "Code: RenewToken." in text) == ("amqp:link:detach-forced", True)
    assert error_of(wire.attach_sender(handle=1, name="again")[-1])[0] == "amqp:unauthorized-access"
    assert (await put(wire, sas(NOW_S + 600)))[0] == 202
    assert wire.attach_sender(handle=2, name="with a token")[0].get(6) is not None
    wire.lose()


async def test_a_connection_has_tokens_for_few_entities() -> None:
    wire = strict()
    wire.state.conditions.start("tokens", values={"max": 1})
    assert [(await put(wire, sas(NOW_S + 600)))[0] for _ in range(2)] == [202, 202]
    status, text = await put(wire, sas(NOW_S + 600, "other"), "other")
    assert status == 403
    assert text.startswith("The maximum number of '1' tokens per connection has been reached.")
    wire.lose()


async def end(wire: Wire, *, fail: bool) -> None:
    wire.write(wire.transfer(command(Ulong(DISCHARGE), [ID, fail]), handle=9))
    await wire.turns(4)


@pytest.mark.parametrize("error", ["rollback", "unknown-id"])
async def test_a_commit_is_refused_and_rolled_back(open_transaction: Wire, error: str) -> None:
    wire = open_transaction
    wire.state.conditions.start("discharge-refused", count=1, values={"error": error})
    await end(wire, fail=False)
    assert error_of(wire.read()[0])[0] == f"amqp:transaction:{error}"
    assert wire.broker.transactions.ended == [(ID, True)]


@pytest.mark.parametrize("then", ["silence", "cut"])
async def test_a_commit_is_done_and_not_confirmed(open_transaction: Wire, then: str) -> None:
    wire = open_transaction
    wire.state.conditions.start("discharge-lost", values={"then": then})
    await end(wire, fail=False)
    assert wire.read() == []
    assert wire.broker.transactions.ended == [(ID, False)]
    assert wire.socket.closed is (then == "cut")


async def test_a_rollback_is_confirmed_a_minute_later(open_transaction: Wire) -> None:
    wire = open_transaction
    wire.state.conditions.start("rollback-hangs")
    await end(wire, fail=True)
    assert wire.broker.transactions.ended == [(ID, True)]
    wire.clock.advance(59_999)
    assert await wire.turn() == []
    wire.clock.advance(1)
    assert [frame.get(4) for frame in await wire.turn()] == [accepted]


async def test_the_coordinator_is_detached_and_the_next_transaction_needs_a_new_link(open_transaction: Wire) -> None:
    wire = open_transaction
    wire.state.conditions.start("coordinator-detached")
    (detach,) = await wire.turn()
    condition, text = error_of(detach)
    assert (condition, "publisher(link1)" in text) == ("amqp:link:detach-forced", True)
    assert wire.broker.transactions.ended == [(ID, True)]
    wire.send(0, DETACH, [Uint(9), True])
    coordinate(wire, handle=10)
    assert isinstance(declare(wire, handle=10).get(4), Described)


async def test_the_coordinator_is_in_use_while_transactions_are_declared(wire: Wire) -> None:
    coordinate(wire)
    wire.state.conditions.start("idle-link")
    wire.clock.advance(400_000)
    declare(wire)
    wire.clock.advance(400_000)
    assert await wire.turn() == []
    wire.clock.advance(200_000)
    assert [frame.code for frame in await wire.turn()] == [DETACH]


async def test_no_rule_is_added_for_a_while_after_one_was_removed_that_is_not_there(wire: Wire) -> None:
    path = "t/Subscriptions/s"
    wire.broker.queues[path.lower()] = FakeQueue()
    ask = Asker(wire, path)
    wire.broker.administration.add_rule(path, RuleDescription("there"))
    wire.state.conditions.start("rule-500", values={"ms": 5_000})
    rule = {"rule-name": "new", "rule-description": {"sql-filter": {"expression": "1=1"}}}
    assert (await ask("remove-rule", {"rule-name": "there"})).status == 200
    assert (await ask("add-rule", rule)).status == 200
    assert (await ask("remove-rule", {"rule-name": "missing"})).status == 404
    refused = await ask("add-rule", {**rule, "rule-name": "newer"})
    assert (refused.status, str(refused.condition)) == (500, "amqp:internal-error")
    wire.clock.advance(5_000)
    assert (await ask("add-rule", {**rule, "rule-name": "newer"})).status == 200
