"""Message selectors of JMS: from the filter in an attach to a test of messages [jms 5].

Knows the descriptors of the filter, and which namespaces have selectors. Does not know the language
(`broker/rules/sql/selector_grammar.py`) and what becomes of messages that do not match.
"""

from __future__ import annotations

from typing import Final

import structlog

from ...broker.errors import BrokerError, Condition
from ...broker.message.message import Message
from ...broker.model.descriptions import DEFAULT_RULE_NAME, RuleDescription, SelectorFilter
from ...broker.model.profiles import Limits
from ...broker.rules import CompiledFilter, FilterError, FilterException, MessageContext, check_rule, compile_filter
from ...codec.types import Described
from ..wire.engine import AttachRequest

log = structlog.get_logger(__name__)

SELECTOR_DESCRIPTORS: Final = frozenset((0x0000468C00000004, "apache.org:selector-filter:string"))


class Selector:
    """A valid selector, and the filter of the source that holds it."""

    def __init__(self, text: str, compiled: CompiledFilter, source_filter: dict[str, object]) -> None:
        self.text = text
        self.source_filter = source_filter
        self._compiled = compiled
        self._is_known_to_fail = False

    def matches(self, message: Message, delivery_count: int) -> bool:
        """Whether the selector is true for a message; one on which it fails does not match. Never raises."""
        try:
            return self._compiled(MessageContext(message, delivery_count=delivery_count)) is True
        except FilterException:
            return False
        except Exception as error:  # a fault of this program costs this receiver a message, not others their batch
            if not self._is_known_to_fail:
                self._is_known_to_fail = True
                log.error("selector failed", selector=self.text, exc_info=error)
            return False


def selector_filter(request: AttachRequest) -> dict[str, object]:
    """The entries of a source's filter that are selectors: known by their descriptors under any key."""
    if request.sends:
        return {}
    return {
        key: value
        for key, value in request.filter.items()
        if key in SELECTOR_DESCRIPTORS or (isinstance(value, Described) and value.descriptor in SELECTOR_DESCRIPTORS)
    }


def selector_of(request: AttachRequest, limits: Limits) -> Selector | None:
    """The selector of a receiver; None without one, and for a blank one.

    Raises BrokerError: not-implemented where the namespace has no selectors, invalid-field for a bad one. A selector is
    never dropped: the client would get messages that are not meant for it.
    """
    found = selector_filter(request)
    if not found:
        return None
    if not limits.jms:
        raise not_supported()
    texts = [value.value if isinstance(value, Described) else value for value in found.values()]
    if len(texts) > 1 or not isinstance(texts[0], str):
        raise BrokerError(Condition.INVALID_FIELD, "A source has at most one message selector, which is a string.")
    text = str.__str__(texts[0])
    if not text.strip():
        return None
    return Selector(text, compiled_selector(text, limits), found)


def compiled_selector(text: str, limits: Limits) -> CompiledFilter:
    """Compile a selector within the limits of rules. Raises BrokerError (invalid-field) with the place of the fault."""
    own = SelectorFilter(text)
    try:
        check_rule(RuleDescription(DEFAULT_RULE_NAME, own), limits)
        return compile_filter(own)
    except FilterError as error:
        raise BrokerError(Condition.INVALID_FIELD, error.description) from None


def not_supported() -> BrokerError:
    """The error for a selector where the namespace has none."""
    return BrokerError(
        Condition.NOT_IMPLEMENTED,
        "The filter 'apache.org:selector-filter:string' (a message selector of JMS) is not supported here: the service "
        "has message selectors on a Premium namespace that is not partitioned. Receive without a selector, or from a "
        "subscription whose rule has a SQL filter.",
    )
