"""Reads the entities and rules of a live namespace over its administration protocol, as its SDKs do [http 2, 3].

Knows requests, pages and tokens. Reads descriptions with the tables of the server's own management API. Changes nothing
in the namespace and reads no messages.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ..broker.access import sign
from ..broker.address import strip_authority
from ..broker.clock import Clock
from ..broker.model.catalog import Description
from ..broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    with_fields,
)
from ..broker.model.profiles import LIMITS, Limits
from ..connection_string import ConnectionString
from ..exits import EXIT_FAILED, EXIT_NO_SERVER, EXIT_USAGE, CommandError
from ..kit.http_connection import DEFAULT_PORTS, CaError, connector, read_whole
from ..terminal import reason_of
from ..web.atom.descriptions import ReadContext, subscription_in, top_level_in
from ..web.atom.parsing import child, children, local_name, text_of
from ..web.atom.rules import rule_of
from ..web.errors import HttpRefusal

VERSION: Final = "2021-05"
PAGE: Final = 100
TIMEOUT_S: Final = 60.0
LIST_ENTRIES_MAX: Final = 10_000
"""As many queues and topics as a namespace may have."""
ENTRIES_MAX: Final = 50_000
"""Of all lists together."""
_TARGETS: Final = ("forward_to", "forward_dead_letters_to")
_TIER_BYTES: Final = frozenset(each.message_bytes_max for each in LIMITS.values())
TOKEN_LIFE_S: Final = 3_600
EMULATOR_PORT: Final = 5300


class LiveNamespace:
    """A namespace that a connection string names; the key needs Manage. CommandError if it refuses or is silent.

    `passed_over` grows while it is read: what can't be imported, one line each.
    """

    def __init__(self, source: ConnectionString, *, tls: bool, ca_file: Path | None, limits: Limits) -> None:
        scheme, port = ("https", DEFAULT_PORTS["https"]) if tls else ("http", EMULATOR_PORT)
        try:
            self._connection = connector(scheme, source.host, source.port or port, TIMEOUT_S, ca_file)()
        except (CaError, ValueError) as error:
            raise CommandError(str(error), EXIT_USAGE) from error
        self._source = source
        self._context = ReadContext(limits, VERSION)
        self._entry_count = 0
        self.passed_over: list[str] = []

    def close(self) -> None:
        self._connection.close()

    def entities(self) -> Iterator[Description]:
        """Queues, then each topic with its subscriptions behind it."""
        for name, node in self._feed("$Resources/Queues"):
            found = top_level_in(node, name, None, self._context)
            assert isinstance(found, QueueDescription)
            yield _with_local_targets(found)
        for name, node in self._feed("$Resources/Topics"):
            topic = top_level_in(node, name, None, self._context)
            assert isinstance(topic, TopicDescription)
            yield _with_local_targets(topic)
            for own, each in self._feed(f"{name}/Subscriptions"):
                subscription = subscription_in(each, name, own, None, self._context)
                if subscription.jms is not None and not own.endswith(subscription.jms.suffix):
                    self.passed_over.append(f"{subscription.path}: it goes with its JMS consumers")
                    continue
                yield _with_local_targets(replace(subscription, rules=tuple(self._rules(subscription))))

    def _rules(self, subscription: SubscriptionDescription) -> Iterator[RuleDescription]:
        return (rule_of(subscription, node, name) for name, node in self._feed(f"{subscription.path}/Rules"))

    def _feed(self, path: str) -> Iterator[tuple[str, Element]]:
        """Name and description of each entry of a list, page by page."""
        skip = 0
        while True:
            entries = [each for each in children(self._get(path, skip)) if local_name(each) == "entry"]
            self._entry_count += len(entries)
            if skip + len(entries) > LIST_ENTRIES_MAX or self._entry_count > ENTRIES_MAX:
                raise CommandError(f"the lists of {self._source.host} do not end: {path} has {skip} entries and more")
            for entry in entries:
                title, content = child(entry, "title"), child(entry, "content")
                if title is None or content is None or not len(content):
                    raise CommandError(
                        f"the answer of {self._source.host} for {path} has an entry without a description"
                    )
                yield text_of(title), content[0]
            if len(entries) < PAGE:
                return
            skip += PAGE

    def _get(self, path: str, skip: int) -> Element:
        target = f"/{quote(path)}?api-version={VERSION}&$skip={skip}&$top={PAGE}"
        try:
            self._connection.request("GET", target, headers={"Authorization": self._token()})
            answer = self._connection.getresponse()
            body = read_whole(answer)
        except (OSError, http.client.HTTPException) as error:
            reason = reason_of(error)
            raise CommandError(f"no answer from {self._source.host}: {reason}", EXIT_NO_SERVER) from error
        if answer.status != 200:
            raise CommandError(f"{self._source.host} refuses to list {path}: HTTP status {answer.status}", EXIT_FAILED)
        try:
            found: Element = fromstring(body, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError) as error:
            raise CommandError(f"the answer of {self._source.host} for {path} is no XML: {error}") from error
        return found

    def _token(self) -> str:
        expiry = str(Clock().now_ms() // 1000 + TOKEN_LIFE_S)
        resource = quote(f"https://{self._source.host}/", safe="")
        signature = quote(sign(resource, expiry, self._source.key), safe="")
        name = quote(self._source.key_name, safe="")
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}"


def read_namespace(
    source: ConnectionString, *, tls: bool, ca_file: Path | None, limits: Limits
) -> tuple[list[Description], Sequence[str]]:
    """All entities of a live namespace, and what is passed over, one line each. CommandError."""
    namespace = LiveNamespace(source, tls=tls, ca_file=ca_file, limits=limits)
    try:
        return list(namespace.entities()), namespace.passed_over
    except HttpRefusal as error:
        raise CommandError(f"a description of {source.host} can't be read: {error.detail}") from error
    finally:
        namespace.close()


def _with_local_targets(description: Description) -> Description:
    """The description with its targets as paths, and without what the tier decides.

    The service returns addresses with its own host, and the tier's largest message as if it had been set.
    """
    changed: dict[str, object] = {}
    for name in _TARGETS:
        target: str | None = getattr(description, name, None)
        if target is not None:
            changed[name] = strip_authority(target)
    if getattr(description, "max_message_bytes", None) in _TIER_BYTES:
        changed["max_message_bytes"] = None
    return with_fields(description, changed)
