"""The management API: namespace, queues, topics, subscriptions and rules as Atom XML over HTTP [http 2-4].

Maps requests to the broker's verbs, and gives the answers and errors that SDKs expect. `Administration` decides what
is allowed. Its routes are the last of the application: any path that no other part has taken is an entity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

import structlog
from aiohttp import hdrs, web

from ...broker.address import listed_name
from ...broker.api import Entity
from ...broker.clock import Clock
from ...broker.errors import BrokerError, Condition, WrongCharactersError
from ...broker.hosts import host_of
from ...broker.keys import Right
from ...broker.model.catalog import Description, Entry, path_of
from ...broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from ...broker.model.profiles import Partitioning, Profile
from ...broker.model.validation import is_rule_name
from ...broker.service_errors import HOST_SUFFIX
from ...conditions.strikes import AdminRequest
from ..errors import HttpRefusal, excerpt, management_error_body, refusal_of
from ..long_work import Pace
from ..markup import CONNECT, INSTANCE, element, instant, ticks
from ..resources import Resource, ResourceKind, resource_of
from ..services import Services
from ..transport.authorization import may, may_forward
from ..transport.connection import BROKEN
from .calls import ManagementCall, body_of
from .descriptions import ReadContext, subscription_in, top_level_in
from .feeds import ENTRY_TYPE, FEED_TYPE, FeedEntry, entry_markup, feed_markup, listed_entry_markup, nothing_markup
from .fields import description_markup
from .filters import OF_RULES, OF_SUBSCRIPTIONS, OF_TOP_LEVEL, EntityFacts, FilterProperty, filter_in
from .parsing import bad, description_in, local_name
from .refusals import too_large, unauthorized, wrong_characters, wrong_verb
from .rules import KIND, rule_markup, rule_of
from .views import view_of

T = TypeVar("T")

ERROR_TYPE: Final = "application/xml; charset=utf-8"
FORWARDING: Final[Mapping[str, str]] = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_letters_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""Forwarding properties, and the header with the token for the target [http 2]."""
NO_SERVICE: Final = "No service is hosted at the specified address"
NO_OPERATION: Final = "SubCode=40400. Not Found. The Operation doesn't exist"

log = structlog.get_logger(__name__)


def add_management(app: web.Application, services: Services) -> None:
    """Answer every path that no other part has taken."""
    management = Management(services)
    app.router.add_route("*", r"/{path:[\s\S]*}", management.answer)  # a name may hold a line break, and be refused


