"""The loops over deliveries and frames that cost most: in Python here, and in C where the wheel was built with it.

Knows Proton's calls for one delivery after the other, and which frames need nothing but Proton. Does not know what a
delivery means. The Python functions are the reference; `_delivery_loops.c` has the same ones, call for call, and takes
their place where it was built (`codec.native`). The same tests run over both.

Links, collectors and deliveries cross as handles: Proton's pointers in Python, integers in C.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence, Set
from struct import Struct
from typing import Any, Final

from ...broker.api import Delivery
from ...codec.frames import AMQP_HEADER, DISPOSITION, FLOW, TRANSFER
from ...codec.native import native_module
from .buffers import DELIVERY_BYTES, buffers
from .engine import Pointer, ffi, lib

Handle = Any
"""A pointer of Proton, or its address."""

ACCEPTED: Final = int(lib.PN_ACCEPTED)

_TRANSFER_HEAD: Final = bytes((0, 0x53, TRANSFER))
_SHORT_TRANSFER_HEAD: Final = _TRANSFER_HEAD + b"\xc0"
_SHORT_HANDLE, _TRANSFER_HANDLE_MAX = 14, 20
"""Where the handle of a transfer begins: behind the frame's header, descriptor, size and count of one or four bytes."""
_HANDLE_BYTES: Final = {0x52: 2, 0x70: 5}
"""How long an encoded handle is, by its constructor; others are one byte."""
_FORMAT_END_MAX: Final = 88
"""Where the message-format of a transfer ends at the latest: all before it at its longest, with 32 bytes of tag."""
BATCH_FIELD: Final = b"\x70\x80\x01\x37\x00"  # 0x80013700

# Receive-and-delete has empty delivery-tags [wire 5.3]. Proton writes null for one, which is none [AMQP 2.7.5]. So it
# gets a tag of three bytes, whose field is exactly as long as that of an empty binary in its long form.
NO_TOKEN: Final = b"\x00\x00\x00"
_NO_TOKEN_FIELD: Final = b"\xa0\x03" + NO_TOKEN
_EMPTY_TAG_FIELD: Final = b"\xb0\x00\x00\x00\x00"

# A receiver's or sender's disposition with accepted or released, as all usual encoders write it: nothing in it can be
# malformed or needs a closer look, and there is one for every message.
_SIMPLE_DISPOSITION: Final = re.compile(
    rb"\x00\x53" + bytes((DISPOSITION,)) + rb"(?:\xc0..|\xd0.{8})"
    rb"(?:[\x41\x42]|\x56.)"  # role
    rb"(?:\x43|\x52.|\x70.{4})(?:[\x40\x43]|\x52.|\x70.{4})"  # first, last
    rb"(?:[\x40-\x42]|\x56.)"  # settled
    rb"\x00\x53[\x24\x26](?:\x45|\xc0\x01\x00|\xd0\x00\x00\x00\x04\x00\x00\x00\x00)"  # state
    rb"(?:[\x40-\x42]|\x56.)?",  # batchable
    re.DOTALL,
).fullmatch

# A flow of a link that wants no answer: without drain, echo and properties. Its size, count of fields (in one of two
# encodings) and handle are groups, and so is each field behind the handle: the last group is the number of fields.
_UINT: Final = rb"\x43|\x52.|\x70.{4}"
_FLOW_FIELDS: Final = (rb"[\x40\x43]|\x52.|\x70.{4}",) * 3 + (rb"[\x40\x42]|\x56\x00",) * 2 + (rb"\x40",)
_SIMPLE_FLOW: Final = re.compile(
    rb"\x00\x53" + bytes((FLOW,)) + rb"(?:\xc0(.)(.)|\xd0(.{4})\x00\x00\x00(.))"
    rb"(?:\x40|"
    + _UINT
    + rb")(?:"
    + _UINT
    + rb"){3}("
    + _UINT
    + rb")"
    + b"".join(rb"(?:(" + field + rb")" for field in _FLOW_FIELDS)
    + rb")?" * len(_FLOW_FIELDS),
    re.DOTALL,
).fullmatch

_size_at: Callable[..., tuple[int]] = Struct(">I").unpack_from
_peek, _pop, _event_delivery = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
_delivery_link, _current = lib.pn_delivery_link, lib.pn_link_current
_partial, _pending = lib.pn_delivery_partial, lib.pn_delivery_pending
_recv, _advance, _new_delivery, _send = lib.pn_link_recv, lib.pn_link_advance, lib.pn_delivery, lib.pn_link_send
_settled, _settle, _update = lib.pn_delivery_settled, lib.pn_delivery_settle, lib.pn_delivery_update
_remote_state, _tag = lib.pn_delivery_remote_state, lib.pn_delivery_tag
_buffer: Any = ffi.buffer


