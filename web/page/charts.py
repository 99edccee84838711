"""Charts of figures over time: lines with axes and units, drawn by the server, and by uPlot where scripts run.

Knows scales, ticks and gaps. Does not know how figures are sampled (`telemetry/sampler.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from aiohttp import web

from ...telemetry.series import SPANS
from .forms import query_form
from .site import Site, address

WIDTH: Final = 560
HEIGHT: Final = 150
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 22
POINTS_MAX: Final = 180
"""More samples are drawn as means of several."""

CHARTS: Final[Sequence[tuple[str, str, Mapping[str, str]]]] = (
    ("Messages in and out", "messages/s", {"in": "in", "out": "out"}),
    ("Messages there", "messages", {"depth": "active", "dead": "dead-lettered"}),
    ("Oldest message", "s", {"age_s": "age of the oldest active message"}),
    ("Refused and lost", "per s", {"refused": "refusals", "lock_losses": "expired locks"}),
    ("Commits", "ms", {"commit_ms": "mean duration"}),
)
"""Title, unit, and the label of each figure."""
X_LABELS: Final[Mapping[str, Sequence[str]]] = {
    "5m": ("-5 min", "-4", "-3", "-2", "-1", "now"),
    "1h": ("-60 min", "-50", "-40", "-30", "-20", "-10", "now"),
    "1d": ("-24 h", "-20", "-16", "-12", "-8", "-4", "now"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A figure: the pieces of its line as SVG points (a gap has no samples), and its last value."""

    label: str
    pieces: Sequence[str]
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart in pixels: ticks are (position, label)."""

    title: str
    unit: str
    lines: Sequence[Line]
    outages: Sequence[tuple[float, float]]
    """When a messaging store was out: from, and how wide."""
    samples: str
    """The figures as JSON, for the browser to draw."""
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]

    @property
    def is_empty(self) -> bool:
        """Whether no figure has a sample."""
        return not any(line.pieces for line in self.lines)


async def show(site: Site, request: web.Request) -> web.Response:
    """The charts of the namespace or of an entity."""
    query = query_form(request)
    path = query.text("path")
    span = query.choice("span", "Span", list(SPANS)) if query.text("span") else "5m"
    entity = site.entity(path) if path else None
    sampler = site.services.sampler
    samples = sampler.samples(None if entity is None else entity.path, span)
    out = sampler.samples(None, span)["stores_out"]
    return site.render(
        request,
        "charts.html",
        live_path=address("charts", path=path, span=span),
        path="" if entity is None else entity.path,
        span=span,
        spans=list(SPANS),
        charts=charts_of(samples, span, out, site.services.clock.now_ms()),
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=HEIGHT - BOTTOM,
    )


def charts_of(
    samples: Mapping[str, Sequence[float | None]], span: str, out: Sequence[float | None], now_ms: int
) -> list[Chart]:
    """The charts of those figures that there are; `out` has how many messaging stores were out."""
    return [
        _chart(title, unit, {label: samples[name] for name, label in figures.items()}, span, out, now_ms)
        for title, unit, figures in CHARTS
        if all(name in samples for name in figures)
    ]


def _chart(
    title: str,
    unit: str,
    figures: Mapping[str, Sequence[float | None]],
    span: str,
    out: Sequence[float | None],
    now_ms: int,
) -> Chart:
    thin = {label: thinned(values) for label, values in figures.items()}
    highest = max((value for values in thin.values() for value in values if value is not None), default=0.0)
    ticks = nice_ticks(highest, step_min=1.0 if unit == "messages" else 0.0)
    top = ticks[-1]
    labels = X_LABELS[span]
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    x_ticks = [(LEFT + across * index / (len(labels) - 1), label) for index, label in enumerate(labels)]
    y_ticks = [(TOP + up * (1 - tick / top), _figure(tick)) for tick in ticks]
    lines = [
        Line(label, _pieces(values, top, across, up), _figure(_last(figures[label]))) for label, values in thin.items()
    ]
    outages = [
        (LEFT + across * first / max(1, len(out) - 1), across * max(1, end - first) / max(1, len(out) - 1))
        for first, end in runs_of(out)
    ]
    given = {
        "slot_s": SPANS[span].slot_s,
        "until_s": now_ms // 1_000,
        "unit": unit,
        "labels": list(figures),
        "values": [[None if each is None else round(each, 3) for each in values] for values in figures.values()],
        "outages": runs_of(out),
    }
    return Chart(title, unit, lines, outages, json.dumps(given, separators=(",", ":")), x_ticks, y_ticks)


def runs_of(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Where values are not 0: the first of each run, and the one behind its last."""
    found: list[tuple[int, int]] = []
    for index, value in enumerate(values):
        if value:
            begins = not found or found[-1][1] != index
            found = [*found, (index, index + 1)] if begins else [*found[:-1], (found[-1][0], index + 1)]
    return found


def thinned(values: Sequence[float | None]) -> list[float | None]:
    """At most `POINTS_MAX` values: the means of neighbours, None where none of them is known."""
    size = ceil(len(values) / POINTS_MAX)
    found: list[float | None] = []
    for start in range(0, len(values), size):
        known = [value for value in values[start : start + size] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def nice_ticks(highest: float, step_min: float = 0.0) -> list[float]:
    """Ticks from 0 to at least `highest`: steps of 1, 2 or 5 times a power of ten, at most five of them."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 4
    power = 10.0 ** floor(log10(rough))
    step = max(step_min, next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999))
    return [step * index for index in range(ceil(highest / step - 1e-9) + 1)]


def _pieces(values: Sequence[float | None], top: float, across: float, up: float) -> list[str]:
    step = across / max(1, len(values) - 1)
    pieces: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{LEFT + index * step:.1f},{TOP + up * (1 - value / top):.1f}")
    # A single sample would be no line: it is drawn as a short one.
    return [" ".join(piece if len(piece) > 1 else [piece[0], piece[0]]) for piece in pieces if piece]


def _last(values: Sequence[float | None]) -> float | None:
    """The last known of the last few samples."""
    return next((value for value in reversed(values[-3:]) if value is not None), None)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 10_000:
        return f"{value / 1000:,.0f}k" if value < 1_000_000 else f"{value / 1_000_000:,.1f}M"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"
