"""Parcels and their delivery against a service that does what the test says."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.options import SinkOptions, sink_options
from emubus.spark_connector.sink import delivery, routes
from emubus.spark_connector.sink.delivery import Delivery
from emubus.spark_connector.sink.targets import ENVELOPE_MESSAGES_MAX, Grouper, Limits, Parcel

from .fakes import BUSY, MIXED_KEYS, TOO_LARGE, Arrived, FakeService, Verdict, numbers, row

CONNECTION = "Endpoint=sb://localhost:1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true"


@pytest.fixture(name="service")
def make_service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    service = FakeService()
    monkeypatch.setattr(routes, "pooled", service.pooled)
    clock = ManualTime()
    monkeypatch.setattr(delivery, "monotonic_s", clock.now)
    monkeypatch.setattr(delivery, "sleep", clock.sleep)
    return service


class ManualTime:
    """A clock that only sleepers move."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += max(0.0, seconds)


def options(**changes: object) -> SinkOptions:
    plain = sink_options({"connectionString": CONNECTION, "queue": "q"}, streaming=False)
    return replace(plain, **changes)  # type: ignore[arg-type]


def deliver(sink: SinkOptions, rows: list[tuple[str, int, dict[str, str]]]) -> Delivery:
    courier = Delivery(sink)
    grouper = Grouper(courier.limits)
    for target, number, keys in rows:
        for parcel in grouper.add(number, row(number, **keys), target):  # type: ignore[arg-type]
            courier.put(parcel)
    for parcel in grouper.close():
        courier.put(parcel)
    courier.finish()
    return courier


def keyless(count: int) -> list[tuple[str, int, dict[str, str]]]:
    return [("q", number, {}) for number in range(count)]


def gathered(limits: Limits, rows: list[tuple[str, int, dict[str, str]]]) -> list[Parcel]:
    grouper = Grouper(lambda target: limits)
    done: list[Parcel] = []
    for target, number, keys in rows:
        done += grouper.add(number, row(number, **keys), target)  # type: ignore[arg-type]
    return done + grouper.close()


# ---- parcels


def test_a_delivery_holds_one_key_and_one_target_only() -> None:
    rows = [(target, n, keys) for n, target, keys in [
        (0, "a", {"session": "s"}), (1, "a", {"session": "t"}), (2, "b", {"session": "s"}), (3, "a", {"key": "s"}),
        (4, "a", {}), (5, "a", {"session": "s"}), (6, "a", {}),
    ]]  # fmt: skip
    parcels = gathered(Limits(10_000, 10_000), rows)
    assert [(parcel.key, parcel.numbers) for parcel in parcels] == [
        (("a", "s", None), [0, 5]),
        (("a", "t", None), [1]),
        (("b", "s", None), [2]),
        (("a", None, "s"), [3]),
        (("a", None, None), [4, 6]),
    ]


@pytest.mark.parametrize("limit", [600, 1024, 4999, 10_000])
def test_an_envelope_is_never_larger_than_its_limit_and_as_full_as_it_can_be(limit: int) -> None:
    parcels = gathered(Limits(limit, limit), keyless(300))
    sizes = [len(parcel.encode()[0]) for parcel in parcels]
    assert max(sizes) <= limit
    assert min(sizes[:-1]) > limit - 105 - 250  # a row more, or the head's reserve, is all that is left free


def test_an_envelope_holds_no_more_messages_than_the_service_takes() -> None:
    parcels = gathered(Limits(10_000_000, 10_000_000), keyless(ENVELOPE_MESSAGES_MAX + 1))
    assert [len(parcel.rows) for parcel in parcels] == [ENVELOPE_MESSAGES_MAX, 1]


def test_one_message_travels_without_an_envelope() -> None:
    (parcel,) = gathered(Limits(10_000, 10_000), keyless(1))
    assert parcel.encode() == (row(0).data, False)


def test_the_same_rows_make_the_same_parcels_again() -> None:
    rows = [("q", n, {"session": f"s{n % 7}"} if n % 3 else {}) for n in range(2000)]
    once, again = (gathered(Limits(3000, 2000), rows) for _ in range(2))
    assert [parcel.numbers for parcel in once] == [parcel.numbers for parcel in again]


# ---- delivery


def test_every_row_is_delivered_once_by_a_service_that_takes_all(service: FakeService) -> None:
    courier = deliver(options(), keyless(1000))
    assert [n for each in service.stored for n in numbers(each.data)] == list(range(1000))
    assert (courier.tally.rows, courier.tally.deliveries, courier.tally.repeated) == (1000, len(service.stored), 0)
    assert service.connections == 1


def test_no_more_deliveries_are_in_flight_than_allowed(service: FakeService) -> None:
    deliver(options(max_in_flight=3), keyless(1000))
    assert service.most_in_flight == 3


def test_of_one_key_one_delivery_is_in_flight_at_a_time(service: FakeService) -> None:
    deliver(options(), [("q", n, {"session": "s"}) for n in range(1000)])
    assert service.most_in_flight == 1


def test_ordered_rows_without_a_key_are_in_flight_one_delivery_at_a_time(service: FakeService) -> None:
    deliver(options(ordered=True), keyless(1000))
    assert service.most_in_flight == 1


def test_a_refusal_that_passes_is_tried_again(service: FakeService) -> None:
    service.rules.extend([lambda _: BUSY, lambda _: BUSY])
    courier = deliver(options(), keyless(1000))
    assert sorted(n for each in service.stored for n in numbers(each.data)) == list(range(1000))
    assert courier.tally.repeated == 2
    assert service.connections == 1


