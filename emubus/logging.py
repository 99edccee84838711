"""Logging: log lines on stderr, and the ready line on stdout.

Knows structlog and the standard library's logging, which libraries use, and gives both one format. Called once by the
CLI; a program that embeds the server keeps its own set-up.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable
from typing import Final, TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from .colors import has_colors
from .config import LogFormat, LogLevel
from .terminal import LINE_CHARS_MAX, one_line, safe, safe_json

READY_LINE: Final = "Emulator Service is Successfully Up!"
"""The line that Testcontainers modules for Microsoft's emulator wait for, verbatim."""


def configure_logging(log_format: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's records from `level` up to `stream` (stderr)."""
    out = sys.stderr if stream is None else stream
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_rendering(log_format, out))
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # One line per HTTP request is noise here: health probes come every few seconds.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    # Its exporters say of each try that it failed; `telemetry/collector.py` says it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def announce_ready(stream: TextIO | None = None) -> None:
    """Print the ready line on stdout; call it once everything listens."""
    out = sys.stdout if stream is None else stream
    out.write(f"{READY_LINE}\n")
    out.flush()


def _rendering(log_format: LogFormat, out: TextIO) -> list[structlog.typing.Processor]:
    # Tracebacks without the values of variables: they may hold keys, and rendering them is slow.
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format is LogFormat.JSON:
        return [
            remove,
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    return [
        remove,
        _safe_values,
        structlog.dev.ConsoleRenderer(colors=has_colors(out), exception_formatter=_traceback),
    ]


def _safe_values(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """The event with texts that a terminal does not obey, and that are no lines of their own: clients chose some."""
    texts = {name: safe(value[:LINE_CHARS_MAX]) for name, value in event.items() if isinstance(value, str)}
    return {**event, **texts, "event": one_line(safe(str(event.get("event", ""))))}


def _traceback(out: TextIO, raised: structlog.typing.ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, raised)
    out.write(safe(text.getvalue()))


def _json(event: object, default: Callable[[object], object]) -> str:
    return safe_json(json.dumps(event, default=default, ensure_ascii=False))
