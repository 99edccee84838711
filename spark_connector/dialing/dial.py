"""Dialing: a socket, TLS over it, and WebSocket over either, made within a deadline."""

from __future__ import annotations

import socket
import ssl

from ..conditions import unavailable
from .endpoint import Endpoint
from .stream import Stream, TcpStream, TlsStream, no_connection, remaining_s


def dial(endpoint: Endpoint, deadline_s: float) -> Stream:
    """Connect; ConnectorError(UNAVAILABLE) with host and port if that fails or lasts beyond `deadline_s`."""
    sock = _connect(endpoint, deadline_s)
    try:
        if endpoint.tls:
            sock = _under_tls(sock, endpoint, deadline_s)
        if endpoint.transport == "amqpws":
            from .websocket import WebSocketStream, upgrade  # wsproto is needed by those alone who use it

            protocol = upgrade(sock, endpoint, deadline_s)
            return WebSocketStream(protocol, _stream(sock))
        return _stream(sock)
    except BaseException:
        sock.close()
        raise


def _stream(sock: socket.socket) -> Stream:
    return TlsStream(sock) if isinstance(sock, ssl.SSLSocket) else TcpStream(sock)


def _connect(endpoint: Endpoint, deadline_s: float) -> socket.socket:
    error: OSError | None = None
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise unavailable(f"the host of {endpoint.where} can't be found ({problem}): check its name") from problem
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(remaining_s(deadline_s))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as problem:
            sock.close()
            error = problem
    raise no_connection(endpoint, error) from error


def _under_tls(sock: socket.socket, endpoint: Endpoint, deadline_s: float) -> ssl.SSLSocket:
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except (OSError, ssl.SSLError) as problem:
        raise unavailable(f"caFile '{endpoint.ca_file}' can't be used: {problem}", retriable=False) from problem
    try:
        sock.settimeout(remaining_s(deadline_s))
        return context.wrap_socket(sock, server_hostname=endpoint.host)
    except ssl.SSLCertVerificationError as problem:
        raise unavailable(
            f"the certificate of {endpoint.where} is not trusted ({problem.verify_message}): set caFile to a PEM file "
            "with the authority that issued it",
            retriable=False,
        ) from problem
    except OSError as problem:
        raise no_connection(endpoint, problem, " under TLS") from problem
