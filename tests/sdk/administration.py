"""The administration client of an SDK as the tests see it, whatever the language behind it.

Knows the operations of the protocol that begin with ``admin_`` (``PROTOCOL.md``). Does not know how a driver runs and
what the properties mean. Keeps nothing: the driver's ``reset`` gives back what a test used.
"""

from __future__ import annotations

import base64
from typing import Any, Literal

from .driver import REQUEST_SECONDS_MAX, DriverProcess

Kind = Literal["queues", "topics", "subscriptions", "rules"]
Ref = dict[str, str]
Properties = dict[str, Any]
Runtime = dict[str, int]


def queue_ref(queue: str) -> Ref:
    """What names a queue in a request."""
    return {"queue": queue}


def topic_ref(topic: str) -> Ref:
    """What names a topic in a request."""
    return {"topic": topic}


def subscription_ref(topic: str, subscription: str) -> Ref:
    """What names a subscription in a request."""
    return {"topic": topic, "subscription": subscription}


def rule_ref(topic: str, subscription: str, rule: str) -> Ref:
    """What names a rule in a request."""
    return {"topic": topic, "subscription": subscription, "rule": rule}


def key_of(letter: bytes) -> str:
    """A key of 32 bytes, as the service makes them and as .NET's SDK demands."""
    return base64.b64encode(32 * letter).decode()


def last_part(path: str) -> str:
    """What is shown of an entity that another one forwards to."""
    return path.rpartition("/")[2]


class Administration:
    """The administration client behind a driver.

    Properties are in the protocol's form; in answers, those that the SDK shows as nothing are left out.
    """

    def __init__(self, driver: DriverProcess) -> None:
        self._driver = driver

    def create(self, ref: Ref, **properties: Any) -> Properties:
        """Create an entity; what the SDK returns of it."""
        return self._properties("admin_create", **ref, properties=properties)

    def get(self, ref: Ref) -> Properties:
        """What the SDK shows of an entity."""
        return self._properties("admin_get", **ref)

    def update(self, ref: Ref, **properties: Any) -> Properties:
        """Change properties of an entity, None clears one; what the SDK shows afterwards."""
        return self._properties("admin_update", **ref, properties=properties)

    def delete(self, ref: Ref) -> None:
        """Delete an entity."""
        self._request("admin_delete", **ref)

    def exists(self, ref: Ref) -> bool:
        """Whether the SDK finds an entity."""
        return bool(self._request("admin_exists", **ref)["exists"])

    def names(self, kind: Kind, **of: str) -> list[str]:
        """The names of all entities of a kind, those of a topic or subscription with ``topic`` and ``subscription``."""
        return list(self._request("admin_list", kind=kind, **of)["names"])

    def runtime(self, ref: Ref) -> Runtime:
        """Counts, size and instants of a queue, topic or subscription."""
        return _shown(self._request("admin_runtime", **ref)["runtime"])

    def runtimes(self, kind: Kind, **of: str) -> dict[str, Runtime]:
        """The same of all entities of a kind, by name."""
        answer = self._request("admin_runtime_list", kind=kind, **of)["runtime"]
        return {name: _shown(runtime) for name, runtime in answer.items()}

    def namespace(self) -> Properties:
        """What the SDK shows of the namespace."""
        return _shown(self._request("admin_namespace"))

    def _properties(self, op: str, **arguments: Any) -> Properties:
        return _shown(self._request(op, **arguments)["properties"])

    def _request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self._driver.request(op, timeout_s=REQUEST_SECONDS_MAX, **arguments)


def _shown(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value not in (None, [])}
