"""The HTTP adapter: one aiohttp application over the broker's verbs. It decides no rule of Service Bus."""

from .server import HttpServer
from .services import Services

__all__ = ["HttpServer", "Services"]
