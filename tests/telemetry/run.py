"""A run of the Python SDK that notes what it did, as the counters have to say it, and the counters."""

from __future__ import annotations

from collections import Counter

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from prometheus_client.parser import text_string_to_metric_families

from ..http.control.client import Http

WAIT_S = 60
COUNTERS = ("emubus_messages_", "emubus_message_locks_", "emubus_refusals", "emubus_throttled", "emubus_errors")

Key = tuple[str, ...]
"""A counter, without `emubus_messages_` and `_total`, and the values of its labels, in the order of their names."""


def counters(control: Http) -> Counter[Key]:
    """All counters of messages and refusals at `/metrics`."""
    text = control.send("GET", "/metrics").content.decode()
    found = Counter[Key]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_total") and sample.name.startswith(COUNTERS):
                name = sample.name.removesuffix("_total").removeprefix("emubus_").removeprefix("messages_")
                found[name, *(value for _, value in sorted(sample.labels.items()))] = int(sample.value)
    return found


class Run:
    """What a client did with the messages of one entity, in `did`."""

    def __init__(self, sdk: ServiceBusClient, entity: str, did: Counter[Key], *, session: str | None = None) -> None:
        self._sdk = sdk
        self.entity = entity
        self.did = did
        self.session = session

    def note(self, what: str, count: int = 1, *, more: str = "") -> None:
        """Note that something was done."""
        if count:
            self.did[(what, self.entity, more) if more else (what, self.entity)] += count

    def message(self, number: int = 0, **options: object) -> ServiceBusMessage:
        """A message of the session, or with a key."""
        key = {"session_id": self.session} if self.session else {"partition_key": f"key {number}"}
        return ServiceBusMessage(f"{number}", **{**key, **options})  # type: ignore[arg-type]

    def send(self, *messages: ServiceBusMessage, counted: str = "sent") -> None:
        """Send messages, each by itself."""
        with self._sdk.get_queue_sender(self.entity) as sender:
            for message in messages:
                sender.send_messages(message)
        self.note(counted, len(messages))

    def receiver(self, **options: object) -> ServiceBusReceiver:
        """A receiver of the entity."""
        session: dict[str, object] = {} if self.session is None else {"session_id": self.session}
        return self._sdk.get_queue_receiver(self.entity, **{**session, **options})  # type: ignore[arg-type]

    def take(
        self, receiver: ServiceBusReceiver, count: int, sub_queue: str = "active"
    ) -> list[ServiceBusReceivedMessage]:
        """Receive exactly `count` messages."""
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < count:
            taken += receiver.receive_messages(max_message_count=count - len(taken), max_wait_time=WAIT_S)
        self.note("delivered", len(taken), more=sub_queue)
        return taken

    def complete(
        self, receiver: ServiceBusReceiver, messages: list[ServiceBusReceivedMessage], sub_queue: str = "active"
    ) -> None:
        """Complete messages."""
        for message in messages:
            receiver.complete_message(message)
        self.note("completed", len(messages), more=sub_queue)
