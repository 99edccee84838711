"""A bar chart as SVG: how messages and keys lie in partitions.

Knows shapes, colours and text. Does not know Spark and where the numbers come from; needs no library. A pure
function; the texts come from messages, so they are cut and escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH, BARS_HEIGHT, MARGIN, LABEL_WIDTH, ROW_HEIGHT = 960, 300, 60, 220, 22
LABEL_CHARS_MAX: Final = 28
COLOURS: Final = (
    "#4e79a7",
    "#f28e2b",
    "#e15759",
    "#76b7b2",
    "#59a14f",
    "#edc948",
    "#b07aa1",
    "#ff9da7",
    "#9c755f",
    "#2f4b7c",
)
REST_COLOUR: Final = "#c9c9c9"


class KeyCount(NamedTuple):
    """A key, the partition it is in, and its messages there."""

    key: str
    partition: int
    messages: int


def draw(title: str, partitions: Mapping[int, int], top_keys: Sequence[KeyCount]) -> str:
    """An SVG document: messages by partition above, the largest keys below, each key in its own colour in both."""
    height = MARGIN + BARS_HEIGHT + MARGIN + ROW_HEIGHT * len(top_keys) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(WIDTH / 2, 28, title, anchor="middle", size=16),
        *_partition_bars(partitions, top_keys),
        *_key_bars(top_keys),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _partition_bars(partitions: Mapping[int, int], top_keys: Sequence[KeyCount]) -> Iterator[str]:
    most = max(partitions.values(), default=0) or 1
    mean = sum(partitions.values()) / max(1, len(partitions))
    base = MARGIN + BARS_HEIGHT
    step = (WIDTH - 2 * MARGIN) / max(1, len(partitions))
    for index, (partition, count) in enumerate(sorted(partitions.items())):
        x, width = MARGIN + index * step + step * 0.1, step * 0.8
        y = float(base)
        segments = [(each.messages, colour) for each, colour in _coloured(top_keys) if each.partition == partition]
        rest = count - sum(part for part, _ in segments)
        for part, colour in [*segments, (rest, REST_COLOUR)]:
            tall = (BARS_HEIGHT - 20) * part / most
            y -= tall
            if part > 0:
                yield _rect(x, y, width, tall, colour)
        yield _text(x + width / 2, y - 5, f"{count:,}", anchor="middle", size=10)
        yield _text(x + width / 2, base + 16, str(partition), anchor="middle")
    mean_y = base - (BARS_HEIGHT - 20) * mean / most
    yield (
        f'<line x1="{MARGIN}" y1="{mean_y:.1f}" x2="{WIDTH - MARGIN}" y2="{mean_y:.1f}" stroke="#444" '
        'stroke-dasharray="5 4"/>'
    )
    yield _text(WIDTH - MARGIN + 4, mean_y + 4, "mean", size=10)
    yield _text(WIDTH / 2, base + 36, "messages by partition", anchor="middle")


def _key_bars(top_keys: Sequence[KeyCount]) -> Iterator[str]:
    most = max((each.messages for each in top_keys), default=0) or 1
    room = WIDTH - 2 * MARGIN - LABEL_WIDTH - 120
    top = MARGIN + BARS_HEIGHT + MARGIN
    for index, (each, colour) in enumerate(_coloured(top_keys)):
        y = top + index * ROW_HEIGHT
        wide = room * each.messages / most
        yield _text(MARGIN + LABEL_WIDTH - 8, y + 15, shortened(each.key), anchor="end")
        yield _rect(MARGIN + LABEL_WIDTH, y + 3, wide, ROW_HEIGHT - 6, colour)
        yield _text(
            MARGIN + LABEL_WIDTH + wide + 6, y + 15, f"{each.messages:,} in partition {each.partition}", size=10
        )


def shortened(text: str) -> str:
    """A text of at most LABEL_CHARS_MAX characters that can be printed, on one line."""
    shown = "".join(each if each.isprintable() else "�" for each in text)
    return shown if len(shown) <= LABEL_CHARS_MAX else f"{shown[: LABEL_CHARS_MAX - 1]}…"


def _coloured(top_keys: Sequence[KeyCount]) -> list[tuple[KeyCount, str]]:
    return [(each, COLOURS[index % len(COLOURS)]) for index, each in enumerate(top_keys)]


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
