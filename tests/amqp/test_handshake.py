"""Protocol headers, SASL and open, in every order and chunking that clients have."""

from __future__ import annotations

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.access import Access
from emubus.broker.keys import SharedKey
from emubus.codec.decode import decode
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Array, Described, Symbol, Uint

from ..tracking import untracked
from .wire import BEGIN, CLOSE, DISPOSITION, FLOW, OPEN, Wire, frame, read_frames, sasl_init

OPEN_FRAME = frame(0, OPEN, ["client", "localhost", Uint(65536)])


def outcome_code(wire: Wire) -> int:
    frames = wire.read()
    assert [each.code for each in frames] == [0x44]
    return int(frames[0].fields[0])


async def test_the_server_echoes_the_header_and_offers_four_mechanisms_as_an_array_of_symbols(bare: Wire) -> None:
    bare.write(SASL_HEADER)
    written = bare.socket.take()
    assert written.startswith(SASL_HEADER)
    assert written[8 + 5] == 1  # a SASL frame
    mechanisms, _ = decode(written[16:])
    assert mechanisms == Described(
        0x40, [Array(0xA3, tuple(Symbol(name) for name in ("MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL")))]
    )


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("ANONYMOUS", b""),
        ("ANONYMOUS", None),
        ("ANONYMOUS", b"anonymous"),
        ("MSSBCBS", None),
        ("EXTERNAL", b""),
        ("PLAIN", b"\0any\0thing"),
    ],
)
async def test_every_mechanism_is_accepted_when_nothing_is_verified(
    bare: Wire, mechanism: str, response: bytes | None
) -> None:
    bare.write(SASL_HEADER)
    bare.read()
    bare.write(sasl_init(mechanism, response))
    assert outcome_code(bare) == 0
    bare.write(AMQP_HEADER + OPEN_FRAME)
    assert bare.socket.output.startswith(AMQP_HEADER)
    assert [each.code for each in bare.read()] == [OPEN]


async def test_all_that_comes_in_one_read_is_handled_though_each_slice_ends_at_once() -> None:
    wire = Wire(limits=Limits(slice_us=0), is_paced=True)
    begins = b"".join(frame(channel, BEGIN, [None, Uint(0), Uint(9), Uint(9), Uint(255)]) for channel in range(3))
    wire.write(SASL_HEADER + sasl_init() + AMQP_HEADER + OPEN_FRAME + begins)
    await wire.turns(9)
    assert wire.socket.output.startswith(SASL_HEADER)
    codes = [each.code for each in read_frames(wire.socket.take()[len(SASL_HEADER) :])[0]]
    assert codes[-4:] == [OPEN, BEGIN, BEGIN, BEGIN]


async def test_nothing_follows_the_outcome_before_the_clients_amqp_header(bare: Wire) -> None:
    bare.write(SASL_HEADER + sasl_init())
    frames, rest = read_frames(bare.socket.take())
    assert [each.code for each in frames] == [0x40, 0x44]
    assert rest == b""
    assert await bare.turn() == []
    bare.write(AMQP_HEADER[:5])
    assert await bare.turn() == []
    bare.write(AMQP_HEADER[5:])
    assert bare.socket.take() == AMQP_HEADER


@pytest.mark.parametrize("chunk", [1, 3, 7, 20, 10_000])
async def test_the_handshake_comes_in_chunks_of_any_size(bare: Wire, chunk: int) -> None:
    begin = frame(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)])
    bare.write(SASL_HEADER + sasl_init() + AMQP_HEADER + OPEN_FRAME + begin, chunk)
    assert [each.code for each in bare.read()] == [0x40, 0x44, OPEN, BEGIN]


async def test_a_client_may_skip_sasl(bare: Wire) -> None:
    bare.write(AMQP_HEADER + OPEN_FRAME)
    assert bare.socket.output.startswith(AMQP_HEADER)
    assert [each.code for each in bare.read()] == [OPEN]


async def test_external_is_neither_offered_nor_taken_when_keys_are_verified() -> None:
    wire = Wire(access=Access(verify=True))
    wire.write(SASL_HEADER)
    (offer,) = wire.read()
    assert offer.fields == [Array(0xA3, tuple(Symbol(name) for name in ("MSSBCBS", "ANONYMOUS", "PLAIN")))]
    wire.write(sasl_init("EXTERNAL"))
    assert outcome_code(wire) == 1
    wire.lose()


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (b"\0name\0key", 0),
        (b"name\0name\0key", 0),
        (b"\0name\0wrong", 0),
        (b"\0other\0key", 0),
        (b"name key", 1),
        (b"\0\xff\0key", 1),
        (None, 1),
    ],
)
async def test_plain_is_a_key_name_and_its_key(response: bytes | None, code: int) -> None:
    wire = Wire(access=Access([SharedKey("name", "key")], verify=True))
    wire.write(SASL_HEADER)
    wire.read()
    wire.write(sasl_init("PLAIN", response))
    assert outcome_code(wire) == code
    assert wire.socket.closed is bool(code)
    wire.lose()


