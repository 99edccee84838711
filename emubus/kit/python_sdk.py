"""A client of Python's SDK that a whole test run shares, whose senders and receivers open and close without waiting.

Knows where the SDK (7.15) waits: to open one, it looks every 50 ms whether the link is attached, about ten times in a
row; to close one, it joins a thread that looks once a second whether it should end, and which keeps idle connections
open. Nothing else differs from a `ServiceBusClient`, and with an SDK that is made otherwise nothing differs at all.
Needs azure-servicebus.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, Final, Self, TypeVar

from azure.servicebus import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

LOOK_S: Final = 0.001
LOOKS: Final = 100
T = TypeVar("T", ServiceBusSender, ServiceBusReceiver)


class KeptClient(ServiceBusClient):
    """A `ServiceBusClient`; only the time that opening and closing takes differs."""

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Any) -> Self:  # those of `ServiceBusClient`
        client = super().from_connection_string(conn_str, **kwargs)
        assert isinstance(client, cls)
        return client

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ServiceBusSender:
        return _quick(super().get_queue_sender(queue_name, **kwargs))

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ServiceBusSender:
        return _quick(super().get_topic_sender(topic_name, **kwargs))

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        return _quick(super().get_queue_receiver(queue_name, **kwargs))

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ServiceBusReceiver:
        return _quick(super().get_subscription_receiver(topic_name, subscription_name, **kwargs))


def _quick(link: T) -> T:
    create = getattr(link, "_create_handler", None)
    if create is None:
        return link

    def created(auth: object) -> None:
        create(auth)
        handler: Any = getattr(link, "_handler", None)
        if hasattr(handler, "_keep_alive_interval") and hasattr(handler, "client_ready"):
            handler._keep_alive_interval = 0
            handler.client_ready = _awaiting(handler.client_ready)

    link._create_handler = created  # type: ignore[method-assign]
    return link


def _awaiting(is_ready: Callable[[], bool]) -> Callable[[], bool]:
    """Look often for a while; then the SDK's own loop goes on, which knows when to give up."""

    pause = Event()

    def ready() -> bool:
        for _ in range(LOOKS):
            if is_ready():
                return True
            pause.wait(LOOK_S)
        return is_ready()

    return ready
