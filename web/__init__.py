"""The HTTP face of the broker: one aiohttp application over the broker's own verbs; no rule is decided here."""

from .server import HttpServer
from .services import Services

__all__ = ["HttpServer", "Services"]
