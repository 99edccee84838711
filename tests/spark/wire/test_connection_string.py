"""Connection strings."""

from __future__ import annotations

import pytest

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import ConnectionString, parse_connection_string

SECRET = "bm90aGluZyB0byBzZWU="
CLOUD = f"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={SECRET}"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (CLOUD, ConnectionString("ns.servicebus.windows.net", None, "Root", SECRET, None, None, False)),
        (
            f" {CLOUD} ; EntityPath=a/b ;",
            ConnectionString("ns.servicebus.windows.net", None, "Root", SECRET, None, "a/b", False),
        ),
        (
            f"endpoint=SB://LocalHost:5673;sharedaccesskeyname=k;SHAREDACCESSKEY={SECRET};usedevelopmentemulator=True",
            ConnectionString("localhost", 5673, "k", SECRET, None, None, True),
        ),
        (
            "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b%3D&se=1&skn=c",
            ConnectionString("h", None, None, None, "SharedAccessSignature sr=a&sig=b%3D&se=1&skn=c", None, False),
        ),
        ("Endpoint=sb://h/", ConnectionString("h", None, None, None, None, None, False)),
        ("Endpoint=h:1", ConnectionString("h", 1, None, None, None, None, False)),
    ],
)
def test_a_connection_string_is_taken_apart(text: str, parsed: ConnectionString) -> None:
    assert parse_connection_string(text) == parsed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no Endpoint"),
        (f"SharedAccessKeyName=a;SharedAccessKey={SECRET}", "it has no Endpoint"),
        (f"Endpoint=sb://h/;SharedAccessKey={SECRET}", "it has no SharedAccessKeyName"),
        ("Endpoint=sb://h/;SharedAccessKeyName=a", "it has no SharedAccessKey;"),
        ("Endpoint=sb:///;", "names no host"),
        ("Endpoint=sb://h:99999/;", "the port of its Endpoint 'sb://h:99999/' is no number from 1 to 65535"),
        (f"{CLOUD};{SECRET}", "part 4 is none of Endpoint="),
        (f"{CLOUD};Password={SECRET}", "part 4 is none of Endpoint="),
        (f"{CLOUD};SharedAccessKey={SECRET}", "it has SharedAccessKey twice"),
        (f"Endpoint=sb://user:{SECRET}@h/", "its Endpoint has a user name"),
        (f"{CLOUD};UseDevelopmentEmulator=maybe", "UseDevelopmentEmulator is 'maybe'"),
    ],
)
def test_what_is_wrong_with_a_connection_string_is_named_without_its_secrets(text: str, reason: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        parse_connection_string(text)
    assert (caught.value.code, caught.value.retriable) == (Code.OPTION_INVALID, False)
    assert caught.value.text.startswith("connectionString can't be used: ")
    assert reason in caught.value.text
    assert SECRET not in str(caught.value)


def test_secrets_are_not_in_the_repr() -> None:
    text = "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sig=geheim"
    assert SECRET not in repr(parse_connection_string(CLOUD))
    assert "geheim" not in repr(parse_connection_string(text))
