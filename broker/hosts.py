"""Host names in addresses: which are this machine's, and which name a namespace.

Knows the suffixes that only the user's own machines, or Azure, assign. Resolves no name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

LOCAL_ENDINGS: Final = (
    ".localhost",  # RFC 6761
    ".test",
    ".local",  # RFC 6762
    ".internal",  # reserved by ICANN; host.docker.internal, cloud machines
    ".home.arpa",  # RFC 8375
    ".lan",  # routers; no such top-level domain is delegated
    ".svc",  # Kubernetes
    ".servicebus.windows.net",  # the name of a real namespace, pointed here by a hosts file
)
"""Suffixes of names that only the user's own machines, or Azure, assign."""
EMULATOR_NAMESPACE: Final = "sbemulatorns"
"""The only name that Microsoft's emulator has for its namespace: files written for it use it."""


NAMESPACE_HOST: Final = re.compile(r"[^.]+\.(?:localhost|servicebus\..+)", re.ASCII).fullmatch
"""A host that can only be meant as the name of a namespace: that of a cloud, or one of this machine below localhost."""


def label_of(host: str) -> str:
    """The first label of a host name in lower case, by which it names a namespace; empty for an IP address."""
    name = host_of(f"//{host}")
    return "" if ip_address_of(name) is not None else name.partition(".")[0]


def names_a_namespace(host: str) -> bool:
    """Whether a host, with or without a port, names a namespace and nothing else, such as `orders.localhost`."""
    return NAMESPACE_HOST(host_of(f"//{host}")) is not None


def split_url(url: str) -> SplitResult:
    """Split a URL; the parts of one that is none are empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def host_of(url: str) -> str:
    """The host of a URL in lower case, without brackets and the dot at the end of a full name; empty without one."""
    try:
        return (split_url(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""


def ip_address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse a host that is an IP address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_local_name(host: str) -> bool:
    """Whether an attacker can't make this host name (lower case) point to a machine of his choice."""
    return "." not in host or host.endswith(LOCAL_ENDINGS) or ip_address_of(host) is not None


def is_of_another_namespace(address: str, own: Iterable[str]) -> bool:
    """Whether a forwarding target names another namespace by its host; False for a plain path.

    The service forwards within a namespace only [SB: service-bus-auto-forwarding]. `own` are names of this one, with or
    without domain: it has the first label of each in any cloud, all local names and all IP addresses.
    """
    host = host_of(address)
    labels = {EMULATOR_NAMESPACE, *(name.lower().partition(".")[0] for name in own)}
    if not host or host.partition(".")[0] in labels:
        return False
    return not is_local_name(host) or host.endswith(".servicebus.windows.net")