@pytest.mark.parametrize(
    "init",
    [
        sasl_init("SCRAM-SHA-1", b""),
        frame(0, 0x41, [], kind=1),
        frame(0, 0x41, [Symbol("ANONYMOUS")], kind=0),
        frame(0, 0x43, [b""], kind=1),
        b"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x41\xff",
        b"\x00\x00\x00\x08\x02\x01\x00\x00",
        b"\x00\x00\x00\x05\x02\x01\x00\x00",
        b"\x7f\x00\x00\x08\x02\x01\x00\x00",
    ],
)
async def test_a_sasl_init_that_is_none_is_refused(bare: Wire, init: bytes) -> None:
    bare.write(SASL_HEADER)
    bare.read()
    bare.write(init)
    assert outcome_code(bare) == 1
    assert bare.socket.closed


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", b"G", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01"]
)
async def test_a_client_of_another_protocol_gets_the_header_and_is_closed(bare: Wire, start: bytes) -> None:
    bare.write(start)
    assert bare.socket.take() == SASL_HEADER
    assert bare.socket.closed


async def test_rubbish_in_place_of_the_amqp_header_is_answered_with_ours(bare: Wire) -> None:
    bare.write(SASL_HEADER + sasl_init())
    bare.read()
    bare.write(b"AMQP\x00\x02")
    assert bare.socket.take() == AMQP_HEADER
    assert bare.socket.closed


async def test_the_open_names_its_limits_and_no_idle_timeout(bare: Wire) -> None:
    opened = bare.open()
    container, hostname, frame_size, channel_max, idle = opened.fields[:5]
    assert (container, hostname, frame_size, channel_max, idle) == ("emubus", None, 65536, 9999, None)
    assert opened.fields[9] == {"product": "emubus"}


async def test_a_connection_that_is_not_opened_in_time_is_closed(bare: Wire) -> None:
    bare.write(SASL_HEADER + sasl_init())
    bare.clock.advance(29_999)
    assert not bare.socket.closed
    bare.clock.advance(1)
    assert bare.socket.closed


async def test_an_open_connection_may_be_silent_for_ever(wire: Wire) -> None:
    wire.clock.advance(86_400_000)
    assert not wire.socket.closed


async def test_a_begin_before_the_open_is_answered_with_a_close(bare: Wire) -> None:
    bare.write(SASL_HEADER + sasl_init() + AMQP_HEADER)
    bare.read()
    bare.send(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)])
    frames = bare.read()
    assert [each.code for each in frames] == [OPEN, CLOSE]
    assert frames[1].fields[0].value[0] == "amqp:not-allowed"


async def test_the_begin_answers_on_the_clients_channel_with_windows(wire: Wire) -> None:
    begun = wire.begin(7)
    remote_channel, next_id, incoming, outgoing, handle_max = begun.fields[:5]
    assert remote_channel == 7
    assert next_id == 0
    assert incoming > 1000
    assert outgoing > 1000
    assert handle_max >= 255


@pytest.mark.parametrize(
    ("broken", "condition", "text"),
    [
        (frame(0, OPEN, []), "amqp:decode-error", "The field 'container-id' of open is missing: it is mandatory."),
        (
            frame(0, OPEN, [None, "localhost"]),
            "amqp:decode-error",
            "The field 'container-id' of open is missing: it is mandatory.",
        ),
        (
            frame(3, OPEN, ["client", "localhost"]),
            "amqp:connection:framing-error",
            "An open must be sent on channel 0, not on 3.",
        ),
        (
            frame(0, OPEN, ["client", None, Uint(511)]),
            "amqp:invalid-field",
            "The field 'max-frame-size' of open is 511; it must be at least 512.",
        ),
    ],
    ids=["empty", "no container", "channel", "frame size"],
)
async def test_an_open_that_breaks_the_standard_is_answered_with_a_close(
    bare: Wire, broken: bytes, condition: str, text: str
) -> None:
    bare.write(SASL_HEADER + sasl_init() + AMQP_HEADER)
    bare.read()
    bare.write(broken)
    opened, closed = bare.read()
    assert (opened.code, closed.code) == (OPEN, CLOSE)
    error = closed.get(0).value
    assert (error[0], error[1].partition(" TrackingId:")[0]) == (condition, text)
    bare.clock.advance(3_000)
    assert bare.socket.closed


@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        (frame(1, BEGIN, []), "'next-outgoing-id' of begin"),
        (frame(1, BEGIN, [None, Uint(0), None, Uint(9)]), "'incoming-window' of begin"),
        (frame(1, BEGIN, [None, Uint(0), Uint(9)]), "'outgoing-window' of begin"),
        (frame(0, FLOW, []), "'incoming-window' of flow"),
        (
            frame(0, FLOW, [Uint(0), Uint(9), None, Uint(9), None, None, None, None, False, True]),
            "'next-outgoing-id' of flow",
        ),
        (frame(0, FLOW, [Uint(0), Uint(9), Uint(0)]), "'outgoing-window' of flow"),
        (frame(0, DISPOSITION, [None, Uint(0), None, True]), "'role' of disposition"),
        (frame(0, DISPOSITION, [True]), "'first' of disposition"),
    ],
)
async def test_a_frame_without_its_mandatory_fields_closes_the_connection(
    wire: Wire, broken: bytes, missing: str
) -> None:
    wire.write(broken)
    (closed,) = wire.read()
    error = closed.get(0).value
    assert (error[0], untracked(error[1])) == (
        "amqp:decode-error",
        f"The field {missing} is missing: it is mandatory.",
    )
