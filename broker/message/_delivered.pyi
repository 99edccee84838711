# The function of `_delivered.c`; `delivered.py` says what it does.

from collections.abc import Sequence

def encode_rows(
    rows: Sequence[tuple[int, bytes]],
    tokens: Sequence[bytes] | None,
    start: bytes,
    token_at: int,
    map_at: int,
    number_at: int,
    enqueued_at: int,
    origin_at: int,
) -> list[bytes] | None: ...
