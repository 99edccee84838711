"""The table of conditions."""

from __future__ import annotations

import pickle

import pytest

from emubus.spark_connector.conditions import CONDITION_BY_STATUS, CONDITIONS, wire_error
from emubus.spark_connector.errors import Code


@pytest.mark.parametrize("condition", CONDITIONS)
def test_an_error_has_the_code_of_its_condition_and_one_line(condition: str) -> None:
    error = wire_error(condition, "It did\nnot  work.", entity="q")
    assert (error.code, error.retriable, error.condition) == (*CONDITIONS[condition], condition)
    assert error.text.startswith(f"q: It did not work. ({condition})")
    assert "\n" not in str(error)
    assert str(error).startswith(f"[SERVICEBUS_{error.code.value}] ")


def test_a_condition_that_nobody_knows_is_a_refusal_for_good() -> None:
    error = wire_error("com.example:odd", None, entity="q")
    assert (error.code, error.retriable) == (Code.REFUSED, False)
    assert error.text == "q: the service gave no reason (com.example:odd)"


@pytest.mark.parametrize(
    "said",
    [
        "The SessionId was not set on a message, and it cannot be sent to the entity.",
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
    ],
)
def test_what_is_not_allowed_for_want_of_a_message_session_has_a_code_of_its_own(said: str) -> None:
    assert wire_error("amqp:not-allowed", said, entity="q").code is Code.SESSION_REQUIRED


def test_what_is_not_allowed_otherwise_is_a_refusal() -> None:
    assert wire_error("amqp:not-allowed", "Not here.", entity="q").code is Code.REFUSED


def test_every_status_stands_for_a_condition_of_the_table() -> None:
    assert set(CONDITION_BY_STATUS.values()) <= set(CONDITIONS)


def test_errors_pickle() -> None:
    error = wire_error("com.microsoft:server-busy", "Later.", entity="q")
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.code, copied.condition, copied.retriable) == (
        str(error),
        error.code,
        error.condition,
        error.retriable,
    )
