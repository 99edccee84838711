"""Keys, rights and the renewal of tokens, against a broker that verifies them."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable, Iterator

import pytest

from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.descriptions import QueueDescription
from emubus.config import Auth
from emubus.spark_connector import timing
from emubus.spark_connector.dialing import credentials
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import Connection, Credential, Endpoint, SasKey, SasToken, TokenProvider, cbs
from emubus.testing import EmubusServer

from .conftest import KEY
from .kit import endpoint_of, message, peeked

SECRET = "geheim"
KEYS = (
    SharedKey("reader", SECRET, frozenset({Right.LISTEN})),
    SharedKey("writer", SECRET, frozenset({Right.SEND})),
    SharedKey("only-a", SECRET, scope="a"),
)


@pytest.fixture(name="strict", scope="module")
def strict_server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("a"), QueueDescription("b")], auth=Auth.SAS, keys=KEYS) as server:
        yield server


@pytest.fixture(name="where")
def strict_endpoint(strict: EmubusServer) -> Endpoint:
    return endpoint_of(strict.amqp_port)


class Hands:
    """The connector's clock, moved by hand from the machine's time."""

    def __init__(self) -> None:
        self.ms = timing.now_ms()

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture(name="hands")
def manual_clock(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(cbs, "now_ms", hands.now_ms)
    monkeypatch.setattr(credentials, "now_ms", hands.now_ms)
    return hands


@pytest.fixture(name="provide")
def provider(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], object]], TokenProvider]:
    def provide(function: Callable[[str], object]) -> TokenProvider:
        module = types.ModuleType("strict_tokens")
        module.__dict__["give"] = function
        monkeypatch.setitem(sys.modules, "strict_tokens", module)
        return TokenProvider("strict_tokens:give")

    return provide


def refusal(action: Callable[[], object]) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        action()
    assert SECRET not in str(caught.value)
    return caught.value


def test_the_right_key_opens_everything(where: Endpoint) -> None:
    with Connection(where, KEY) as connection:
        sender = connection.sender("a", window=1)
        sender.send(message(b"x"), envelope=False, key=1)
        assert sender.flush() == [(1, None)]
        receiver = connection.receiver("a")
        receiver.settle(receiver.receive(1, 5), "accepted")
        assert connection.management("a/$DeadLetterQueue").peek(1, 1) is None


@pytest.mark.parametrize("credential", [SasKey(KEY.name, SECRET), SasKey("nobody", SECRET), SasToken(SECRET)])
def test_a_wrong_key_or_token_is_unauthorized(where: Endpoint, credential: Credential) -> None:
    with Connection(where, credential) as connection:
        error = refusal(lambda: connection.management("a"))
        assert (error.code, error.retriable) == (Code.UNAUTHORIZED, False)
        assert error.text.startswith("a: ")
        assert connection.usable


def test_a_key_without_send_reads_and_a_key_without_listen_writes(where: Endpoint) -> None:
    with Connection(where, SasKey("writer", SECRET)) as connection:
        sender = connection.sender("b", window=1)
        sender.send(message(b"x"), envelope=False, key=1)
        assert sender.flush() == [(1, None)]
        error = refusal(lambda: connection.receiver("b"))
        assert (error.code, error.condition) == (Code.UNAUTHORIZED, "amqp:unauthorized-access")
        assert "'Listen' claim(s) are required" in error.text
        error = refusal(lambda: connection.management("b").peek(1, 1))
        assert error.code is Code.UNAUTHORIZED
    with Connection(where, SasKey("reader", SECRET)) as connection:
        assert peeked(connection.management("b").peek(1, 1)) == [b"x"]
        error = refusal(lambda: connection.sender("b", window=1))
        assert error.code is Code.UNAUTHORIZED
        assert "'Send' claim(s) are required" in error.text


def test_a_key_of_one_entity_opens_no_other(where: Endpoint) -> None:
    with Connection(where, SasKey("only-a", SECRET)) as connection:
        connection.management("a").peek(1, 1)
        assert refusal(lambda: connection.management("b")).code is Code.UNAUTHORIZED


def test_a_signature_made_elsewhere_is_taken(where: Endpoint) -> None:
    text = SasKey("reader", SECRET).token(f"sb://{where.address_host}/a").text
    with Connection(where, SasToken(text)) as connection:
        connection.management("a").peek(1, 1)
        assert refusal(lambda: connection.management("b")).code is Code.UNAUTHORIZED


def test_a_token_is_renewed_in_time_on_the_same_connection(
    where: Endpoint, hands: Hands, provide: Callable[[Callable[[str], object]], TokenProvider]
) -> None:
    asked: list[str] = []

    def give(audience: str) -> str:
        asked.append(audience)
        return KEY.token(audience).text

    with Connection(where, provide(give)) as connection:
        node = connection.management("a")
        sender = connection.sender("a", window=1)
        hands.ms += 49 * 60_000
        node.peek(1, 1)
        assert asked == ["sb://localhost/a"]
        hands.ms += 2 * 60_000
        node.peek(1, 1)
        sender.send(message(b"x"), envelope=False, key=1)
        assert sender.flush() == [(1, None)]
        assert asked == ["sb://localhost/a"] * 2
        connection.management("b")
        assert asked[2:] == ["sb://localhost/b"]


def test_a_short_token_is_renewed_at_three_quarters_of_its_life(
    where: Endpoint, hands: Hands, provide: Callable[[Callable[[str], object]], TokenProvider]
) -> None:
    asked: list[str] = []

    def give(audience: str) -> tuple[str, float]:
        asked.append(audience)
        return KEY.token(audience).text, hands.ms / 1000 + 60

    with Connection(where, provide(give)) as connection:
        node = connection.management("a")
        hands.ms += 44_000
        node.peek(1, 1)
        assert len(asked) == 1
        hands.ms += 2_000
        node.peek(1, 1)
        assert len(asked) == 2


def test_a_renewal_that_fails_is_tried_again_while_the_old_token_is_good(
    where: Endpoint,
    hands: Hands,
    provide: Callable[[Callable[[str], object]], TokenProvider],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = 0

    def give(audience: str) -> str:
        nonlocal tries
        tries += 1
        if tries in (2, 3, 4):
            raise RuntimeError(SECRET)
        return KEY.token(audience).text

    with Connection(where, provide(give)) as connection, caplog.at_level(logging.WARNING, "emubus.spark"):
        node = connection.management("a")
        hands.ms += 51 * 60_000
        node.peek(1, 1)
        node.peek(1, 1)
        assert tries == 2
        hands.ms += 31_000
        node.peek(1, 1)
        assert tries == 3
        hands.ms += 20 * 60_000
        assert refusal(lambda: node.peek(1, 1)).code is Code.UNAUTHORIZED
        node.peek(1, 1)
        assert tries == 5
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert SECRET not in caplog.text
    assert "strict_tokens:give" in caplog.text


def test_a_given_signature_that_can_not_be_renewed_ends_with_a_clear_error(where: Endpoint, hands: Hands) -> None:
    token = KEY.token("sb://localhost/a")
    with Connection(where, SasToken(token.text)) as connection:
        node = connection.management("a")
        hands.ms += 55 * 60_000
        node.peek(1, 1)
        hands.ms += 6 * 60_000
        error = refusal(lambda: node.peek(1, 1))
    assert error.code is Code.UNAUTHORIZED
    assert "sasToken expired" in error.text


def test_nothing_that_is_logged_or_shown_has_the_key_in_it(
    where: Endpoint, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), Connection(where, SasKey("reader", SECRET)) as connection:
        connection.management("a").peek(1, 1)
        shown = repr([connection, connection.management("a"), connection.endpoint, vars(connection)])
    out, err = capfd.readouterr()
    assert SECRET not in caplog.text + out + err + shown
