"""Every Config.json that Microsoft's published schema accepts starts in every profile, and means what it says."""

from __future__ import annotations

import random

import pytest

from emubus.broker.model.catalog import Description, path_of
from emubus.broker.model.descriptions import SubscriptionDescription, Topology
from emubus.broker.model.profiles import LIMITS, Limits, Profile, limits_for, limits_of_file
from emubus.config_file.reading import FileConfig, parse_config_bytes

from ..rounds import rounds
from .config_texts import queue_config
from .schema_files import Made, Maker

EVERY = {profile.value: LIMITS[profile] for profile in Profile} | {"partitioned": limits_for(Profile.PREMIUM, 2)}
FILES = rounds(60, 1_000)


@pytest.mark.parametrize("limits", EVERY.values(), ids=EVERY)
def test_a_file_of_the_schema_starts_and_has_what_it_says(limits: Limits) -> None:
    for seed in range(FILES):
        made = Maker(random.Random(seed)).made()
        found = parse_config_bytes(made.data, limits)  # a refusal is ConfigFileError
        assert _given(found, made) == made.entities, seed
        said = [each.text for each in found.warnings]
        for path in made.extra:
            assert any(text.startswith(f"{path} is not a known property") for text in said), (seed, path, said)
        assert all(each.line or "Windows-1252" in each.text for each in found.warnings), seed


def _given(found: FileConfig, made: Made) -> dict[str, dict[str, object]]:
    """The fields that the file sets, as the entities have them."""
    topology: Topology = found.topology
    entities: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
    values: dict[str, dict[str, object]] = {}
    for each in entities:
        wanted = made.entities[path_of(each)]
        values[path_of(each)] = {name: getattr(each, name) for name in wanted if name != "rules"}
        if isinstance(each, SubscriptionDescription):
            values[path_of(each)]["rules"] = [rule.name for rule in each.rules]
    return values


@pytest.mark.parametrize("limits", EVERY.values(), ids=EVERY)
def test_a_duplicate_window_of_the_schema_is_taken_below_the_tiers(limits: Limits) -> None:
    assert limits_of_file(limits).duplicate_window_ms == limits.file_duplicate_window_ms
    text = queue_config(DuplicateDetectionHistoryTimeWindow="PT5S", RequiresDuplicateDetection=True)
    (queue,) = parse_config_bytes(text.encode(), limits).topology.queues
    assert queue.duplicate_window_ms == 5_000
