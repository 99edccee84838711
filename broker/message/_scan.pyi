# The function of `_scan.c`; `scan.py` says what it does.

from collections.abc import Callable

def scan(
    data: bytes, key_length_max: int, message_bytes_max: int, new_id: Callable[[], str]
) -> tuple[bytes, str | None, str | None, bytes | None, int] | None: ...
