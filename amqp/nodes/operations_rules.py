"""The `$management` operations on the rules of a subscription [wire 7.4].

Knows what each one's body holds. Does not know what a rule is: `broker.rules` turns it into AMQP values and back.
"""

from __future__ import annotations

from ...broker.errors import BrokerError, Condition
from ...broker.rules import rule_from_amqp, rule_to_amqp
from ...codec.encode import encode
from .operations import NO_CONTENT, Body, Context, Result, encoded_fields, encoded_list


async def add_rule(context: Context, body: Body) -> Result:
    rule = rule_from_amqp(body.text("rule-name"), body.map("rule-description"))
    try:
        context.broker.administration.add_rule(context.address, rule)
    except BrokerError as error:
        raise error.in_service_words from None
    return Result()


async def remove_rule(context: Context, body: Body) -> Result:
    context.broker.administration.remove_rule(context.address, body.text("rule-name"))
    return Result()


async def enumerate_rules(context: Context, body: Body) -> Result:
    """The rules, a page at a time, as described lists."""
    skip, count = body.integer("skip", 0), body.count("top")
    if skip < 0:
        raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, "The field 'skip' must not be negative.")
    page = context.broker.administration.rules(context.address)[skip : skip + count]
    if not page:
        return Result(NO_CONTENT, description="There are no more rules.")
    rows = [encoded_fields({"rule-description": encode(rule_to_amqp(rule))}) for rule in page]
    return Result(body=encoded_fields({"rules": encoded_list(rows)}))