def test_a_refusal_that_does_not_pass_is_an_error_when_the_time_is_up(service: FakeService) -> None:
    service.always = lambda _: BUSY
    with pytest.raises(ConnectorError) as caught:
        deliver(options(), keyless(3))
    assert str(caught.value) == (
        "[SERVICEBUS_THROTTLED] 3 of the rows 0 to 2 for 'q': busy; given up after 120 s of trying (retryTimeout)"
    )


def test_a_connection_that_never_comes_back_is_an_error_when_the_time_is_up(service: FakeService) -> None:
    service.always = lambda _: "cut"
    with pytest.raises(ConnectorError, match=r"the connection was cut.*retryTimeout") as caught:
        deliver(options(), keyless(1000))
    assert caught.value.code is Code.UNAVAILABLE


def test_what_was_under_way_when_the_connection_was_cut_goes_again(service: FakeService) -> None:
    service.rules.extend([lambda _: None, lambda _: "cut after", lambda _: None, lambda _: "cut"])
    deliver(options(), keyless(1000))
    stored = [n for each in service.stored for n in numbers(each.data)]
    assert set(stored) == set(range(1000))
    assert len(stored) > 1000  # the delivery that was stored without a word
    assert service.connections == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_order_within_a_key_holds_whatever_goes_wrong(service: FakeService, seed: int) -> None:
    chance = random.Random(seed)

    def rule(delivery: Arrived) -> object:
        return chance.choices([None, BUSY, "cut", "cut after"], [10, 3, 1, 1])[0]

    service.always = rule  # type: ignore[assignment]
    sessions = [f"s{n}" for n in range(5)]
    rows = [("q", n, {"session": chance.choice(sessions)}) for n in range(1500)]
    deliver(options(max_in_flight=4), rows)
    for session in sessions:
        expected = [n for _, n, keys in rows if keys["session"] == session]
        stored = [n for each in service.stored for n in numbers(each.data) if n in set(expected)]
        assert list(dict.fromkeys(stored)) == expected  # first arrivals are in order
        assert list(dict.fromkeys(reversed(stored))) == expected[::-1]  # and nothing later precedes a repeat


@pytest.mark.parametrize("ordered", [False, True])
def test_ordered_rows_keep_their_order_over_retries(service: FakeService, ordered: bool) -> None:
    service.rules.extend([lambda _: BUSY, lambda _: None, lambda _: BUSY])
    deliver(options(ordered=ordered), keyless(1000))
    stored = [n for each in service.stored for n in numbers(each.data)]
    assert (stored == list(range(1000))) is ordered


# ---- refusals for good


def test_rows_whose_keys_differ_are_sent_one_by_one_to_a_service_that_wants_it(service: FakeService) -> None:
    service.always = lambda delivery: MIXED_KEYS if delivery.is_envelope else None
    deliver(options(max_in_flight=2), keyless(2000))
    stored = [n for each in service.stored for n in numbers(each.data)]
    assert sorted(stored) == list(range(2000))
    assert len(stored) == 2000
    refused = [each for each in service.arrived if each.is_envelope]
    assert len(refused) == 2  # a window of envelopes, then it has learnt


def test_a_refused_row_is_named_and_does_not_take_its_neighbours_with_it(service: FakeService) -> None:
    refusal = ConnectorError(Code.REFUSED, "no 42", condition="com.microsoft:argument-error")
    service.always = lambda delivery: refusal if 42 in numbers(delivery.data) else None
    with pytest.raises(ConnectorError, match="row 42 for 'q': no 42"):
        deliver(options(), keyless(50))
    assert {n for each in service.stored for n in numbers(each.data)} >= set(range(42))


def test_what_no_patience_helps_against_is_raised_at_once(service: FakeService) -> None:
    gone = ConnectorError(Code.ENTITY_NOT_FOUND, "no such queue", condition="amqp:not-found")
    service.rules.append(lambda _: gone)
    with pytest.raises(ConnectorError, match="no such queue") as caught:
        deliver(options(), keyless(3))
    assert (caught.value.code, len(service.arrived)) == (Code.ENTITY_NOT_FOUND, 1)


@pytest.mark.parametrize(("on_oversize", "skipped"), [("skip", [7]), ("fail", [])])
def test_a_row_that_the_service_finds_too_large_is_skipped_or_an_error(
    service: FakeService, on_oversize: str, skipped: list[int]
) -> None:
    service.always = lambda delivery: TOO_LARGE if 7 in numbers(delivery.data) else None
    work: Callable[[], Delivery] = partial(deliver, options(on_oversize=on_oversize), keyless(50))
    if on_oversize == "fail":
        with pytest.raises(ConnectorError, match="row 7 for 'q': too large"):
            work()
    else:
        assert work().tally.skipped == skipped
        assert sorted(n for each in service.stored for n in numbers(each.data)) == [n for n in range(50) if n != 7]


@pytest.mark.parametrize("verdict", ["close", "reject and close"])
@pytest.mark.parametrize("on_oversize", ["skip", "fail"])
def test_a_link_that_is_closed_at_a_row_that_is_too_large_costs_that_row_alone(
    service: FakeService, on_oversize: str, verdict: Verdict
) -> None:
    service.always = lambda delivery: verdict if 7 in numbers(delivery.data) else None
    rows = [("q", number, {"key": f"k{number % 20}"}) for number in range(60)]
    work: Callable[[], Delivery] = partial(deliver, options(on_oversize=on_oversize), rows)
    if on_oversize == "fail":
        with pytest.raises(ConnectorError, match="row 7 for 'q': too large"):
            work()
    else:
        assert work().tally.skipped == [7]
        assert sorted(n for each in service.stored for n in numbers(each.data)) == [n for n in range(60) if n != 7]