def handle_of(pointer: Pointer) -> Handle:
    """The handle of one of Proton's objects."""
    return pointer


def delivery_of(handle: Handle) -> Pointer:
    """The pointer of a delivery; the inverse of `handle_of`."""
    return handle


def take_deliveries(
    collector: Handle,
    link: Handle,
    deliveries: list[Handle],
    data: list[bytes],
    size_max: int,
    count_max: int,
    bytes_max: int,
) -> int:
    """Take plain deliveries of `link` from the head of `collector`: append them and their bytes; return these' sum.

    Plain: whole, not settled by the sender, without a state, 1 to `size_max` bytes. Stops at any other event, and once
    `data` has `count_max` items or the sum is above `bytes_max`.
    """
    sum_bytes, size_max, scratch, scratch_view = (
        0,
        min(size_max, DELIVERY_BYTES),
        buffers.delivery,
        buffers.delivery_view,
    )
    while len(data) < count_max and sum_bytes <= bytes_max:
        event = _peek(collector)
        delivery = _event_delivery(event) if event else None  # NULL for an event of another kind
        # The current one of the link: it is of this link, and has bytes that can be read.
        if not delivery or delivery != _current(link) or _partial(delivery):
            break
        if _settled(delivery) or _remote_state(delivery):
            break
        size = _pending(delivery)
        if not 0 < size <= size_max or _recv(link, scratch, size) != size:  # negative: it was aborted
            break
        data.append(scratch_view[:size])
        deliveries.append(delivery)
        _advance(link)  # before the next event: the other order frees the delivery too early
        _pop(collector)
        sum_bytes += size
    return sum_bytes


def take_accepted(
    collector: Handle, link: Handle, unsettled: dict[Any, Any], tokens: list[bytes], count_max: int
) -> int:
    """Take settled dispositions with accepted of `link` from the head of `collector`; return how many.

    Each delivery is settled; its tag leaves `unsettled` for `tokens`. Stops at any other event, at a delivery whose
    entry in `unsettled` is not None, and once `tokens` has `count_max` items.
    """
    count = 0
    while len(tokens) < count_max:
        event = _peek(collector)
        delivery = _event_delivery(event) if event else None  # NULL for an event of another kind
        if not delivery or _delivery_link(delivery) != link:
            return count
        if _remote_state(delivery) != ACCEPTED or not _settled(delivery):
            return count
        tag = _tag(delivery)
        token = _buffer(tag.start, tag.size)[:]
        if unsettled.get(token, delivery) is not None:
            return count
        del unsettled[token]
        tokens.append(token)
        _settle(delivery)
        _pop(collector)
        count += 1
    return count


def accept(deliveries: list[Handle], positions: Sequence[int]) -> None:
    """Settle the deliveries at `positions` as accepted."""
    update, settle = _update, _settle
    for position in positions:
        delivery = deliveries[position]
        update(delivery, ACCEPTED)
        settle(delivery)


def send(link: Handle, deliveries: Sequence[Delivery], unsettled: dict[Any, Any], presettled: bool) -> int:
    """Give whole messages to Proton: `presettled` ones settled, others with their tokens as delivery-tags and noted in
    `unsettled`. The output with settled ones has to go through `without_tokens`.

    Returns the size of them all.
    """
    tag, tag_view, new, send, advance = buffers.tag, buffers.tag_view, _new_delivery, _send, _advance
    sent_bytes = 0
    for each in deliveries:
        token, payload = NO_TOKEN if presettled else each.token, each.payload
        size = len(token)
        tag_view[:size] = token
        tag.size = size
        delivery = new(link, tag[0])
        send(link, payload, len(payload))
        sent_bytes += len(payload)
        advance(link)
        if presettled:
            _settle(delivery)
        else:
            unsettled[token] = None
    return sent_bytes


