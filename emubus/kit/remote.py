"""A client of an emubus that runs elsewhere, in a container or as a process: the verbs of tests, over HTTP.

Knows the control API below `/emubus/v1`, and Atom XML for entities, which it makes from the server's own tables.
Does not start or stop the server. Keeps no state between calls, not even a connection, so any thread may use it.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, get_args
from urllib.parse import quote, urlencode, urlsplit
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ..broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME, sign
from ..broker.admin.overview import Route
from ..broker.api import OutageKind
from ..broker.errors import BrokerError, Condition
from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..broker.names import NamespaceName, SnapshotName
from ..broker.roles import RoleAssignment
from ..conditions.behaviour import Value
from ..conditions.engine import no_condition
from ..conditions.faults import Fault, FaultKind, FaultOperation
from ..declared.applying import Result, Status
from ..declared.resources import Declared, Origin
from ..web.atom.entries import entity_entry, named_entry, rule_entry
from ..web.atom.feeds import ENTRY_TYPE
from ..web.control import ROOT
from ..web.control.resources import resource_json
from ..web.markup import ATOM
from ..web.services import Snapshot
from .answers import Answer, AnswerError, parse_answer
from .condition_names import ConditionName
from .conditions import ConditionReport, parameters_of
from .http_connection import DEFAULT_PORTS, connector, read_whole
from .values import (
    MessageCounts,
    PeekedMessage,
    choice_of,
    counts_in,
    fault_in,
    in_ms,
    message_in,
    report_in,
    route_in,
    snapshot_in,
    stores_of,
    sub_queue_of,
    subscription_path,
)
from .verbs import Verbs

CALL_TIMEOUT_S: Final = 30.0
APPLY_TIMEOUT_S: Final = 900.0
"""Ten thousand entities, each with a commit of its own, on a slow disk."""
PAGE_MESSAGES: Final = 250
# The server's clock may be moved, but not beyond the year 3000: until then the token is good.
TOKEN_EXPIRY: Final = "32503680000"
ANY_VERSION: Final = {"If-Match": "*"}

_CONDITIONS: Final[Mapping[int, Condition]] = {
    400: Condition.ARGUMENT_ERROR,
    401: Condition.UNAUTHORIZED_ACCESS,
    403: Condition.RESOURCE_LIMIT_EXCEEDED,
    404: Condition.NOT_FOUND,
    409: Condition.ENTITY_ALREADY_EXISTS,
    503: Condition.SERVER_BUSY,
}
"""The condition for a status. Several conditions share one, so this is the nearest; the description is exact."""

_SUPPORT: Final = re.compile(r"^SubCode=\d+\. | TrackingId:.*", re.DOTALL)
"""The tracking parts of the management API's error texts."""


