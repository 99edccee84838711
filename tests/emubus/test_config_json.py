"""Config.json as JSON with comments: what is none is reported with its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from emubus.broker.model.descriptions import CorrelationFilter
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.config_file.cursor import ConfigFileError
from emubus.config_file.json_text import JsonNode, parse_json
from emubus.config_file.reading import parse_config

from .config_texts import ANY_JSON, complaint, rule_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: is not JSON: expected a value, found the end of the text"),
        ('{\n  "a": 1\n  "b": 2\n}', '3:3: is not JSON: expected "," or "}"'),
        ('{"a" 1}', '1:6: is not JSON: expected ":" after "a"'),
        ("{a: 1}", '1:2: is not JSON: expected a property name in double quotes, or "}"'),
        ('{"a": 1, "a": 2}', '1:10: is not JSON: "a" is given twice'),
        ("[1, 2", '1:6: is not JSON: expected "," or "]"'),
        ("[1.]", "1:2: is not JSON: expected a value, found '1.'"),
        ("[01]", "1:2: is not JSON: expected a value, found '01'"),
        ("[nul]", "1:2: is not JSON: expected a value, found 'nul'"),
        ("[']", '1:2: is not JSON: expected a value, found "\'"'),
        ("{} {}", "1:4: is not JSON: unexpected text after the closing bracket"),
        ("{ /* ", '1:3: is not JSON: a comment begins with "/*" and does not end'),
        ('{"a', "1:2: is not JSON: unterminated string starting at"),
        ('\r\n\r\n["\\x"]', "3:3: is not JSON: invalid \\escape"),
        ("[" * 100, "1:66: is not JSON: nested more than 64 deep"),
        (f"[{'9' * 5000}]", None),
    ],
)
def test_what_is_not_json_is_reported_line_and_column(text: str, expected: str | None) -> None:
    message = complaint(text)
    assert message.startswith("Config.json:" + (expected or "1:2: is not JSON"))


def test_numbers_texts_and_constants_are_those_of_json() -> None:
    values = {"a": -1, "b": 1.5e3, "c": 'ü"\\\n', "d": False, "e": 0}
    text = rule_config(FilterType="Correlation", CorrelationFilter={"Properties": values})
    (subscription,) = parse_config(text, LIMITS[Profile.STANDARD]).topology.subscriptions
    found = subscription.rules[0].filter
    assert isinstance(found, CorrelationFilter)
    assert found.properties == values


@given(ANY_JSON)
def test_whatever_the_standard_library_writes_is_read_alike(value: object) -> None:
    found = parse_json(json.dumps(value, indent=2))
    assert _plain(found) == value


def _plain(node: JsonNode) -> object:
    if isinstance(node.value, dict):
        return {name: _plain(each) for name, each in node.value.items()}
    return [_plain(each) for each in node.value] if isinstance(node.value, list) else node.value


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    text = '{\n  "UserConfig": {"Namespaces": [\n    {"Name": "sbemulatorns", "Topics": [{"Name": "t\\ud83d"}]}]}}'
    with pytest.raises(ConfigFileError) as refused:
        parse_config(text, LIMITS[Profile.RELAXED])
    assert str(refused.value) == (
        "Config.json:3:50: is not JSON: a lone surrogate (\\ud800 to \\udfff) is not a character"
    )
    whole = parse_config(text.replace("\\ud83d", "\\ud83d\\ude80"), LIMITS[Profile.RELAXED])
    assert whole.topology.topics[0].name == "t🚀"
