"""Fair use of the event loop: who works next, and for how long in one turn of the loop (R6).

The work of peers (`Turns`) is all in here: input that was read, connections that are to be freed, steps of requests. A
peer is charged the time that its work really took, and of those whose work waits the one comes next that would be
charged least after it: a peer with little to do overtakes all that have much, however many they are. Known clients
have a queue, and so have strangers, who have shown no valid token or key yet: all strangers together get one fixed part
of a turn, and time beyond it is deducted from their next turns. This is fair queueing: `_now_us` is the virtual time,
the place of the peer served last; a peer that comes with new work starts there, so that nobody saves time up by being
idle.

What peers ask of stores is executed behind their input (`TurnEnd`), in batches that take their part of a turn together
(`Pace`). A peer that is heard alone has its requests executed, and answered, before the loop turns: nothing else is
there that could share a batch with them, and a turn costs a message alone more than its row does. With others heard at
about the same time the stores wait for the next turn, and have one batch for all.

Does not know the work. A server owns `Turns`, a `Namespace` the other two; all are used on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from heapq import heappop, heappush
from typing import Final, Protocol

EXPECTED_US: Final = 2_000
"""What the work of a peer is expected to take of which nothing is known: much. Those that take longer are equal."""

GUESSED_US: Final = 500
"""What a peer whose work has been short owes at most while nobody waited: how much was computed is not known then, and
on a busy machine it may have taken 2 ms of which 0.1 were its own. With more it would come behind peers of which
nothing is known: forty whose first message took 20 ms were 0.8 s before it. With less, a peer that has much to do from
now on looks longer like one that has little: for a slice."""

assert 2 * GUESSED_US < EXPECTED_US, "a peer that owes a guess would come behind those of which nothing is known"

LARGE_TURN_US: Final = 2_000
"""Large batches of stores begin until so much of a turn of the loop is used. With more, connections are heard later;
with less, what sixteen stores do takes more turns, each with a look at all sockets."""

SMALL_TURN_US: Final = 8_000
"""Small ones begin until so much is used; stores without a disk never let the loop go else."""

UNCOUNTED_US: Final = 500
"""So much is added up over turns before the next one begins with nothing: to begin one takes a call of the loop, and a
message alone would make it each time. A batch that comes then begins as if so much of its turn were used."""

assert UNCOUNTED_US < LARGE_TURN_US < SMALL_TURN_US, "a large batch would begin where a small one waits, or never"


# ---- peers


class Account:
    """What one peer was charged, and the work of it that waits. Changed by `Turns` alone."""

    __slots__ = (
        "charged_us",
        "granted_count",
        "granted_us",
        "is_queued",
        "is_working",
        "queue",
        "slice_us",
        "step_us",
        "steps",
        "wants_turn",
    )

    def __init__(self) -> None:
        self.queue: _Queue | None = None
        """Where it was charged last."""
        self.charged_us = 0
        """Its place in the virtual time of that queue."""
        self.is_queued = False
        self.is_working = False
        self.wants_turn = False
        """Whether its `work_off` is to be called."""
        self.steps: deque[asyncio.Future[int]] = deque()
        """Steps of its requests that wait; they come before its input, which would only bring more of them."""
        self.granted_count = 0
        """Steps that may go, and have not gone yet."""
        self.granted_us = 0
        """What those are expected to take. It is never charged: what is given back would be a place before others."""
        self.slice_us = EXPECTED_US
        """What its next slice is expected to take: as long as the last."""
        self.step_us = EXPECTED_US
        """What its next step is expected to take: as long as the longest of late."""

    @property
    def end_us(self) -> int:
        """Its place once it was served the next time."""
        expected_us = self.step_us if self.steps else self.slice_us
        return self.charged_us + self.granted_us + (expected_us if expected_us < EXPECTED_US else EXPECTED_US)


def _guess(elapsed_us: int, expected_us: int) -> int:
    """What a peer is charged for work that nobody waited for."""
    return min(elapsed_us, max(GUESSED_US, min(expected_us, EXPECTED_US)))


class Worker(Protocol):
    """A peer that has work."""

    @property
    def account(self) -> Account:
        """Its account, the same for ever."""
        ...

    @property
    def is_stranger(self) -> bool:
        """Whether its client has shown no valid token or key yet."""
        ...

    def work_off(self, until_us: int) -> bool:
        """Work until that instant of the stopwatch, at least one step; return whether work is left."""
        ...


class _Queue:
    """The peers of one kind whose work waits, and the time that the kind has used in this turn."""

    __slots__ = ("_now_us", "_serial", "heap", "turn_us", "used_us")

    def __init__(self, turn_us: int) -> None:
        self.turn_us = turn_us
        self.used_us = 0
        self._now_us = 0
        self._serial = 0  # equal peers keep their order
        self.heap: list[tuple[int, int, Worker]] = []
        """Whose work waits. While it is empty and something of this turn is left, a peer need not wait."""

    def enter(self, account: Account) -> None:
        """A peer has new work, none of which waits yet: its place is not before the virtual time."""
        if account.queue is not self or account.charged_us < self._now_us:
            account.queue = self
            account.charged_us = self._now_us

    def put(self, worker: Worker) -> None:
        """The work of a peer waits."""
        account = worker.account
        if not account.is_queued:
            if account.queue is not self:
                self.enter(account)
            account.is_queued = True
            self._serial += 1
            heappush(self.heap, (account.end_us, self._serial, worker))

    def pop(self) -> Worker:
        """Take out the peer that comes next."""
        heap = self.heap
        while True:
            end_us, _, worker = heappop(heap)
            account = worker.account
            if account.end_us <= end_us or account.queue is not self:
                account.is_queued = False
                self._now_us = max(self._now_us, account.charged_us)
                return worker
            self._serial += 1  # it was charged while it waited
            heappush(heap, (account.end_us, self._serial, worker))

    def charge(self, account: Account, used_us: int) -> None:
        """Time went to a peer; negative where it was less than was expected."""
        self.used_us += used_us
        account.charged_us += used_us

    def charge_guess(self, account: Account, elapsed_us: int) -> None:
        """Work of a peer took so long while none waited; how much of that it computed is not known."""
        self.used_us += elapsed_us
        if elapsed_us > GUESSED_US:
            elapsed_us = _guess(elapsed_us, account.slice_us)
        account.slice_us = elapsed_us
        account.charged_us += elapsed_us

    def serve_at_once(self, account: Account) -> None:
        """A peer is served that has not waited: `enter`, and its place is the virtual time."""
        if account.queue is not self or account.charged_us < self._now_us:
            account.queue = self
            account.charged_us = self._now_us
        else:
            self._now_us = account.charged_us


class Turns:
    """Gives time to peers, in microseconds.

    In a turn all known peers together work for about `turn_us` and all strangers for `strangers_us`, each of them for
    at most `slice_us` at a time. What work took is `computed_us`, since a busy machine may take the processor away
    meanwhile. While no other work waits that costs too much: then it is the time of `stopwatch_us`, and no peer owes
    more for it than `EXPECTED_US`.
    """

    def __init__(
        self,
        slice_us: int,
        turn_us: int,
        strangers_us: int,
        stopwatch_us: Callable[[], int],
        computed_us: Callable[[], int],
        alone_us: int = 0,
    ) -> None:
        self._slice_us = slice_us
        self.stopwatch_us = stopwatch_us
        self.computed_us = computed_us
        self._known = _Queue(turn_us)
        self._strangers = _Queue(strangers_us)
        self._is_scheduled = False
        self._heard: Worker | None = None  # the last one whose work did not wait
        self._alone_us = alone_us
        self._alone_from_us = 0
        self.is_alone = False
        """Whether the peer that works now has been heard alone for at least `alone_us`."""

    @property
    def is_contended(self) -> bool:
        return bool(self._known.heap or self._strangers.heap)

    # ---- work of a peer itself

    def take(self, worker: Worker) -> bool:
        """Let a peer work, now or in a later turn; return whether it has work left."""
        account = worker.account
        if account.wants_turn or account.is_working:
            return True
        queue = self._strangers if worker.is_stranger else self._known
        if not queue.heap and queue.used_us < queue.turn_us:
            queue.serve_at_once(account)
            account.is_working = True
            started_us = self.stopwatch_us()
            if worker is not self._heard:
                self._heard, self._alone_from_us = worker, started_us + self._alone_us
            self.is_alone = started_us >= self._alone_from_us
            more = worker.work_off(started_us + self._slice_us)
            queue.charge_guess(account, self.stopwatch_us() - started_us)
            if more or queue.used_us >= queue.turn_us:
                return self._worked(queue, worker, more=more)
            account.is_working = False
            return False
        account.wants_turn = True
        if not account.is_queued:
            queue.enter(account)
            queue.put(worker)
        self._schedule()
        return True

    def charge(self, worker: Worker, used_us: int) -> None:
        """Add time that the loop spent on a peer outside `take` and `run`."""
        queue = self._strangers if worker.is_stranger else self._known
        queue.charge(worker.account, used_us)
        if queue.used_us >= queue.turn_us:
            self._schedule()

    def _work(self, queue: _Queue, worker: Worker) -> None:
        """Run one slice of a peer that has waited."""
        account = worker.account
        account.is_working = True
        self.is_alone = False
        started_us = self.stopwatch_us()
        if self.is_contended:
            computed_us = self.computed_us()
            more = worker.work_off(started_us + self._slice_us)
            account.slice_us = used_us = self.computed_us() - computed_us
            queue.charge(account, used_us)
        else:
            more = worker.work_off(started_us + self._slice_us)
            queue.charge_guess(account, self.stopwatch_us() - started_us)
        self._worked(queue, worker, more=more)

    def _worked(self, queue: _Queue, worker: Worker, *, more: bool) -> bool:
        """A slice is over; a peer with work left waits for the next."""
        account = worker.account
        account.is_working = False
        if more:
            account.wants_turn = True
            (self._strangers if worker.is_stranger else self._known).put(worker)
            self._schedule()
        elif queue.used_us >= queue.turn_us:
            self._schedule()
        return more

    # ---- steps of its requests

    async def run(self, worker: Worker, work: Awaitable[None]) -> None:
        """Run a coroutine of a peer: what it does between two waits is a step, and each step waits for its turn."""
        await _Paced(self, worker, work)

    def begin_step(self, worker: Worker) -> asyncio.Future[int] | None:
        """Return what a step of a peer must wait for; None if it may go at once."""
        queue, account = self._strangers if worker.is_stranger else self._known, worker.account
        if not queue.heap and queue.used_us < queue.turn_us and not account.granted_count:
            queue.serve_at_once(account)
            return None
        step: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        account.steps.append(step)
        if not account.is_queued:
            queue.enter(account)
            queue.put(worker)
        self._schedule()
        return step

    def after_wait(self, worker: Worker, step: asyncio.Future[int]) -> None:
        """A step has waited, and goes now."""
        if step.done() and not step.cancelled():
            account, expected_us = worker.account, step.result()
            account.granted_count -= 1
            account.granted_us -= expected_us
            queue = self._strangers if worker.is_stranger else self._known
            queue.used_us -= expected_us

    def end_step(self, worker: Worker, used_us: int) -> None:
        """A step has gone, and took so long."""
        self.charge(worker, used_us)
        account = worker.account
        account.step_us = max(used_us, account.step_us - account.step_us // 8)

    def end_step_alone(self, worker: Worker, elapsed_us: int) -> None:
        """A step has gone that nothing waited for; how much of that time it computed is not known."""
        self.end_step(worker, _guess(elapsed_us, worker.account.step_us))

    # ---- turns

    def _schedule(self) -> None:
        if not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._turn)
            self._is_scheduled = True

    def _turn(self) -> None:
        """The next turn of the loop: the known peers' part, then the strangers'."""
        self._is_scheduled = False
        known, strangers = self._known, self._strangers
        known.used_us = 0
        strangers.used_us = max(0, strangers.used_us - strangers.turn_us)
        for queue in (known, strangers):
            while queue.heap and queue.used_us < queue.turn_us:
                self._serve(queue, queue.pop())
        if known.heap or strangers.heap or strangers.used_us:
            self._schedule()

    def _serve(self, queue: _Queue, worker: Worker) -> None:
        """Give the peer that comes next a step, else a slice."""
        account = worker.account
        while account.steps:
            step = account.steps.popleft()
            if not step.done():  # else it was cancelled
                step.set_result(account.step_us)  # it goes in the loop's next turn
                account.granted_count += 1
                account.granted_us += account.step_us
                queue.used_us += account.step_us
                if account.steps or account.wants_turn:
                    queue.put(worker)
                return
        if account.wants_turn:
            account.wants_turn = False
            self._work(queue, worker)


class _Paced:
    """Awaits `work` of a peer, each step of it in a turn of the peer.

    A step that nothing waits for is measured with the stopwatch: to read what was computed twice takes 7 us, a tenth of
    what an operation of `$management` takes.
    """

    def __init__(self, turns: Turns, worker: Worker, work: Awaitable[None]) -> None:
        self._turns = turns
        self._worker = worker
        self._work = work

    def __await__(self) -> Generator[object, None, None]:
        turns, worker, steps = self._turns, self._worker, self._work.__await__()
        assert isinstance(steps, Generator)
        error: BaseException | None = None
        while True:
            wait = turns.begin_step(worker)
            if wait is not None:
                try:
                    yield from wait
                except BaseException as thrown:
                    error = thrown
                turns.after_wait(worker, wait)
            now_us = turns.stopwatch_us if wait is None else turns.computed_us
            started_us = now_us()
            try:
                waited_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            finally:
                error = None  # its traceback has this frame: else they keep each other, and what the work held
                ended = turns.end_step_alone if wait is None else turns.end_step
                ended(worker, now_us() - started_us)
            try:
                yield waited_for
            except BaseException as thrown:
                error = thrown
            del waited_for  # it has the error


# ---- the batches of stores


class TurnEnd:
    """The calls that wait for the end of this turn, or of the input that is `open`."""

    __slots__ = ("_calls", "_is_open", "_is_scheduled")

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._is_open = False
        self._is_scheduled = False

    def call(self, work: Callable[[], None]) -> None:
        """Call `work` with the next `run`: of the input that is open, else in the loop's next turn. It must not raise.

        A call that comes during a `run` is made in the next turn: others are heard before.
        """
        self._calls.append(work)
        if not self._is_open and not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._run_in_time)
            self._is_scheduled = True

    def promise_run(self) -> None:
        """The caller promises a `run` in this turn, also after an error."""
        self._is_open = True

    def run(self) -> None:
        """Make the calls that wait."""
        self._is_open = False
        if self._calls:
            calls, self._calls = self._calls, []
            for work in calls:
                work()

    def _run_in_time(self) -> None:
        self._is_scheduled = False
        self.run()


class Pace:
    """The time that the workers of all stores have used in this turn of the loop. Shared by those of a `Namespace`.

    Without it, sixteen large batches that are ready together are one turn, and connections are heard behind it. Of
    those that wait for a turn with time left, the first one goes in the next turn even if small batches have used that
    up: they may do so in each turn, most likely on a busy machine, where the stopwatch counts what others do.
    """

    def __init__(self) -> None:
        self.used_us = 0
        """In this turn; a batch need not `wait` up to LARGE_TURN_US."""
        self._next_turn = asyncio.Event()
        self._is_scheduled = False  # `_begin_turn`
        self._waiting: deque[object] = deque()
        """A ticket of each that waits for a turn with time left."""
        self._first: object = None
        """The ticket that goes in this turn."""

    def add(self, used_us: int) -> None:
        """A worker has worked for so many microseconds without waiting."""
        self.used_us += used_us
        if self.used_us > UNCOUNTED_US and not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_soon(self._begin_turn)
        self._is_scheduled = True

    def _begin_turn(self) -> None:
        self._is_scheduled = False
        self.used_us = 0
        self._first = self._waiting[0] if self._waiting else None
        self._next_turn.set()
        self._next_turn.clear()  # those that waited go on

    async def pause(self) -> None:
        """Let the loop turn, and wait for a turn that has time left."""
        if not self._is_scheduled:
            self._schedule()
        await self._wait_for_time()

    async def wait(self, *, large: bool) -> None:
        """Large batches wait for a turn that has time left, small ones for the next turn if much is used."""
        if large:
            if self.used_us > LARGE_TURN_US:
                await self._wait_for_time()
        elif self.used_us > SMALL_TURN_US:
            await self._next_turn.wait()  # once: large ones would be ready before it in each

    async def _wait_for_time(self) -> None:
        assert self._is_scheduled, "no turn would follow"
        ticket = object()
        self._waiting.append(ticket)
        try:
            await self._next_turn.wait()
            while self.used_us > LARGE_TURN_US and self._first is not ticket:
                await self._next_turn.wait()
        finally:
            self._waiting.remove(ticket)