class RemoteEmubus(Verbs):
    """The emubus at `url`, such as `http://localhost:5300`; any of its ports will do.

    Its verbs are those of `EmubusServer`, where their texts are. `key` is for a server with `--auth sas`, and needs
    the Manage right. With https, `ca_file` is a CA to trust besides those of the system. `namespace` is one of several,
    if not the one that the URL means. BrokerError: the server refuses, or there is no such namespace or name.
    ConnectionError: no answer. ValueError: not a URL. CaError.
    """

    def __init__(
        self,
        url: str,
        *,
        key_name: str = DEFAULT_KEY_NAME,
        key: str = DEFAULT_KEY,
        ca_file: Path | None = None,
        namespace: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"the URL of an emubus is {url!r}; it must look like http://localhost:5300")
        self.url = url.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or DEFAULT_PORTS[parts.scheme]
        self._is_tls = parts.scheme == "https"
        self._connect = connector(parts.scheme, self._host, self._port, CALL_TIMEOUT_S, ca_file)
        self._connect_for_long = connector(parts.scheme, self._host, self._port, APPLY_TIMEOUT_S, ca_file)
        self._key_name = key_name
        self._key = key
        self._ca_file = ca_file
        self._namespace = None if namespace is None else NamespaceName(namespace)
        if self._namespace is not None:
            self._find(self._namespace)

    # ---- addresses

    def namespace(self, name: str) -> RemoteEmubus:
        return RemoteEmubus(self.url, key_name=self._key_name, key=self._key, ca_file=self._ca_file, namespace=name)

    def _find(self, name: NamespaceName) -> None:
        """BrokerError, with the namespaces that there are, unless there is one of that name."""
        try:
            self._control("GET", f"/namespaces/{name}")
        except BrokerError as refused:
            if refused.condition is not Condition.NOT_FOUND:
                raise
            self._namespace = None  # the host of no namespace gets the service's words, which list none
            try:
                self._control("GET", f"/namespaces/{name}")
            except BrokerError as error:
                raise (error if error.condition is Condition.NOT_FOUND else refused) from None

    @property
    def connection_string(self) -> str:
        host, port = f"[{self._host}]" if ":" in self._host else self._host, self._port
        if self._namespace is not None:  # clients name it, or come to its port
            report = self._control("GET", f"/namespaces/{self._namespace}")
            own = report.number_or_none("port")
            host, port = (report.text("host"), port) if own is None else (host, own)
        return (
            f"Endpoint=sb://{host}:{port};SharedAccessKeyName={self._key_name};SharedAccessKey={self._key};"
            f"{'' if self._is_tls else 'UseDevelopmentEmulator=true;'}"
        )

    @property
    def is_healthy(self) -> bool:
        """Whether the server is healthy; False also if it does not answer."""
        try:
            return self._send("GET", "/health")[0] == 200
        except ConnectionError:
            return False

    # ---- entities

    def create(self, description: Description) -> None:
        self._put(path_of(description), entity_entry(description), {})
        if isinstance(description, SubscriptionDescription):
            self._set_rules(description)

    def create_queue(self, queue: QueueDescription | str) -> None:
        if isinstance(queue, str):
            self._put(queue, named_entry(QueueDescription), {})
        else:
            self.create(queue)

    def create_topic(self, topic: TopicDescription | str) -> None:
        if isinstance(topic, str):
            self._put(topic, named_entry(TopicDescription), {})
        else:
            self.create(topic)

    def create_subscription(self, subscription: SubscriptionDescription | str) -> None:
        if isinstance(subscription, str):
            self._put(subscription_path(subscription), named_entry(SubscriptionDescription), {})
        else:
            self.create(subscription)

    def update(self, description: Description) -> None:
        self._put(path_of(description), entity_entry(description), ANY_VERSION)
        if isinstance(description, SubscriptionDescription):
            self._set_rules(description)

    def delete(self, path: str) -> None:
        self._atom("DELETE", path)

    def apply(
        self, resources: Sequence[Declared], *, whole_rules: bool = False, sets_targets: bool = True
    ) -> list[Result]:
        """Create or update what resources declare; what became of each, and no error for one that is refused."""
        body = {
            "resources": [resource_json(each) for each in resources],
            "whole_rules": whole_rules,
            "sets_targets": sets_targets,
        }
        answer = self._control("POST", "/resources", body, self._connect_for_long)
        return [
            Result(
                each.choice("status", Status),
                each.text("what"),
                each.text("why"),
                Origin(each.text("origin")),
                tuple(each.texts("notes")),
                each.text("path"),
            )
            for each in answer.parts("results")
        ]

    # ---- messages

    def peek(self, path: str, sub_queue: str | None = "active") -> list[PeekedMessage]:
        asked = sub_queue_of(sub_queue)
        found: list[PeekedMessage] = []
        first: int | None = 0
        while first is not None:
            query = f"sub_queue={asked}&from_sequence_number={first}&count={PAGE_MESSAGES}"
            page = self._control("GET", f"{_entity(path)}/messages?{query}")
            found += map(message_in, page.parts("messages"))
            following = page.number_or_none("next_sequence_number")
            if following is not None and following <= first:
                raise ConnectionError(f"no emubus answers at {self.url}: its pages of messages do not end")
            first = following
        return found

    def message_counts(self, path: str) -> MessageCounts:
        return counts_in(self._control("GET", _entity(path)).part("messages"))

    def route(self, path: str, key: str | None = None) -> Route:
        query = "" if key is None else f"?key={quote(key, safe='')}"
        return route_in(self._control("GET", f"{_entity(path)}/route{query}"))

    def purge(self, path: str | None = None) -> int:
        if path is None:
            return self._control("POST", "/reset", {"to": "empty"}).number("message_count")
        return self._control("POST", f"{_entity(path)}/purge").number("message_count")

    def reset(self) -> None:
        self._control("POST", "/reset", {"to": "start"})
        self.started_conditions.clear()

    def snapshot(self, name: str) -> Snapshot:
        return snapshot_in(self._control("PUT", f"/snapshots/{SnapshotName(name)}"))

    def restore(self, name: str) -> Snapshot:
        return snapshot_in(self._control("POST", f"/snapshots/{SnapshotName(name)}/restore"))

    # ---- time

    def now_ms(self) -> int:
        return self._control("GET", "/clock").number("now_ms")

    def advance(self, by: int | timedelta) -> None:
        self._control("POST", "/clock/advance", {"ms": in_ms(by)})

    def freeze(self) -> None:
        self._control("POST", "/clock/freeze")

    def thaw(self) -> None:
        self._control("POST", "/clock/thaw")

    # ---- outages and faults

    def begin_outage(
        self,
        stores: int | Collection[int],
        kind: OutageKind | str = OutageKind.DOWN,
        *,
        delay_ms: int = 0,
        duration_ms: int | None = None,
    ) -> None:
        word = choice_of(OutageKind, kind, "kind").value
        asked = {"stores": stores_of(stores), "kind": word, "delay_ms": delay_ms, "duration_ms": duration_ms}
        self._control("POST", "/outages", asked)

    def end_outage(self, stores: int | Collection[int]) -> None:
        for index in stores_of(stores):
            self._control("DELETE", f"/stores/{index}/outage")

    def add_fault(
        self,
        kind: FaultKind | str,
        *,
        entity: str | None = None,
        operations: Collection[FaultOperation | str] = (),
        count: int | None = None,
        probability: float = 1.0,
        delay_ms: int = 0,
    ) -> Fault:
        asked = {
            "kind": choice_of(FaultKind, kind, "kind").value,
            "entity": entity,
            "operations": [choice_of(FaultOperation, each, "operations").value for each in operations],
            "count": count,
            "probability": probability,
            "delay_ms": delay_ms,
        }
        return fault_in(self._control("POST", "/faults", asked))

    def clear_faults(self) -> int:
        return self._control("DELETE", "/faults").number("cleared_count")

    def start_condition(
        self,
        name: ConditionName | str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> ConditionReport:
        asked = {"name": name, "seed": seed, "entity": entity, "duration_ms": duration_ms, "count": count}
        known = get_args(ConditionName)
        if name not in known:  # the server would name them all
            raise BrokerError(Condition.NOT_FOUND, no_condition("condition", name, known))
        report = report_in(self._control("POST", "/conditions", {**asked, "set": parameters_of(name, values)}))
        self.started_conditions.append(report.number)
        return report

    def condition(self, number: int) -> ConditionReport:
        return report_in(self._control("GET", f"/conditions/{number}"))

    def end_condition(self, number: int) -> None:
        try:
            self._control("DELETE", f"/conditions/{number}")
        except BrokerError as error:
            if error.condition is not Condition.NOT_FOUND:
                raise

    def end_conditions(self) -> int:
        return self._control("DELETE", "/conditions").number("ended_count")

    def _entity_count(self) -> int:
        return self._control("GET", "/entities?count=1").number("total")

    def drop_connections(self, entity: str | None = None) -> int:
        return self._control("POST", "/connections/drop", {"entity": entity}).number("dropped_count")

    def drop_links(self, entity: str, condition: Condition = Condition.DETACH_FORCED) -> int:
        asked = {"entity": entity, "condition": condition.value}
        return self._control("POST", "/links/drop", asked).number("dropped_count")

    def roles(self) -> list[RoleAssignment]:
        rows = self._control("GET", "/roles").parts("roles")
        return [
            RoleAssignment.parse(each.text("identity"), each.text("role"), each.text_or_none("entity")) for each in rows
        ]

    def assign_role(self, identity: str, role: str, entity: str | None = None) -> None:
        self._control("POST", "/roles", {"identity": identity, "role": role, "entity": entity})

    def remove_role(self, identity: str, role: str, entity: str | None = None) -> None:
        asked = {"identity": identity, "role": role, **({} if entity is None else {"entity": entity})}
        self._control("DELETE", f"/roles?{urlencode(asked, errors='surrogatepass')}")

    # ---- over HTTP

    def _set_rules(self, description: SubscriptionDescription) -> None:
        """Give a subscription exactly the rules of its description."""
        path = f"{description.path}/Rules"
        feed = self._xml(200, self._atom("GET", path))
        known = {str(title.text).lower() for title in feed.iterfind(f"{{{ATOM}}}entry/{{{ATOM}}}title")}
        for rule in description.rules:
            self._put(f"{path}/{rule.name}", rule_entry(rule), ANY_VERSION if rule.name.lower() in known else {})
        for name in known - {rule.name.lower() for rule in description.rules}:
            self._atom("DELETE", f"{path}/{name}")

    def _put(self, path: str, entry: bytes, headers: Mapping[str, str]) -> None:
        self._xml(201, self._atom("PUT", path, entry, {"Content-Type": ENTRY_TYPE, **headers}))

    def _atom(self, method: str, path: str, content: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        status, answer = self._send(method, f"/{quote(path)}", content, headers)
        if not 200 <= status < 300:
            detail = self._xml(status, answer).findtext("Detail") or ""
            raise _refusal(status, _SUPPORT.sub("", detail))
        return answer

    def _xml(self, status: int, answer: bytes) -> Element:
        try:
            found: Element = fromstring(answer, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError) as error:
            raise self._no_emubus(status, error) from error
        return found

    def _control(
        self,
        method: str,
        path: str,
        body: object = None,
        connect: Callable[[], http.client.HTTPConnection] | None = None,
    ) -> Answer:
        content, headers = b"", {}
        if body is not None:
            content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        status, answer = self._send(method, ROOT + path, content, headers, connect)
        try:
            reply = parse_answer(answer)
            refused = None if 200 <= status < 300 else reply.part("error").text("message")
        except AnswerError as error:
            raise self._no_emubus(status, error) from error
        if refused is not None:
            raise _refusal(status, refused)
        return reply

    def _no_emubus(self, status: int, error: Exception) -> ConnectionError:
        return ConnectionError(f"no emubus answers at {self.url}: HTTP status {status}, {error}")

    def _send(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        connect: Callable[[], http.client.HTTPConnection] | None = None,
    ) -> tuple[int, bytes]:
        resource = quote(f"{self.url}/", safe="")
        signature = quote(sign(resource, TOKEN_EXPIRY, self._key), safe="")
        token = f"SharedAccessSignature sr={resource}&sig={signature}&se={TOKEN_EXPIRY}&skn={quote(self._key_name)}"
        connection = (connect or self._connect)()
        try:
            named = {} if self._namespace is None else {"Host": f"{self._namespace}.localhost"}
            connection.request(method, path, content, {"Authorization": token, **named, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, read_whole(answer)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"no emubus answers at {self.url}: {error or type(error).__name__}") from error
        finally:
            connection.close()


def _entity(path: str) -> str:
    return f"/entities/{quote(path, safe='')}"


def _refusal(status: int, description: str) -> BrokerError:
    return BrokerError(_CONDITIONS.get(status, Condition.INTERNAL_ERROR), description)
