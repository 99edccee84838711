"""The compiler of message selectors: what differs from SQL filters [JMS 2.0, 3.8.1].

Names are case-sensitive: the header fields of JMS, otherwise application properties. Values of different kinds are
neither equal nor unequal: the comparison is FALSE; so is an order of strings or booleans. A missing value is UNKNOWN.
Header fields have the values that Qpid JMS shows to its users.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ....codec.durations import TICKS_PER_MS
from ...errors import BrokerError
from ..compiled import CompiledFilter
from ..context import MessageContext
from ..errors import FilterError, FilterException
from ..values import COMPARISONS, Instant, Truth, Value, compare, normalise
from . import syntax
from .compiler import COMPILERS, Compiled, Compiler, Compilers
from .selector_grammar import parse_selector

_MESSAGE_ID, _USER_ID, _SUBJECT, _CORRELATION_ID, _CREATION_TIME, _GROUP_ID, _GROUP_SEQUENCE = 0, 1, 3, 5, 9, 10, 11
_PRIORITY_DEFAULT: Final = 4
_TYPED_PREFIXES: Final = ("AMQP_BINARY:", "AMQP_UUID:", "AMQP_ULONG:", "AMQP_STRING:", "AMQP_NO_PREFIX:")


def compile_selector(text: str) -> CompiledFilter:
    """Compile a selector. Raises FilterError."""
    predicate = parse_selector(text)
    try:
        test = _SelectorCompiler({}, _SELECTOR_COMPILERS).compile(predicate).evaluate
    except FilterError as error:
        raise FilterError(f"Selector: {error.problem}", line=error.line, column=error.column) from None
    return CompiledFilter(test, conditions=(test,))


class _SelectorCompiler(Compiler):
    def user_name(self, node: syntax.UserName) -> Compiled:
        """A header field of JMS, or an application property."""
        name = node.name
        read = _HEADER_FIELDS.get(name)
        if read is None:
            return Compiled(lambda context: context.named().get(name), False, True)
        return Compiled(partial(_header_field, name, read), False, True)

    def comparison(self, node: syntax.Comparison) -> Compiled:
        left, right = self.compile(node.left).evaluate, self.compile(node.right).evaluate
        test = COMPARISONS[node.operator]
        return Compiled(lambda context: _compare(test, left(context), right(context)), False, False)


_SELECTOR_COMPILERS: Final[Compilers] = {
    **COMPILERS,
    syntax.UserName: _SelectorCompiler.user_name,
    syntax.Comparison: _SelectorCompiler.comparison,
}


def _compare(test: Callable[[Any, Any], bool], left: Value, right: Value) -> Truth:
    if left is None or right is None:
        return None
    if isinstance(left, str) and test is not operator.eq and test is not operator.ne:
        return False
    return compare(test, left, right) is True


# ---------------------------------------------------------------- header fields


def _header_field(name: str, read: Callable[[MessageContext], Value], context: MessageContext) -> Value:
    try:
        return read(context)
    except BrokerError as error:
        raise FilterException(f"The header field {name} cannot be read: {error.description}") from None


def _field(position: int, context: MessageContext) -> Value:
    return normalise(context.message.field(position))


def _identifier(raw: object) -> Value:
    """Return an identifier that is no string as Qpid JMS shows it."""
    if isinstance(raw, bytes):
        return f"ID:AMQP_BINARY:{raw.hex().upper()}"
    if isinstance(raw, uuid.UUID):
        return f"ID:AMQP_UUID:{raw}"
    return f"ID:AMQP_ULONG:{raw}" if isinstance(raw, int) else normalise(raw)


def _message_id(context: MessageContext) -> Value:
    raw = context.message.field(_MESSAGE_ID)
    if not isinstance(raw, str):
        return _identifier(raw)
    if not raw.startswith("ID:"):
        return f"ID:AMQP_NO_PREFIX:{raw}"
    return f"ID:AMQP_STRING:{raw}" if raw[3:].startswith(_TYPED_PREFIXES) else str(raw)


def _timestamp(context: MessageContext) -> Value:
    created_at = _field(_CREATION_TIME, context)
    return created_at // TICKS_PER_MS if isinstance(created_at, Instant) else None


def _user_id(context: MessageContext) -> Value:
    raw = context.message.field(_USER_ID)
    return raw.decode(errors="replace") if isinstance(raw, bytes) else None


def _priority(context: MessageContext) -> Value:
    priority = context.message.priority
    return _PRIORITY_DEFAULT if priority is None else priority


_HEADER_FIELDS: Final[Mapping[str, Callable[[MessageContext], Value]]] = {
    "JMSCorrelationID": lambda context: _identifier(context.message.field(_CORRELATION_ID)),
    "JMSDeliveryMode": lambda context: "PERSISTENT" if context.message.durable else "NON_PERSISTENT",
    "JMSMessageID": _message_id,
    "JMSPriority": _priority,
    "JMSTimestamp": _timestamp,
    "JMSType": partial(_field, _SUBJECT),
    "JMSXDeliveryCount": lambda context: context.delivery_count + 1,
    "JMSXGroupID": partial(_field, _GROUP_ID),
    "JMSXGroupSeq": partial(_field, _GROUP_SEQUENCE),
    "JMSXUserID": _user_id,
}
