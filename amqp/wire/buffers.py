"""Buffers of a thread, into which Proton copies what is read at once: each holds something for the length of one call.

A server has one thread, and a process may have many servers: the test kit's, or two between which messages are copied.
Calls of Proton let other threads run, also between the copy and the read: with one buffer for all of them a client got
frames of the other server, and waited for its own (`tests/amqp/test_threads.py`).

So an object that keeps one of these is used only on the thread that made the object.
"""

from __future__ import annotations

from threading import local
from typing import Any, Final

from cproton_ffi import ffi

OUTPUT_BYTES: Final = 64 * 1024
DELIVERY_BYTES: Final = 1024 * 1024
TAG_BYTES_MAX: Final = 255


class Buffers(local):
    """Those of this thread; `…_view` is what reads one."""

    def __init__(self) -> None:
        self.output: Any = ffi.new("char[]", OUTPUT_BYTES)
        self.output_view: Any = ffi.buffer(self.output)
        self.delivery: Any = ffi.new("char[]", DELIVERY_BYTES)
        self.delivery_view: Any = ffi.buffer(self.delivery)
        chars: Any = ffi.new("char[]", TAG_BYTES_MAX)
        self.tag_view: Any = ffi.buffer(chars)
        self.tag: Any = ffi.new("pn_bytes_t *")
        self.tag.start = self._tag_chars = chars  # the struct does not keep them


buffers: Final = Buffers()
