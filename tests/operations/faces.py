"""Who asks, and for what: clients with keys of one entity each, and the requests of every HTTP route.

A route that is not in the tables fails `test_rights`: rights are decided for each operation, by hand, here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_plus

from emubus.broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME, sign
from emubus.broker.keys import Right
from emubus.broker.model.descriptions import (
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.web.atom.management import VERBS
from emubus.web.control import ENDPOINTS, ROOT
from emubus.web.page.routes import ASSETS, VIEWS
from emubus.web.page.site import ROOT as PAGE
from emubus.web.resources import ResourceKind

NEVER_S: Final = "32503680000"
LONG_AGO_S: Final = "1000000000"
RIGHTS: Final[Mapping[str, tuple[Right, ...]]] = {
    "listener": (Right.LISTEN,),
    "sender": (Right.SEND,),
    "manager": (Right.MANAGE, Right.SEND, Right.LISTEN),
}
"""The keys of each of `mine`, by their names, which are their texts, too."""

OWN_KEYS: Final = tuple(AuthorizationRule(name, rights, name) for name, rights in RIGHTS.items())
ENTITIES: Final = (
    QueueDescription("mine", authorization_rules=OWN_KEYS),
    QueueDescription("mine2"),
    QueueDescription("other"),
    TopicDescription("tmine", authorization_rules=OWN_KEYS),
    TopicDescription("tother"),
    SubscriptionDescription("tmine", "s"),
    SubscriptionDescription("tother", "s"),
)
OPEN, NOBODY = "open", "nobody"
"""Routes that need no right, and those that have no operation: everybody gets 404 or 405."""


@dataclass(frozen=True)
class Needs:
    """What a route needs: a right on the entity of its path, or with `entity` "" on the namespace."""

    right: Right
    of_namespace: bool = False


MANAGE_ALL: Final = Needs(Right.MANAGE, of_namespace=True)
REST: Final[Mapping[tuple[str, str], Needs]] = {
    ("POST", "/{entity}/{messages}"): Needs(Right.SEND),
    ("POST", "/{entity}/{messages}/{head}"): Needs(Right.LISTEN),
    ("DELETE", "/{entity}/{messages}/{head}"): Needs(Right.LISTEN),
    ("POST", "/{entity}/{messages}/{message}/{token}"): Needs(Right.LISTEN),
    ("PUT", "/{entity}/{messages}/{message}/{token}"): Needs(Right.LISTEN),
    ("DELETE", "/{entity}/{messages}/{message}/{token}"): Needs(Right.LISTEN),
}
ATOM: Final[Mapping[ResourceKind, tuple[str, Needs]]] = {
    ResourceKind.NAMESPACE: ("/$namespaceinfo", MANAGE_ALL),
    ResourceKind.QUEUES: ("/$Resources/queues", MANAGE_ALL),
    ResourceKind.TOPICS: ("/$Resources/topics", MANAGE_ALL),
    ResourceKind.ENTITY: ("/{entity}", Needs(Right.MANAGE)),
    ResourceKind.SUBSCRIPTIONS: ("/{topic}/Subscriptions", Needs(Right.MANAGE)),
    ResourceKind.SUBSCRIPTION: ("/{topic}/Subscriptions/{subscription}", Needs(Right.MANAGE)),
    ResourceKind.RULES: ("/{topic}/Subscriptions/{subscription}/Rules", Needs(Right.MANAGE)),
    ResourceKind.RULE: ("/{topic}/Subscriptions/{subscription}/Rules/{rule}", Needs(Right.MANAGE)),
}
_PATTERN: Final = re.compile(r"\{(\w+):.*\)\?\}")


def control_path(path: str) -> str:
    """A path of the control API with the names of its parts alone."""
    return ROOT + _PATTERN.sub(r"{\1}", path)


IMDS: Final = "/metadata/identity/oauth2/token"
DOCUMENTS: Final = (
    *(".well-known/openid-configuration", "v2.0/.well-known/openid-configuration"),
    *("discovery/keys", "discovery/v2.0/keys", "discovery/instance"),
)
ROUTES: Final[Mapping[tuple[str, str], Needs | str]] = {
    ("GET", "/{check}"): OPEN,
    # AMQP, with rights of its own
    **{("GET", path): OPEN for path in ("/$servicebus/websocket", "/$servicebus/websocket/")},
    # tokens of identities: who has to show something decides the directory
    **{("GET", path): OPEN for path in ("/msi/token", "/msi/token/", IMDS, f"{IMDS}/")},
    ("POST", "/msi/token"): OPEN,
    **{("POST", f"/{{tenant}}/oauth2/{path}"): OPEN for path in ("token", "v2.0/token")},
    **{("GET", f"/{{tenant}}/{path}"): OPEN for path in DOCUMENTS},
    ("GET", "/metrics"): MANAGE_ALL,
    ("GET", f"{ROOT}/openapi.json"): OPEN,
    **{(each.method, control_path(each.path)): MANAGE_ALL for each in ENDPOINTS},
    **{("*", ROOT + path): NOBODY for path in ("", "/{rest}", "/openapi.json")},
    **{("*", control_path(each.path)): NOBODY for each in ENDPOINTS},
    ("GET", "/"): MANAGE_ALL,
    **{(method, f"{PAGE}/{name}"): MANAGE_ALL for method, name in VIEWS},
    **{("GET", f"{PAGE}/assets/{name}"): OPEN for name in ASSETS},
    ("*", f"{PAGE}{{tail}}"): NOBODY,
    **REST,
    ("*", "/{path}"): "Atom",
}


@dataclass(frozen=True)
class Client:
    """Who asks: the name of a key and its text, and whether the token that they sign is over."""

    name: str
    key: str = ""
    is_late: bool = False

    def token(self, target: str) -> str:
        """A token for an entity, or with "" for the namespace."""
        resource, expiry = quote_plus(f"http://127.0.0.1/{target}"), LONG_AGO_S if self.is_late else NEVER_S
        signature = quote(sign(resource, expiry, self.key), safe="")
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={self.name}"

    def headers(self, target: str) -> Iterator[Mapping[str, str]]:
        """The ways in which the client shows its key."""
        if not self.name:
            yield {}
            return
        yield {"Authorization": self.token(target)}
        if not self.is_late:  # a key has no end
            yield {"Authorization": "Basic " + base64.b64encode(f"{self.name}:{self.key}".encode()).decode()}


ROOT_CLIENT: Final = Client(DEFAULT_KEY_NAME, DEFAULT_KEY)
CLIENTS: Final = (
    Client(""),
    Client(DEFAULT_KEY_NAME, "wrong"),
    Client(DEFAULT_KEY_NAME, DEFAULT_KEY, is_late=True),
    *(Client(name, name) for name in RIGHTS),
)
"""All but the one with the key of the namespace."""


@dataclass(frozen=True)
class Request:
    """A request of the table: `path` has names in braces."""

    method: str
    path: str
    needs: Needs

    def at(self, queue: str, topic: str) -> str:
        """The path with the names of an entity."""
        found = self.path
        for name in FILLED:
            found = found.replace(f"{{{name}}}", FILLED[name])
        for name, value in (("entity", queue), ("topic", topic)):
            found = found.replace(f"{{{name}}}", quote(value, safe=""))
        assert "{" not in found, found
        return found


FILLED: Final[Mapping[str, str]] = {
    "messages": "messages",
    "head": "head?timeout=0",
    "message": "1",
    "token": "00000000-0000-0000-0000-000000000001",
    "subscription": "s",
    "rule": "$Default",
    "name": "x",
    "store": "0",
    "id": "1",
    "job": "1",
    "number": "1",
    "session": "x",
    "partition": "0",
    "sequence_number": "1",
}


PUBLIC: Final = frozenset({ResourceKind.ROOT})
"""Resources of management that anybody may read."""


def requests() -> list[Request]:
    """All that needs a right."""
    found = [Request(*route, needs) for route, needs in ROUTES.items() if isinstance(needs, Needs)]
    for kind in {kind for kind, verbs in VERBS.items() if verbs} - PUBLIC:
        verbs, (path, needs) = VERBS[kind], ATOM[kind]
        found += [Request(method, path, needs) for method in verbs]
    return found