class Management:
    """Answers the requests of administration clients."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._administration = services.broker.administration
        self._clock: Clock = services.clock

    async def answer(self, request: web.Request) -> web.Response:
        """The answer to any request; a refusal has an error body."""
        target = resource_of(request.rel_url.raw_path)
        try:
            return await self._answer(request, target)
        except WrongCharactersError:
            refusal = wrong_characters(request, target)
        except BrokerError as error:
            refusal = refusal_of(error)
        except HttpRefusal as error:
            refusal = error.with_traceback(None)  # which has this frame, which has the error: a circle
        except web.HTTPRequestEntityTooLarge:
            refusal = too_large()
        except web.HTTPException:
            raise
        except BROKEN:
            raise
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            refusal = HttpRefusal(500, "SubCode=50000. Internal error; see the server's log.")
        system = f"{self._broker.name}{HOST_SUFFIX}:{target.path}"
        if target.kind in BELOW_TOPICS or target.subscription:
            system = f"{self._broker.name}:Topic:{target.entity}"
        elif target.kind is ResourceKind.SUB_QUEUE:  # azure-sdk-for-python 1826
            system = f"{self._broker.name}:Queue:{target.entity}"
        client = f"administration at {request.remote}"
        self._broker.refusals.refused_because(client, target.path, str(refusal.status), refusal.detail)
        body = management_error_body(refusal, system, self._clock.now_ms())
        return web.Response(status=refusal.status, body=body.encode(), headers={hdrs.CONTENT_TYPE: ERROR_TYPE})

    async def _answer(self, request: web.Request, target: Resource) -> web.Response:
        verbs = VERBS.get(target.kind)
        if verbs is None:
            raise HttpRefusal(404, NO_SERVICE)
        verb = verbs.get(request.method)
        if verb is None:
            raise wrong_verb(request.method)
        if target.is_open and target.kind not in LISTS:
            raise HttpRefusal(404, NO_SERVICE)
        address = f"/{quote(target.address)}"  # always taken as a path
        is_public = target.kind is ResourceKind.ROOT
        if (
            not is_public
            and not may(request, self._services, address, Right.MANAGE)
            and not self._is_nothing(request, target)
        ):
            raise unauthorized(request, target)
        body = await body_of(request) if request.method == hdrs.METH_PUT else b""
        call = ManagementCall(request, target, body)
        if self._services.conditions.are_on:
            return await self._under_conditions(verb, call)
        return await _awaited_response(verb(self, call))

    async def _under_conditions(self, verb: Verb, call: ManagementCall) -> web.Response:
        """The answer while conditions are on: a refusal in place of it, or after what was asked for is done."""
        conditions, target = self._services.conditions, call.target
        path = target.address if target.kind not in (ResourceKind.RULES, ResourceKind.RULE) else target.path
        asked = AdminRequest(call.request.method, path or target.path, call.is_create)
        refusal = conditions.before_admin(asked)
        if refusal is not None and not refusal.is_done:
            raise HttpRefusal(refusal.status, refusal.text)
        response = await _awaited_response(verb(self, call))
        conditions.after_admin(asked)
        if refusal is not None:
            raise HttpRefusal(refusal.status, refusal.text)
        return response

    # ---- queues and topics

    def get_entity(self, call: ManagementCall) -> web.Response:
        """A queue or topic; a feed without entries if there is none."""
        entity = self._queue_or_topic(call.target.entity)
        if entity is None:
            return _xml(FEED_TYPE, nothing_markup(call.address(), self._clock.now_ms()))
        return self._entity_answer(call, entity)

    def put_entity(self, call: ManagementCall) -> web.Response:
        """Create a queue or topic, or with If-Match change it."""
        entity = self._queue_or_topic(call.target.entity)
        if call.is_update and entity is None:
            raise HttpRefusal(404, NO_OPERATION)
        node = description_in(call.body)
        known = entity.description if call.is_update and entity is not None else None
        name = known.name if known is not None else call.target.entity
        return self._put(call, top_level_in(node, name, known, self._read_context(call)))

    def delete_entity(self, call: ManagementCall) -> web.Response:
        """Delete a queue, or a topic with its subscriptions."""
        entity = self._queue_or_topic(call.target.entity)
        if entity is None:
            raise HttpRefusal(404, NO_SERVICE)
        return self._delete(entity)

    async def list_queues(self, call: ManagementCall) -> web.Response:
        return await self._list_top_level(call, QueueDescription, "Queues")

    async def list_topics(self, call: ManagementCall) -> web.Response:
        return await self._list_top_level(call, TopicDescription, "Topics")

    async def _list_top_level(self, call: ManagementCall, kind: type[Description], title: str) -> web.Response:
        names = [
            entry.description.name
            for entry in self._broker.namespace.catalog.entries()
            if type(entry.description) is kind
        ]
        found = [entity for name in names if (entity := self._broker.namespace.entity(name)) is not None]
        return await self._feed(call, title, found, self._listed, self._is_meant(call, OF_TOP_LEVEL), self._is_there)

    def _listed(self, call: ManagementCall, entity: Entity) -> tuple[FeedEntry, str]:
        """A queue or topic as lists show it: with its name in lower case [http 3]."""
        name = listed_name(entity.path)
        entry = self._feed_entry(call, entity, call.address_of(name))
        return replace(entry, title=name), f"../{name}{call.short_query}"

    # ---- subscriptions

    def get_subscription(self, call: ManagementCall) -> web.Response:
        return self._entity_answer(call, self._subscription(call.target))

    def put_subscription(self, call: ManagementCall) -> web.Response:
        """Create a subscription, or with If-Match change it."""
        target = call.target
        entity = self._broker.namespace.entity(target.subscription_path)
        known = entity.description if call.is_update and entity is not None else None
        node = description_in(call.body)
        topic_name, name = target.entity, target.subscription
        topic = self._queue_or_topic(topic_name)
        if topic is not None:
            topic_name = topic.path
        if isinstance(known, SubscriptionDescription):
            name = known.name
        description = subscription_in(node, topic_name, name, known, self._read_context(call))
        try:
            return self._put(call, description)
        except BrokerError as error:
            if error.condition is Condition.NOT_FOUND:
                raise self._not_found(target) from None
            if error.condition is Condition.ENTITY_ALREADY_EXISTS:
                raise self._exists(target) from None
            raise

    def delete_subscription(self, call: ManagementCall) -> web.Response:
        return self._delete(self._subscription(call.target))

    async def list_subscriptions(self, call: ManagementCall) -> web.Response:
        topic = self._queue_or_topic(call.target.entity)
        if topic is None or not isinstance(topic.description, TopicDescription):
            raise HttpRefusal(404, f"Entity '{self._broker.name}:Topic:{call.target.entity}' was not found")
        entities = sorted(
            self._broker.namespace.subscriptions_of(topic.path).entities(),
            key=lambda each: each.description.name.lower(),
        )
        segment = call.target.path.rpartition("/")[2]  # in the client's spelling: it takes the names from here

        def listed(call: ManagementCall, entity: Entity) -> tuple[FeedEntry, str]:
            name = entity.description.name
            entry = self._feed_entry(call, entity, call.address_of(f"{call.target.path}/{name}"))
            return entry, f"{segment}/{name}{call.short_query}"

        is_meant = self._is_meant(call, OF_SUBSCRIPTIONS)
        return await self._feed(call, "Subscriptions", entities, listed, is_meant, self._is_there)

    # ---- rules

    def get_rule(self, call: ManagementCall) -> web.Response:
        return self._rule_answer(call, self._rule(call.target))

    def put_rule(self, call: ManagementCall) -> web.Response:
        """Add a rule to a subscription, or with If-Match change it."""
        target = call.target
        node = description_in(call.body)
        if local_name(node) != KIND:
            raise bad(f"The description is a '{excerpt(local_name(node))}'; at a rule's path it must be a {KIND}.")
        if call.is_create and not is_rule_name(target.rule, self._broker.limits):
            raise wrong_characters(call.request, target)
        subscription = self._subscription(target)
        rule = rule_of(subscription.description, node, target.rule)
        try:
            change = self._administration.replace_rule if call.is_update else self._administration.add_rule
            change(subscription.path, rule)
        except BrokerError as error:
            if error.condition is Condition.NOT_FOUND:
                raise self._not_found(target) from None
            if error.condition is Condition.ENTITY_ALREADY_EXISTS:
                raise self._exists(target) from None
            raise
        return self._rule_answer(call, self._rule(target))

    def delete_rule(self, call: ManagementCall) -> web.Response:
        rule = self._rule(call.target)
        self._administration.remove_rule(call.target.subscription_path, rule.name)
        return web.Response(status=200)

    async def list_rules(self, call: ManagementCall) -> web.Response:
        self._subscription(call.target)
        rules = list(self._administration.rules(call.target.subscription_path))
        text = call.request.query.get("$filter")
        is_meant = filter_in(text, OF_RULES) if text else None
        segment = call.target.path.rpartition("/")[2]

        def listed(call: ManagementCall, rule: RuleDescription) -> tuple[FeedEntry, str]:
            entry = _rule_entry(rule, call.address_of(f"{call.target.path}/{rule.name}"))
            return entry, f"{segment}/{rule.name}{call.short_query}"

        if is_meant is None:
            return await self._feed(call, "Rules", rules, listed)
        return await self._feed(call, "Rules", rules, listed, lambda rule: is_meant(_facts_of_rule(rule)))

    # ---- the namespace

    def get_root(self, call: ManagementCall) -> web.Response:
        """The feed of the public services, of which there are none. It needs no token.

        The service's troubleshooting guides let one open the namespace's address in a browser to see it.
        """
        return _xml(FEED_TYPE, nothing_markup(call.address(), self._clock.now_ms()))

    def get_namespace(self, call: ManagementCall) -> web.Response:
        limits, name = self._broker.limits, self._broker.name
        created_at = self._broker.namespace.catalog.created_at
        updated = [
            entry.updated_at for entry in self._broker.namespace.catalog.entries() if entry.updated_at is not None
        ]
        premium = limits.profile is Profile.PREMIUM
        units = limits.partition_count if limits.partitioning is Partitioning.ALWAYS else 1
        parts = (
            element("CreatedTime", instant(created_at)),
            element("MessagingSKU", "Premium" if premium else "Standard"),
            element("MessagingUnits", str(units)) if premium else "",
            element("ModifiedTime", instant(max([created_at, *updated], key=lambda at: at or 0))),
            element("Name", name),
            element("NamespaceType", "Messaging"),
        )
        content = f'<NamespaceInfo xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{"".join(parts)}</NamespaceInfo>'
        entry = FeedEntry(call.address(), name, None, self._clock.now_ms(), content, author=name)
        return _xml(ENTRY_TYPE, entry_markup(entry))

    # ---- helpers

    def _is_nothing(self, request: web.Request, target: Resource) -> bool:
        """Whether a request reads a missing queue or topic: the answer needs no right on it."""
        return (
            target.kind is ResourceKind.ENTITY
            and request.method == "GET"
            and self._queue_or_topic(target.entity) is None
        )

    def _is_meant(
        self, call: ManagementCall, properties: Mapping[str, FilterProperty]
    ) -> Callable[[Entity], bool] | None:
        """Tells which entities the request's `$filter` means; None without one."""
        text = call.request.query.get("$filter")
        if not text:
            return None
        is_meant = filter_in(text, properties)
        return lambda entity: is_meant(self._facts(entity))

    def _is_there(self, entity: Entity) -> bool:
        """Whether an entity has not been deleted since a list began."""
        return self._broker.namespace.entity(entity.path) is entity

    def _facts(self, entity: Entity) -> EntityFacts:
        entry = self._entry(entity)
        accessed_at = self._administration.accessed_at(entity)
        is_topic = isinstance(entity.description, TopicDescription)
        totals = partial(self._broker.namespace.totals_of_topic, entity) if is_topic else entity.totals_now
        return EntityFacts(entity.path, entry.created_at, entry.updated_at, accessed_at, lambda: sum(totals().messages))

    def _may_forward(self, call: ManagementCall, description: Description) -> None:
        """HttpRefusal (401) if the client may not send to the forwarding target."""
        known = self._broker.namespace.entity(path_of(description))
        for field, header in FORWARDING.items():
            target = getattr(description, field, None)
            if target is None or (known is not None and getattr(known.description, field, None) == target):
                continue
            if not may_forward(call.request, self._services, target, header):
                # The service says no more than the first word (azure-sdk-for-java 22657).
                problem = f"Send claim is required on the forwarding target '{excerpt(target)}' ({header})."
                raise HttpRefusal(401, f"SubCode=40100. Unauthorized. {problem}")

    def _put(self, call: ManagementCall, description: Description) -> web.Response:
        self._may_forward(call, description)
        host = host_of(f"//{call.request.host}")
        if call.is_update:
            return self._entity_answer(call, self._administration.update(description, own_name=host))
        return self._entity_answer(call, self._administration.create(description, targets_exist=True, own_name=host))

    def _delete(self, entity: Entity) -> web.Response:
        tag = ticks(self._entry(entity).updated_at)
        self._administration.delete(entity.path)
        return web.Response(status=200, headers={hdrs.ETAG: tag})

    def _queue_or_topic(self, name: str) -> Entity | None:
        """The queue or topic of that name; None without one."""
        entity = self._broker.namespace.entity(name)
        return None if entity is None or isinstance(entity.description, SubscriptionDescription) else entity

    def _subscription(self, target: Resource) -> Entity:
        entity = self._broker.namespace.entity(target.subscription_path)
        if entity is None:
            raise self._not_found(target)
        return entity

    def _rule(self, target: Resource) -> RuleDescription:
        for rule in self._administration.rules(self._subscription(target).path):
            if entity_key(rule.name) == entity_key(target.rule):
                return rule
        raise self._not_found(target)

    def _name_of(self, target: Resource) -> str:
        """The name of a subscription or rule in the service's errors."""
        parts = "|".join(part for part in (target.entity, target.subscription, target.rule) if part)
        return f"{self._broker.name}:Topic:{parts}"

    def _not_found(self, target: Resource) -> HttpRefusal:
        return HttpRefusal(404, f"Entity '{self._name_of(target)}' was not found")

    def _exists(self, target: Resource) -> HttpRefusal:
        return HttpRefusal(409, f"The messaging entity '{self._name_of(target)}' already exists.")

    def _read_context(self, call: ManagementCall) -> ReadContext:
        return ReadContext(self._broker.limits, call.version)

    def _entry(self, entity: Entity) -> Entry:
        entry = self._broker.namespace.catalog.entry(entity.path)
        assert entry is not None
        return entry

    def _entity_answer(self, call: ManagementCall, entity: Entity) -> web.Response:
        subscription = isinstance(entity.description, SubscriptionDescription)
        entry = self._feed_entry(call, entity, call.address(subscription=subscription))
        status = 201 if call.is_create else 200
        return _xml(ENTRY_TYPE, entry_markup(entry), status, ticks(self._entry(entity).updated_at))

    def _feed_entry(self, call: ManagementCall, entity: Entity, address: str) -> FeedEntry:
        entry = self._entry(entity)
        description = entity.description
        content = description_markup(view_of(self._services, entity, call.version, details=not call.is_change))
        top_level = not isinstance(description, SubscriptionDescription)
        return FeedEntry(
            address,
            description.name,
            entry.created_at,
            entry.updated_at,
            content,
            author=self._broker.name if top_level else None,
        )

    def _rule_answer(self, call: ManagementCall, rule: RuleDescription) -> web.Response:
        entry = _rule_entry(rule, call.address(subscription=True))
        return _xml(ENTRY_TYPE, entry_markup(entry), 201 if call.is_create else 200, ticks(rule.created_at))

    async def _feed(
        self,
        call: ManagementCall,
        title: str,
        things: Sequence[T],
        listed: Callable[[ManagementCall, T], tuple[FeedEntry, str]],
        is_meant: Callable[[T], bool] | None = None,
        is_there: Callable[[T], bool] | None = None,
    ) -> web.Response:
        """The page of a list that the request asks for. Cut, since a page may have thousands of entries."""
        pace, address, (skip, top) = Pace(self._clock.stopwatch_us), call.address(), call.page()
        found = list(things)
        if is_meant is not None:
            found = []
            for thing in things:
                await pace.step()
                if (is_there is None or is_there(thing)) and is_meant(thing):
                    found.append(thing)
        parts: list[str] = []
        for thing in found[skip : skip + top]:
            await pace.step()
            if is_there is None or is_there(thing):
                parts.append(listed_entry_markup(address, *listed(call, thing)))
        following = call.page_address(skip + top, top) if top and skip + top < len(found) else None
        return _xml(FEED_TYPE, feed_markup(title, address, self._clock.now_ms(), parts, following))


