"""The table of everything that can go wrong on purpose: one row each.

Knows the rows of the behaviours, and of outages and drops, which have calls of their own, as faults have. The control
API, the command line, the test kit and the documentation read it. Does not know what is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..broker.api import OutageKind
from ..broker.errors import BrokerError, Condition
from .behaviour import Parameter, Row, Value, Way
from .behaviours import (
    administration,
    faults,
    idling,
    lateness,
    moves,
    network,
    operations,
    quotas,
    stores,
    throttling,
    tokens,
    transactions,
)

_OUTAGES: Final[Mapping[OutageKind, str]] = {
    OutageKind.DOWN: "Every request to a messaging store fails.",
    OutageKind.SLOW: "Every commit of a messaging store takes longer.",
    OutageKind.FAILING: "Every commit of a messaging store fails.",
    OutageKind.FULL: "Every commit of a messaging store fails for lack of space.",
}
_DELAY: Final = Parameter("delay_ms", "The delay.", 1_000, "ms")


_DROPS: Final = (
    Row("drop-connections", "Drops", "Connections are cut now.", "entity", "TCP reset", "our own", way=Way.DROP),
    Row(
        "drop-links",
        "Drops",
        "Links are detached now.",
        "entity",
        "detach with a condition of choice",
        "our own",
        way=Way.DROP,
    ),
)
_ALWAYS: Final = (
    Row(
        "token-expired",
        "Always",
        "With `--auth sas`: the token of a link has expired, and no newer one came.",
        "connection",
        "detach, `amqp:link:detach-forced`, `Code: RenewToken`",
        "azure-sdk-for-python 23487",
        way=Way.ALWAYS,
    ),
    Row(
        "order-mixed",
        "Always",
        "Messages of a partitioned entity come from whichever partition answers first; within one the order stays.",
        "entity",
        "transfers in another order than that of sending",
        "documentation (partitioned entities); azure-service-bus 56",
        way=Way.ALWAYS,
    ),
    Row(
        "limit-stale",
        "Always",
        "The largest size of a message was changed: a link that is open keeps the old one, for what it tells and for "
        "what it takes, until it is attached again.",
        "link",
        "`max-message-size` of the attach; detach, `amqp:link:message-size-exceeded`",
        "azure-service-bus 705",
        way=Way.ALWAYS,
    ),
    Row(
        "transaction-timeout",
        "Always",
        "A transaction has been open for two minutes.",
        "transaction",
        "rejected, `No active Transaction was found`",
        "azure-sdk-for-net 6540",
        way=Way.ALWAYS,
    ),
)
_KIT: Final = (
    Row(
        "name-unknown",
        "Not by a server",
        "The host of the namespace has no address. A server can't make that: the test kit has a connection string "
        "whose host no resolver knows. The nearest that a server can do are `refuse` and `firewall`.",
        "client",
        "nothing",
        "azure-sdk-for-net 54572",
        way=Way.KIT,
    ),
)


def _rows() -> tuple[Row, ...]:
    """All rows, in the order of docs/CONDITIONS.md: behaviours and faults from their modules, outages from here."""
    outages = (
        Row(
            kind.value,
            "Outages",
            about,
            "store",
            "`com.microsoft:server-busy`, or a later outcome",
            "P18",
            (_DELAY,) if kind is OutageKind.SLOW else (),
            way=Way.OUTAGE,
        )
        for kind, about in _OUTAGES.items()
    )
    topics = (
        *(throttling, idling, tokens, moves, operations, stores),
        *(lateness, transactions, administration, quotas, network),
    )
    behaviours = (module.ROWS for module in topics)
    return (*(row for rows in behaviours for row in rows), *faults.ROWS, *outages, *_DROPS, *_ALWAYS, *_KIT)


TABLE: Final[tuple[Row, ...]] = _rows()
BEHAVIOURS: Final[Mapping[str, Row]] = {row.name: row for row in TABLE if row.way is Way.CONDITION}
"""The rows that can be conditions, by name."""


def read_values(row: Row, given: Mapping[str, Value]) -> dict[str, Value]:
    """All values of a row's parameters; BrokerError (argument-error) for a name or a value that is not allowed."""
    parameters = {each.name: each for each in row.parameters}
    for name in given:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise BrokerError(Condition.ARGUMENT_ERROR, f"{row.name} has no parameter '{name}'; it has: {known}.")
    return {name: each.read(given[name]) if name in given else each.default for name, each in parameters.items()}
