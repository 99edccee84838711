"""A peer for the load client without a broker: accepts every message, delivers as many as are asked for.

It shows the limit of the load client on this machine: a broker's rate near the sink's rate is the client's limit, not
the broker's. It has no queue: a receiving link gets messages numbered from 0, of the size in the last part of its
address (`ceiling/1024`). Prints its port, serves one connection after the other, and runs until it is terminated.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from cproton_ffi import ffi, lib
from engine import Engine, EngineError, Pointer, TagWriter
from messages import NUMBER_BYTES, Template

CREDIT: Final = 2000


class Sink:
    """Serves one connection."""

    def __init__(self, engine: Engine) -> None:
        self._template = Template(NUMBER_BYTES)
        self._tags = TagWriter()
        self._sent = 0
        self._taken = 0
        self._buffer_bytes = 1 << 21
        self._buffer: Pointer = ffi.new("char[]", self._buffer_bytes)
        engine.accepts, engine.on_flow, engine.on_delivery = self.opened, self.give, self.event

    def opened(self, link: Pointer) -> None:
        """Open our end of a link as the peer wants it."""
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_open(link)
        if lib.pn_link_is_receiver(link):
            lib.pn_link_flow(link, CREDIT)
            return
        address = ffi.string(lib.pn_terminus_get_address(lib.pn_link_source(link))).decode()
        self._template = Template(int(address.rpartition("/")[2]))

    def give(self, link: Pointer) -> None:
        """Spend the credit of a receiving peer."""
        if not lib.pn_link_is_sender(link):
            return
        template, tags = self._template, self._tags
        for number in range(self._sent, self._sent + lib.pn_link_credit(link) - lib.pn_link_queued(link)):
            tags.write(number)
            template.write(number)
            lib.pn_delivery(link, tags.tag)
            lib.pn_link_send(link, template.data, template.length)
            lib.pn_link_advance(link)
            self._sent = number + 1

    def event(self, delivery: Pointer) -> None:
        """Handle a message, or the outcome of a delivered one."""
        link = lib.pn_delivery_link(delivery)
        if lib.pn_link_is_sender(link):
            if lib.pn_delivery_remote_state(delivery):
                lib.pn_delivery_settle(delivery)
            return
        if lib.pn_delivery_partial(delivery):
            return
        lib.pn_link_recv(link, self._buffer, self._buffer_bytes)
        self._taken += 1
        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
        lib.pn_link_advance(link)
        lib.pn_delivery_settle(delivery)
        if self._taken % (CREDIT // 4) == 0:
            lib.pn_link_flow(link, CREDIT // 4)


def main() -> int:
    """Serve until terminated."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            engine = Engine(connection, container="sink", serving=True)
            Sink(engine)
            try:
                while not engine.closed:
                    engine.turn(1.0)
            except EngineError as error:
                print(error, file=sys.stderr)
            engine.close()


if __name__ == "__main__":
    sys.exit(main())
