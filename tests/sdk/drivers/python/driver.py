"""Driver of ``azure-servicebus`` for the behaviour tests: ``python -m python.driver sync|aio … <connection string>``.

Speaks the protocol of ``tests/sdk/PROTOCOL.md`` on stdin and stdout. Knows the SDK's client, senders and
receivers; how they connect is in ``reaching``, the translation of messages and errors in ``translate``, administration
in ``administration``. The plain and the asyncio client have the same methods, so one set of operations drives both
(``faces``). One ``Driver`` owns the client and every sender, receiver and message handle; ``reset`` and ``close`` give
them back.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.metadata
import json
import logging
import sys
import threading
from dataclasses import replace
from typing import Any, TextIO

import azure.servicebus as plain
import azure.servicebus.aio as asynchronous
from azure.servicebus.exceptions import MessageSizeExceededError

from .administration import Administration
from .faces import collected, done, run_without_loop
from .reaching import Reach
from .translate import (
    JSON,
    PROPERTY_TYPES,
    error_to_json,
    instant_from_ms,
    message_from_json,
    message_to_json,
    ms_from_instant,
    property_from_json,
    version,
)

CLIENT_OPTIONS: JSON = {
    "retry_total": 1,
    "retry_mode": "fixed",
    "retry_backoff_factor": 0.1,
    "retry_backoff_max": 1,
    "try_timeout": 20,
}
LINK_OPTIONS: JSON = {
    "timeout": 20,
    "keep_alive": 0,  # its thread would make each close wait for up to a second
}
SUB_QUEUES = {
    "dead-letter": plain.ServiceBusSubQueue.DEAD_LETTER,
    "transfer-dead-letter": plain.ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
}
MODES = {
    "peek-lock": plain.ServiceBusReceiveMode.PEEK_LOCK,
    "receive-and-delete": plain.ServiceBusReceiveMode.RECEIVE_AND_DELETE,
}
# Up to here the SDK sends dispositions already settled and waits for no confirmation.
LAST_UNCONFIRMED_VERSION = (7, 14)
LISTS_SESSIONS = hasattr(plain.ServiceBusClient, "list_queue_sessions")


def retrying(max: int | None = None, delay_ms: int | None = None, try_ms: int | None = None) -> JSON:  # noqa: A002
    """The options of the client for limits of its retries; what is not given stays as it is."""
    options: JSON = {
        "retry_total": max,
        "retry_backoff_factor": None if delay_ms is None else delay_ms / 1000,
        "try_timeout": None if try_ms is None else try_ms / 1000,
    }
    return {name: value for name, value in options.items() if value is not None}


class Receiver:
    """One open receiver and the messages that were received through it and are not settled yet."""

    def __init__(self, link: Any, locks: bool) -> None:
        self.link = link
        self.locks = locks
        self.entered = False
        self.messages: dict[str, Any] = {}
        self._count = 0

    def answer(self, messages: list[Any]) -> JSON:
        """The messages for an answer, each with a handle where it is locked."""
        return {"messages": [message_to_json(message, self._handle(message)) for message in messages]}

    def _handle(self, message: Any) -> str | None:
        if not self.locks:
            return None
        self._count += 1
        handle = f"m{self._count}"
        self.messages[handle] = message
        return handle


class Closing:
    """Closes unused clients while the next requests are answered; keeps the first failure for the next answer."""

    def __init__(self, face: str) -> None:
        self._face = face
        self._threads: list[threading.Thread] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: Exception | None = None

    def start(self, closables: list[Any]) -> None:
        """Begin to close these, in order."""
        if self._face == "aio":
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks.append(asyncio.ensure_future(self._close(closables)))
        else:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._threads.append(threading.Thread(target=lambda: run_without_loop(self._close(closables))))
            self._threads[-1].start()

    def raise_failure(self) -> None:
        """Raise what went wrong since the last call, if anything did."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def wait(self) -> None:
        """Wait until everything is closed; raises what went wrong."""
        for thread in self._threads:
            thread.join()
        for task in self._tasks:
            await task
        self.raise_failure()

    async def _close(self, closables: list[Any]) -> None:
        for closable in closables:
            try:
                await done(closable.close())
            except Exception as failure:  # the next reset or close reports it
                self._failure = self._failure or failure


