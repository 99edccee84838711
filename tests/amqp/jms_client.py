"""A client of JMS by hand: the attaches that Qpid JMS writes, over the real broker of a Premium namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from structlog.testing import capture_logs

from emubus.broker.access import Access
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.model.profiles import Profile
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Described, Symbol, Ubyte, Uint, Ulong

from ..broker.namespace import open_broker
from .fakes import FakeBroker
from .test_browsing import START
from .wire import ATTACH, DETACH, DISPOSITION, SOURCE, TARGET, TRANSFER, Frame, Wire

NUMBER = Ulong(0x468C00000004)
LIBRARY = {"com.microsoft:is-client-provider": True}


def message(text: str, k: int = 0, **annotations: object) -> bytes:
    notes = {Symbol(name.replace("_", "-")): value for name, value in annotations.items()}
    return b"".join(
        (
            encode_described(Ulong(0x72), encode(notes)),
            encode_described(Ulong(0x74), encode({"k": k})),
            encode_described(Ulong(0x77), encode(text)),
        )
    )


def symbols(*names: str) -> Array:
    return Array(0xA3, tuple(map(Symbol, names)))


class JmsClient:
    """One connection: `container` is the client id; the handles of links count upwards."""

    def __init__(
        self,
        broker: Broker,
        container: str = "ID:1",
        properties: dict[str, Any] | None = None,
        *,
        access: Access | None = None,
    ) -> None:
        access = access or Access(verify=False)
        self.wire = Wire(broker=cast("FakeBroker", broker), clock=broker.clock, access=access)
        self.opened = self.wire.open(properties, container=container)
        self._handle = 0

    async def frames(self, *codes: int) -> list[Frame]:
        """The next frames, whose codes must be these."""
        return await self.wire.frames(*codes)

    def attach(self, name: str, source: list[Any] | None, target: list[Any] | None, *, receives: bool) -> list[Frame]:
        """The server's answer."""
        self._handle += 1
        termini = [
            None if fields is None else Described(Ulong(code), fields)
            for code, fields in ((SOURCE, source), (TARGET, target))
        ]
        count = None if receives else Uint(0)
        fields = [name, Uint(self._handle), receives, Ubyte(0), Ubyte(0), *termini, None, None, count]
        self.wire.send(0, ATTACH, fields)
        return self.wire.read()

    def subscribe(
        self, name: str, topic: str = "t", *, durable: bool = True, shared: str = "", selector: str | None = None
    ) -> list[Frame]:
        """A consumer on a topic; `shared` is "", "shared" or "shared global"."""
        found = None if selector is None else {Symbol("jms-selector"): Described(NUMBER, selector)}
        expiry, mode = Symbol("never" if durable else "link-detach"), Symbol("copy") if durable else None
        capabilities = symbols("topic", *shared.split())
        source = [topic, Uint(2 if durable else 0), expiry, None, None, None, mode, found, None, None, capabilities]
        return self.attach(name, source, [], receives=True)

    def unsubscribe(self, name: str) -> list[Frame]:
        return self.attach(name, None, [], receives=True)

    @property
    def handle(self) -> int:
        """The handle of the last link."""
        return self._handle

    async def detach(self, handle: int, *, closed: bool = True) -> None:
        self.wire.send(0, DETACH, [Uint(handle), closed])
        (answer,) = await self.frames(DETACH)
        assert (answer.get(1) or False) is closed

    async def send(self, *texts: str, address: str = "t", k: int = 0, **annotations: object) -> None:
        capability = symbols("topic")
        self.attach(f"s{self._handle}", [], [address, None, None, None, None, None, capability], receives=False)
        for text in texts:
            self.wire.write(self.wire.transfer(message(text, k, **annotations), handle=self._handle))
            await self.frames(DISPOSITION)
        await self.detach(self._handle)

    async def receive(self, count: int, handle: int | None = None) -> list[Frame]:
        """That many transfers on a link, the last one without an argument."""
        self.wire.flow(self._handle if handle is None else handle, count)
        return await self.frames(*[TRANSFER] * count)


def refusal(frames: list[Frame]) -> tuple[str, str]:
    """Condition and text with which an attach is refused."""
    attach, detach = frames
    assert (attach.code, attach.get(5), detach.code, detach.get(1)) == (ATTACH, None, DETACH, True)
    condition, text, _ = detach.get(2).value
    return str(condition), str(text)


@asynccontextmanager
async def premium_broker() -> AsyncIterator[Broker]:
    """A Premium namespace with a queue `q`, topics `t` and `u`, and a plain subscription of `t`."""
    with capture_logs() as logs:
        clock = Clock(start_at=START, manual=True)
        broker = open_broker(QueueDescription("q"), clock=clock, profile=Profile.PREMIUM)
        for name in ("t", "u"):
            broker.administration.create(TopicDescription(name))
        broker.administration.create(SubscriptionDescription("t", "plain"))
        yield broker
        await broker.stop()
        clock.close()
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


def subscriptions(broker: Broker) -> list[str]:
    """The paths of all subscriptions."""
    return sorted(
        each.path for each in broker.namespace.entities() if isinstance(each.description, SubscriptionDescription)
    )
