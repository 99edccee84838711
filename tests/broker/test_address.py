"""Entity addresses in the spellings of old and new clients."""

from __future__ import annotations

import pytest

from emubus.broker.address import Address, SubQueue, parse_address

DEAD, TRANSFER = SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER


@pytest.mark.parametrize(
    ("text", "entity", "sub_queue", "management"),
    [
        ("q", "q", SubQueue.ACTIVE, False),
        ("amqps://h:5671/a%20b/", "a b", SubQueue.ACTIVE, False),
        ("q/$deadletterqueue", "q", DEAD, False),
        ("q/$Transfer/$DeadLetterQueue/$management", "q", TRANSFER, True),
        ("t/Subscriptions/s/$DeadLetterQueue", "t/Subscriptions/s", DEAD, False),
        # JavaScript's SDK 1.x
        ("t/Subscriptions/s/$DeadLetterQueue/Subscriptions/s", "t/Subscriptions/s", DEAD, False),
        ("t/subscriptions/S/$deadletterqueue/Subscriptions/s/$management", "t/subscriptions/S", DEAD, True),
        ("sb://h/a/b/Subscriptions/s/$DeadLetterQueue/Subscriptions/s", "a/b/Subscriptions/s", DEAD, False),
        ("t/Subscriptions/s/$Transfer/$DeadLetterQueue/Subscriptions/s", "t/Subscriptions/s", TRANSFER, False),
        # and what is no such address
        (
            "t/Subscriptions/s/$DeadLetterQueue/Subscriptions/other",
            "t/Subscriptions/s/$DeadLetterQueue/Subscriptions/other",
            SubQueue.ACTIVE,
            False,
        ),
        ("q/$DeadLetterQueue/Subscriptions/q", "q/$DeadLetterQueue/Subscriptions/q", SubQueue.ACTIVE, False),
        ("Subscriptions/s/$DeadLetterQueue/Subscriptions/s",) * 2 + (SubQueue.ACTIVE, False),
        ("t/Subscriptions/s/Subscriptions/s", "t/Subscriptions/s/Subscriptions/s", SubQueue.ACTIVE, False),
        ("$DeadLetterQueue", "$DeadLetterQueue", SubQueue.ACTIVE, False),
        ("", "", SubQueue.ACTIVE, False),
    ],
)
def test_an_address_names_an_entity_a_sub_queue_and_perhaps_its_node(
    text: str, entity: str, sub_queue: SubQueue, management: bool
) -> None:
    assert parse_address(text) == Address(entity, sub_queue, management)