class Driver:
    """The operations of the protocol over one client.

    Invariant: a receiver id names an open receiver until ``receiver_close`` or ``reset`` and is not used again.
    """

    def __init__(
        self, face: str, connection_string: str, *, ca_file: str | None = None, transport: str = "amqp"
    ) -> None:
        self._face = face
        self._module: Any = asynchronous if face == "aio" else plain
        self._reach = self._started = Reach(face, connection_string, ca_file, transport)
        self._options = CLIENT_OPTIONS
        self._administration = Administration(self._reach)
        self._client: Any = None
        self._senders: dict[str, Any] = {}
        self._receivers: dict[str, Receiver] = {}
        self._receiver_count = 0
        self._closing = Closing(face)
        self.closed = False

    async def handle(self, request: JSON) -> JSON:
        """The answer to one request; every error of the SDK becomes an error answer."""
        try:
            name = f"op_{request.get('op')}"
            operation = getattr(self, name, None) or getattr(self._administration, name, None)
            if operation is None:
                raise ValueError(f"unknown operation {request.get('op')!r}")
            result = await operation(**{k: v for k, v in request.items() if k not in ("id", "op")})
            return {"id": request["id"], "ok": True, "result": result or {}}
        except Exception as error:  # the protocol: a request never ends the driver
            return {"id": request["id"], "ok": False, "error": error_to_json(error)}

    async def op_hello(self) -> JSON:
        return {
            "client": f"python-{self._face}",
            "sdk": f"azure-servicebus {importlib.metadata.version('azure-servicebus')}",
            "property_types": PROPERTY_TYPES,
            "modify_properties": False,
            "settlement_confirmed": version() > LAST_UNCONFIRMED_VERSION,
            "features": ["administration", *(["session_list"] if LISTS_SESSIONS else [])],
        }

    async def op_send(self, entity: str, messages: list[JSON], how: str) -> None:
        try:
            sender = self._sender(entity)
            made = [message_from_json(spec) for spec in messages]
            if how == "single":
                for message in made:
                    await done(sender.send_messages(message))
            elif how == "list":
                await done(sender.send_messages(made))
            else:
                batch = await done(sender.create_message_batch())
                for message in made:
                    batch.add_message(message)
                await done(sender.send_messages(batch))
        except Exception:
            await self._forget_sender(entity)
            raise

    async def op_fill_batch(self, entity: str, body_bytes: int, max_bytes: int | None = None) -> JSON:
        sender = self._sender(entity)
        count = 0
        try:
            batch = await done(sender.create_message_batch(max_size_in_bytes=max_bytes))
            try:
                while True:
                    batch.add_message(message_from_json({"body_size": body_bytes}))
                    count += 1
            except MessageSizeExceededError:
                await done(sender.send_messages(batch))
        except Exception:
            await self._forget_sender(entity)
            raise
        return {"count": count}

    async def op_receiver_open(
        self,
        entity: str,
        mode: str,
        subscription: str | None = None,
        sub_queue: str | None = None,
        prefetch: int | None = None,
    ) -> JSON:
        options: JSON = {"receive_mode": MODES[mode], "prefetch_count": prefetch or 0, **LINK_OPTIONS}
        if sub_queue is not None:
            options["sub_queue"] = SUB_QUEUES[sub_queue]
        return {"receiver": self._keep_receiver(self._made_receiver(entity, subscription, options), mode)}

    async def op_session_accept(
        self,
        entity: str,
        mode: str,
        wait_ms: int,
        subscription: str | None = None,
        session_id: str | None = None,
    ) -> JSON:
        which = plain.NEXT_AVAILABLE_SESSION if session_id is None else session_id
        options: JSON = {"receive_mode": MODES[mode], "session_id": which, "max_wait_time": wait_ms / 1000}
        link = self._made_receiver(entity, subscription, options | LINK_OPTIONS)
        try:
            await done(link.__aenter__() if self._face == "aio" else link.__enter__())
        except Exception:
            await done(link.close())
            raise
        return {
            "receiver": self._keep_receiver(link, mode),
            "session_id": link.session.session_id,
            "locked_until_ms": ms_from_instant(link.session.locked_until_utc),
        }

    async def op_receive(self, receiver: str, max: int, wait_ms: int) -> JSON:  # noqa: A002
        opened = self._receivers[receiver]
        if not opened.entered:  # else the wait bounds opening the link, too, and a busy machine fails it (7.15)
            await done(opened.link.__aenter__() if self._face == "aio" else opened.link.__enter__())
            opened.entered = True
        return opened.answer(await done(opened.link.receive_messages(max, max_wait_time=wait_ms / 1000)))

    async def op_settle(
        self,
        receiver: str,
        message: str,
        action: str,
        reason: str | None = None,
        description: str | None = None,
        properties: JSON | None = None,
    ) -> None:
        for value in (properties or {}).values():
            property_from_json(value)  # the SDK modifies no properties; a wrong type is an error all the same
        opened = self._receivers[receiver]
        link, target = opened.link, opened.messages[message]
        if action == "complete":
            await done(link.complete_message(target))
        elif action == "abandon":
            await done(link.abandon_message(target))
        elif action == "defer":
            await done(link.defer_message(target))
        elif action == "dead-letter":
            await done(link.dead_letter_message(target, reason=reason, error_description=description))
        else:
            raise ValueError(f"unknown action {action!r}")
        del opened.messages[message]

    async def op_renew_lock(self, receiver: str, message: str) -> JSON:
        opened = self._receivers[receiver]
        until = await done(opened.link.renew_message_lock(opened.messages[message]))
        return {"locked_until_ms": ms_from_instant(until)}

    async def op_peek(self, receiver: str, max: int, from_sequence_number: str | None = None) -> JSON:  # noqa: A002
        link = self._receivers[receiver].link
        messages = await done(link.peek_messages(max, sequence_number=int(from_sequence_number or 0)))
        return {"messages": [message_to_json(message, None) for message in messages]}

    async def op_receive_deferred(self, receiver: str, sequence_numbers: list[str]) -> JSON:
        opened = self._receivers[receiver]
        numbers = [int(number) for number in sequence_numbers]
        return opened.answer(await done(opened.link.receive_deferred_messages(numbers)))

    async def op_session_renew(self, receiver: str) -> JSON:
        return {"locked_until_ms": ms_from_instant(await done(self._receivers[receiver].link.session.renew_lock()))}

    async def op_session_get_state(self, receiver: str) -> JSON:
        state = await done(self._receivers[receiver].link.session.get_state())
        return {"state_base64": None if state is None else base64.b64encode(state).decode()}

    async def op_session_set_state(self, receiver: str, state_base64: str | None = None) -> None:
        state = None if state_base64 is None else base64.b64decode(state_base64)
        await done(self._receivers[receiver].link.session.set_state(state))

    async def op_session_list(
        self, entity: str, subscription: str | None = None, updated_after_ms: int | None = None
    ) -> JSON:
        after = None if updated_after_ms is None else instant_from_ms(updated_after_ms)
        client = self._opened_client()
        if subscription is None:
            pages = client.list_queue_sessions(entity, state_updated_after=after)
        else:
            pages = client.list_subscription_sessions(entity, subscription, state_updated_after=after)
        return {"session_ids": await collected(pages)}

    async def op_schedule(self, entity: str, messages: list[JSON], at_ms: int) -> JSON:
        made = [message_from_json(spec) for spec in messages]
        try:
            numbers = await done(self._sender(entity).schedule_messages(made, instant_from_ms(at_ms)))
        except Exception:
            await self._forget_sender(entity)
            raise
        return {"sequence_numbers": [str(number) for number in numbers]}

    async def op_cancel_scheduled(self, entity: str, sequence_numbers: list[str]) -> None:
        try:
            await done(self._sender(entity).cancel_scheduled_messages([int(number) for number in sequence_numbers]))
        except Exception:
            await self._forget_sender(entity)
            raise

    async def op_receiver_close(self, receiver: str) -> None:
        await done(self._receivers.pop(receiver).link.close())

    async def op_reset(
        self,
        retries: JSON | None = None,
        credential: JSON | None = None,
        namespace: str | None = None,
        address: str | None = None,
    ) -> None:
        """Give everything back, behind the answer: closing takes this SDK half a second for each receiver."""
        self._reach = replace(self._started, credential=credential, namespace=namespace, address=address)
        self._administration.reach = self._reach
        links = [opened.link for opened in self._receivers.values()] + list(self._senders.values())
        client, self._client = self._client, None
        self._receivers, self._senders = {}, {}
        closables = [*links, *([] if client is None else [client]), *self._administration.give_back()]
        if closables:
            self._closing.start(closables)
        self._options = CLIENT_OPTIONS | retrying(**(retries or {}))
        self._closing.raise_failure()

    async def op_close(self) -> None:
        self.closed = True
        await self.op_reset()
        await self._closing.wait()

    def _opened_client(self) -> Any:
        if self._client is None:
            self._client = self._reach.data_client(self._module.ServiceBusClient, self._options)
        return self._client

    def _made_receiver(self, entity: str, subscription: str | None, options: JSON) -> Any:
        client = self._opened_client()
        if subscription is None:
            return client.get_queue_receiver(entity, **options)
        return client.get_subscription_receiver(entity, subscription, **options)

    def _keep_receiver(self, link: Any, mode: str) -> str:
        self._receiver_count += 1
        receiver_id = f"r{self._receiver_count}"
        self._receivers[receiver_id] = Receiver(link, mode == "peek-lock")
        return receiver_id

    def _sender(self, entity: str) -> Any:
        if entity not in self._senders:
            self._senders[entity] = self._opened_client().get_queue_sender(entity, **LINK_OPTIONS)
        return self._senders[entity]

    async def _forget_sender(self, entity: str) -> None:
        sender = self._senders.pop(entity, None)
        if sender is not None:
            await done(sender.close())


async def serve_aio(driver: Driver, out: TextIO) -> None:
    """Answer requests with the asyncio client until ``close`` or the end of stdin."""
    loop = asyncio.get_running_loop()
    while not driver.closed and (line := await loop.run_in_executor(None, sys.stdin.readline)):
        print(json.dumps(await driver.handle(json.loads(line))), file=out, flush=True)
    await driver.op_close()


def serve_sync(driver: Driver, out: TextIO) -> None:
    """Answer requests with the plain client until ``close`` or the end of stdin."""
    while not driver.closed and (line := sys.stdin.readline()):
        print(json.dumps(run_without_loop(driver.handle(json.loads(line)))), file=out, flush=True)
    run_without_loop(driver.op_close())


def main() -> None:
    """Start the face of the SDK that the first argument names."""
    face, *options, connection_string = sys.argv[1:]
    given = dict(option.split("=", 1) for option in options)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    out, sys.stdout = sys.stdout, sys.stderr  # whatever else prints must not break the protocol
    driver = Driver(face, connection_string, ca_file=given.get("ca"), transport=given.get("transport", "amqp"))
    if face == "aio":
        asyncio.run(serve_aio(driver, out))
    else:
        serve_sync(driver, out)


if __name__ == "__main__":
    main()
