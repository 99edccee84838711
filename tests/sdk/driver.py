"""One driver as a process: requests in, answers out, with a watchdog.

Knows the framing of the protocol (``PROTOCOL.md``): a JSON line each way, one request at a time. Does not know what
the operations mean. A ``DriverProcess`` owns its process, the thread that reads its answers and the file that takes
its stderr; an answer that does not come in time costs the process its life, and every failure shows the end of what
the driver wrote to stderr.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from .prepare import Client, prepare

STDERR_TAIL_BYTES = 4000
CLOSE_SECONDS_MAX = 120.0  # only for drivers that hang: old SDKs end late on a busy machine
REQUEST_SECONDS_MAX = 90.0  # ends a hang; an answer that is due takes no more on a busy machine
WARM_UP_REQUESTS = 2  # `hello`, which starts the program, and the first request that connects


@dataclass(frozen=True)
class Way:
    """How a data client connects."""

    transport: Literal["amqp", "websocket"] = "amqp"
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.transport}-tls" if self.tls else self.transport


PLAIN = Way()


class SdkError(Exception):
    """What an SDK raised, as the driver reported it. ``kind`` is the protocol's word for it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['kind']}: {error['type']} ({error.get('code')}): {error['message']}")
        self.kind: str = error["kind"]
        self.type: str = error["type"]
        self.code: str | None = error.get("code")
        self.message: str = error["message"]
        self.tries: list[str] = error.get("tries") or []
        """The codes of all tries, where the SDK raises them together."""


class DriverFailedError(Exception):
    """A driver ended, did not answer in time or broke the protocol."""


class DriverProcess:
    """A running driver.

    Invariant: while ``alive`` no request is unanswered, so the next answer line belongs to the next request.
    """

    def __init__(
        self,
        client: Client,
        connection_string: str,
        *,
        ca_file: Path | None = None,
        transport: str = PLAIN.transport,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        prepare(client)
        self.client = client
        options = [*([] if ca_file is None else [f"ca={ca_file}"]), f"transport={transport}"]
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in kill)
        self._process = subprocess.Popen(
            [*client.start, *options, connection_string],
            cwd=client.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **(variables or {})},
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name=f"driver {client.name}", daemon=True)
        self._reader.start()
        self._count = 0
        self.alive = True

    def request(self, op: str, *, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """The result of one operation.

        Raises SdkError for an error answer. Raises DriverFailedError, and kills the process, when no answer comes
        within ``timeout_s`` or the answer is not one. The first requests have the client's ``warm_up_s`` in addition.
        """
        self._count += 1
        if self._count <= WARM_UP_REQUESTS:
            timeout_s += self.client.warm_up_s
        line = json.dumps({"id": self._count, "op": op, **arguments})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            answer = self._lines.get(timeout=timeout_s)
        except OSError:
            raise self._failure(f"took no request: {line[:500]}") from None
        except queue.Empty:
            raise self._failure(f"gave no answer within {timeout_s} s: {line[:500]}") from None
        if answer is None:
            raise self._failure(f"ended instead of answering: {line[:500]}")
        try:
            decoded: dict[str, Any] = json.loads(answer)
            if decoded["id"] != self._count:
                raise ValueError("another request's answer")
            ok = decoded["ok"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._failure(f"broke the protocol ({error}): {answer[:500]!r}") from error
        if not ok:
            raise SdkError(decoded["error"])
        result: dict[str, Any] = decoded["result"]
        return result

    def close(self) -> None:
        """Ask the driver to end and wait for it; a driver that does not end is killed and reported."""
        if not self.alive:
            return
        self.request("close", timeout_s=CLOSE_SECONDS_MAX)
        try:
            status = self._process.wait(CLOSE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise self._failure("did not end after close") from None
        if status != 0:
            raise self._failure(f"ended with status {status} after close")
        self._end()

    def kill(self) -> None:
        """End the process at once, in the middle of whatever it holds."""
        if self.alive:
            self._end()

    def _failure(self, what: str) -> DriverFailedError:
        tail = self._end()
        return DriverFailedError(f"the driver of {self.client.name} {what}\n--- end of its stderr ---\n{tail}")

    def _end(self) -> str:
        """Kill what is left of the process, give everything back, and return the end of its stderr."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # a request that the dead process did not take is still in the buffer
                    pass
        with self._stderr as stderr:
            size = stderr.seek(0, 2)
            stderr.seek(max(0, size - STDERR_TAIL_BYTES))
            return stderr.read().decode(errors="replace")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)
