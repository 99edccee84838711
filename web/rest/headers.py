"""HTTP headers that are not message properties: HTTP's own, and those of tracing, proxies and browsers.

Knows names, not values. The service rejects a message with a header that isn't a valid property, and still clients
with tracing, behind proxies and in browsers can use it; so those headers are listed here, too.
"""

from __future__ import annotations

from typing import Final

HTTPS_OWN: Final = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "accept-ranges",
        "age",
        "allow",
        "alt-svc",
        "authorization",
        "brokerproperties",
        "cache-control",
        "connection",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-md5",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "dnt",
        "early-data",
        "etag",
        "expect",
        "expires",
        "forwarded",
        "from",
        "host",
        "http2-settings",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "keep-alive",
        "last-modified",
        "location",
        "max-forwards",
        "origin",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "referer",
        "retry-after",
        "server",
        "servicebusdlqsupplementaryauthorization",
        "servicebussupplementaryauthorization",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "translate",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "x-real-ip",
    }
)
"""Headers that are never message properties, sent or received."""

HTTPS_OWN_BEGINNINGS: Final = ("access-control-", "sec-", "x-forwarded-", "x-ms-")

OF_MACHINERY: Final = frozenset(
    {
        "b3",
        "baggage",
        "correlation-context",
        "elastic-apm-traceparent",
        "newrelic",
        "postman-token",
        "priority",
        "request-id",
        "traceparent",
        "tracestate",
        "uber-trace-id",
        "x-amzn-trace-id",
        "x-cloud-trace-context",
        "x-correlation-id",
        "x-request-id",
    }
)
"""Headers that proxies, browsers and tracing add: properties if their value is valid for one, ignored if not."""

OF_MACHINERY_BEGINNINGS: Final = ("x-b3-", "x-datadog-")


def is_http_header(name: str) -> bool:
    """Whether the header (in lower case) is HTTP's own, so never a property."""
    return name in HTTPS_OWN or name.startswith(HTTPS_OWN_BEGINNINGS)


def is_ignorable(name: str) -> bool:
    """Whether the header (in lower case) is ignored when its value isn't a valid property."""
    return name in OF_MACHINERY or name.startswith(OF_MACHINERY_BEGINNINGS)