async def _awaited_response(answer: web.Response | Awaitable[web.Response]) -> web.Response:
    """What a verb has answered; lists take a while."""
    return answer if isinstance(answer, web.Response) else await answer


Verb = Callable[[Management, ManagementCall], web.Response | Awaitable[web.Response]]

VERBS: Final[Mapping[ResourceKind, Mapping[str, Verb]]] = {
    # Health checks ask the root with HEAD, as wget --spider; aiohttp leaves out the body.
    ResourceKind.ROOT: {"GET": Management.get_root, "HEAD": Management.get_root},
    ResourceKind.NAMESPACE: {"GET": Management.get_namespace},
    ResourceKind.QUEUES: {"GET": Management.list_queues},
    ResourceKind.TOPICS: {"GET": Management.list_topics},
    ResourceKind.ENTITY: {
        "GET": Management.get_entity,
        "PUT": Management.put_entity,
        "DELETE": Management.delete_entity,
    },
    ResourceKind.SUB_QUEUE: {},  # has no description: its counts are those of its entity
    ResourceKind.SUBSCRIPTIONS: {"GET": Management.list_subscriptions},
    ResourceKind.SUBSCRIPTION: {
        "GET": Management.get_subscription,
        "PUT": Management.put_subscription,
        "DELETE": Management.delete_subscription,
    },
    ResourceKind.RULES: {"GET": Management.list_rules},
    ResourceKind.RULE: {
        "GET": Management.get_rule,
        "PUT": Management.put_rule,
        "DELETE": Management.delete_rule,
    },
}
BELOW_TOPICS: Final = frozenset(
    {ResourceKind.SUBSCRIPTIONS, ResourceKind.SUBSCRIPTION, ResourceKind.RULES, ResourceKind.RULE}
)
LISTS: Final = frozenset(
    {
        ResourceKind.NAMESPACE,
        ResourceKind.QUEUES,
        ResourceKind.TOPICS,
        ResourceKind.SUBSCRIPTIONS,
        ResourceKind.RULES,
    }
)


def _facts_of_rule(rule: RuleDescription) -> EntityFacts:
    return EntityFacts(rule.name, rule.created_at, rule.created_at, None, lambda: 0)


def _rule_entry(rule: RuleDescription, address: str) -> FeedEntry:
    return FeedEntry(address, rule.name, rule.created_at, rule.created_at, rule_markup(rule))


def _xml(content_type: str, text: str, status: int = 200, tag: str | None = None) -> web.Response:
    headers = {hdrs.CONTENT_TYPE: content_type}
    if tag is not None:
        headers[hdrs.ETAG] = tag
    return web.Response(status=status, body=text.encode(), headers=headers)
