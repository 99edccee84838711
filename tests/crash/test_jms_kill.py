"""`kill -9` under clients of JMS: what is durable keeps its selector and messages, and all else is gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from proton import Described, Message, Terminus, symbol, ulong
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

from emubus.broker.model.profiles import Profile
from emubus.testing import EmubusServer

from ..rounds import rounds
from .server import ServerProcess, check

TOPIC: Final = "news"
KEPT: Final = f"{TOPIC}/Subscriptions/kept$client$D"
SELECTOR: Final = "k = 1 AND JMSDeliveryMode = 'PERSISTENT'"
CONFIG: Final = '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [], "Topics": [{"Name": "news"}]}]}}'
SENT_MAX: Final = 400
SEEDS: Final = range(rounds(2, 40))


class Terms(LinkOption):
    """What a link of Qpid JMS says of its source: capabilities, and for a durable one its expiry and selector."""

    def __init__(self, *capabilities: str, durable: bool = False) -> None:
        self._capabilities = [symbol(name) for name in capabilities]
        self._durable = durable

    def apply(self, link: Any) -> None:
        """Set the fields of the source."""
        source = link.source
        source.capabilities.put_object(self._capabilities)
        if self._durable:
            source.durability = Terminus.DELIVERIES
            source.expiry_policy = Terminus.EXPIRE_NEVER
            source.distribution_mode = Terminus.DIST_MODE_COPY
            source.filter.put_object({symbol("jms-selector"): Described(ulong(0x468C00000004), SELECTOR)})


class Temporary(LinkOption):
    """The link that makes a temporary queue."""

    def apply(self, link: Any) -> None:
        """Set the fields of the target."""
        link.target.dynamic = True
        link.target.capabilities.put_object([symbol("temporary-queue")])


class Peer(MessagingHandler):
    """Subscribes in every way, makes a temporary queue, and publishes until the broker is gone."""

    def __init__(self, url: str, kill: Callable[[], None], kill_at: int) -> None:
        super().__init__(prefetch=0)
        self.accepted: set[str] = set()
        self._url = url
        self._kill = kill
        self._kill_at = kill_at
        self._opening = 5
        self._sent = 0
        self._sender: Any = None

    def on_start(self, event: Any) -> None:
        """Attach all links."""
        container = event.container
        connection = container.connect(self._url, reconnect=False, allowed_mechs="ANONYMOUS")
        container.create_receiver(connection, TOPIC, name="kept", options=Terms("topic", durable=True))
        container.create_receiver(connection, TOPIC, name="own", options=Terms("topic"))
        container.create_receiver(connection, TOPIC, name="shared|volatile1", options=Terms("topic", "shared"))
        container.create_sender(connection, None, name="temporary", options=Temporary())
        self._sender = container.create_sender(connection, TOPIC)

    def on_link_opened(self, event: Any) -> None:
        """The last one opens the tap."""
        self._opening -= 1
        self._publish()

    def on_sendable(self, event: Any) -> None:
        """There is credit."""
        self._publish()

    def on_accepted(self, event: Any) -> None:
        """The broker has stored a message."""
        self.accepted.add(event.delivery.tag)
        if len(self.accepted) == self._kill_at:
            self._kill()
        self._publish()

    def on_disconnected(self, event: Any) -> None:
        """The broker is gone."""
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        """The broker is gone."""
        event.container.stop()

    def _publish(self) -> None:
        while not self._opening and self._sender.credit and self._sender.queued < 40 and self._sent < SENT_MAX:
            number = self._sent
            self._sent += 1
            self._sender.send(Message(id=str(number), durable=True, properties={"k": number % 2}), tag=str(number))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_kill_durable_subscriptions_have_their_messages_and_the_others_are_gone(
    seed: int, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    chance = random.Random(seed)
    server = ServerProcess(
        data, "--profile", "premium", "--durability", ("process", "full", "second")[seed % 3], config=CONFIG
    )
    peer = Peer(server.url, server.process.kill, chance.randint(1, SENT_MAX))
    try:
        Container(peer, container_id="client").run()
    finally:
        server.kill()
    assert "Traceback" not in server.log, server.log
    check(data)
    with EmubusServer(data_dir=data, profile=Profile.PREMIUM) as again:
        entities = again.call(lambda: [each.path for each in again.server.broker.namespace.entities()])
        assert entities == [TOPIC, KEPT]
        kept = [str(message.properties["message_id"]) for message in again.peek(KEPT)]
    wanted = {name for name in peer.accepted if int(name) % 2}
    assert len(kept) == len(set(kept))
    assert wanted <= set(kept) <= {str(number) for number in range(1, SENT_MAX, 2)}
