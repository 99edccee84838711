"""Connections to HTTP servers, plain or in TLS, also with the certificate of a CA that the system does not know."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class CaError(Exception):
    """A file that has no certificate of a CA; the text is for people."""


def connector(
    scheme: str, host: str, port: int, timeout_s: float, ca_file: Path | None = None
) -> Callable[[], http.client.HTTPConnection]:
    """What makes connections, each opened by its first request; TLS trusts the system's CAs and `ca_file`. CaError."""
    if scheme != "https":
        return partial(http.client.HTTPConnection, host, port, timeout=timeout_s)
    import ssl  # only for TLS

    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # of the file, or an SSLError
            raise CaError(
                f"{ca_file} has no certificate of a CA that can be read ({error.strerror or error})"
            ) from error
    return partial(http.client.HTTPSConnection, host, port, timeout=timeout_s, context=context)
