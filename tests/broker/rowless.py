"""A batch without rows, to be committed: what a test of commits needs of `storage.Batch`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from emubus.storage import CommitTogether
from emubus.storage.contract import BatchState, Closing


class RowlessBatch(Closing):
    """Implements `storage.Batch`; a subclass says what a commit is."""

    state = BatchState.OPEN

    def __init__(self, shared: CommitTogether | None = None) -> None:
        self._shared = shared

    @property
    def shared(self) -> CommitTogether | None:
        return self._shared

    @abstractmethod
    def commit(self) -> None: ...

    def get(self, table: str, key: bytes) -> bytes | None:
        raise AssertionError("read")

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        raise AssertionError("read")

    def put(self, table: str, key: bytes, value: bytes) -> None:
        raise AssertionError("written")

    def delete(self, table: str, key: bytes) -> bool:
        raise AssertionError("written")

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        raise AssertionError("written")

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        raise AssertionError("written")

    def abort(self) -> None:
        raise AssertionError("aborted")

    def close(self) -> None:
        raise AssertionError("closed")