def without_tokens_in_python(output: bytes) -> bytes:
    """Whole frames of Proton, in which the tag of each transfer that has no token is empty."""
    if _NO_TOKEN_FIELD not in output:
        return output
    changed, pos, length = bytearray(output), 8 if output.startswith(AMQP_HEADER) else 0, len(output)
    while pos + 4 <= length:
        if output.startswith(_TRANSFER_HEAD, pos + 8):
            at = pos + (_SHORT_HANDLE if output[pos + 11] == 0xC0 else _TRANSFER_HANDLE_MAX)
            for _ in range(2):  # behind handle and delivery-id
                at += _HANDLE_BYTES.get(output[at], 1)
            if output.startswith(_NO_TOKEN_FIELD, at):
                changed[at : at + len(_EMPTY_TAG_FIELD)] = _EMPTY_TAG_FIELD
        pos += _size_at(output, pos)[0]
    return bytes(changed)


def passthrough_end_in_python(
    data: bytes, pos: int, size_max: int, sending: Set[bytes], attached: Set[bytes], count_max: int = sys.maxsize
) -> tuple[int, int]:
    """Where the frames from `pos` on end that need nothing but Proton (`pos` if there is none), and how many they are.

    Those are transfers on a link in `sending` (channel and encoded handle) that are no batches, flows of a link in
    `attached` (the same) that want no answer, dispositions of the simplest form, and empty frames; all whole, with at
    most `size_max` bytes; not more than `count_max`.
    """
    length, count = len(data), 0
    start = handle = b""  # of the last transfer: what follows its size, up to the size of its list; its handle
    while count < count_max and pos + 4 <= length:
        size = _size_at(data, pos)[0]
        stop = pos + size
        if stop > length or not 8 <= size <= size_max:
            break
        at = pos + _SHORT_HANDLE
        if size > _TRANSFER_HANDLE_MAX and data[pos + 4 : pos + 12] == start and data.startswith(handle, at):
            if data.find(BATCH_FIELD, at, min(stop, pos + _FORMAT_END_MAX)) >= 0:
                break
        elif size > 10:
            if data[pos + 4] != 2 or not _is_passthrough(data, pos, stop, sending, attached):
                break
            if data.startswith(_SHORT_TRANSFER_HEAD, pos + 8):
                start, handle = data[pos + 4 : pos + 12], data[at : at + _HANDLE_BYTES.get(data[at], 1)]
        pos = stop
        count += 1
    return pos, count


def _is_passthrough(data: bytes, pos: int, stop: int, sending: Set[bytes], attached: Set[bytes]) -> bool:
    if stop - pos > _TRANSFER_HANDLE_MAX and data.startswith(_TRANSFER_HEAD, pos + 8):
        handle = pos + (_SHORT_HANDLE if data[pos + 11] == 0xC0 else _TRANSFER_HANDLE_MAX)
        behind = handle + _HANDLE_BYTES.get(data[handle], 1)
        if behind > stop:
            return False
        head = data[pos + 6 : pos + 8] + data[handle:behind]
        return head in sending and data.find(BATCH_FIELD, handle, min(stop, pos + _FORMAT_END_MAX)) < 0
    if data[pos + 10] == FLOW:
        return _is_simple_flow(data, pos, stop, attached)
    return _SIMPLE_DISPOSITION(data, pos + 8, stop) is not None


def _is_simple_flow(data: bytes, pos: int, stop: int, attached: Set[bytes]) -> bool:
    found = _SIMPLE_FLOW(data, pos + 8, stop)
    if found is None:
        return False
    size = found[1] or found[3]
    return (
        found.lastindex == (found[2] or found[4])[0]
        and int.from_bytes(size, "big") == stop - found.end(1 if found[1] else 3)
        and data[pos + 6 : pos + 8] + found[5] in attached
    )


def _bind_native() -> Any:
    """The functions in C, bound to Proton's; None without them."""
    native = native_module(f"{__package__}._delivery_loops")
    if native is not None:
        addresses = {name: _address(ffi.addressof(lib, name)) for name in native.names()}
        native.bind(addresses, ACCEPTED)
    return native


def _address(pointer: Pointer) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _delivery_at(handle: Handle) -> Pointer:
    return ffi.cast("pn_delivery_t *", handle)


passthrough_end = passthrough_end_in_python
without_tokens = without_tokens_in_python
_native: Final = _bind_native()
IS_NATIVE: Final = _native is not None
"""Whether the functions in C are in use."""
if _native is not None:
    handle_of, delivery_of = _address, _delivery_at
    take_deliveries, take_accepted, accept = _native.take_deliveries, _native.take_accepted, _native.accept
    send, passthrough_end = _native.send, _native.passthrough_end
    without_tokens = _native.without_tokens
