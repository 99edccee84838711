"""Texts of Config.json, and what is wrong with one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st

from emubus.broker.model.profiles import LIMITS, Profile
from emubus.config_file.cursor import ConfigFileError
from emubus.config_file.reading import parse_config

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def config(namespace: dict[str, Any]) -> str:
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", **namespace}]}})


def queue_config(**properties: object) -> str:
    return config({"Queues": [{"Name": "q", "Properties": properties}]})


def rule_config(**properties: object) -> str:
    subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]}
    return config({"Topics": [{"Name": "t", "Subscriptions": [subscription]}]})


def complaint(text: str, profile: Profile = Profile.STANDARD) -> str:
    with pytest.raises(ConfigFileError) as raised:
        parse_config(text, LIMITS[profile])
    message = str(raised.value)
    assert "\n" not in message
    return message
