"""The entities of a source, each with options of its own: what a reader of one entity needs.

Knows that a named entity has to be there, and one that matches a pattern may go at any time. Does not know how an
entity is read.
"""

from __future__ import annotations

from dataclasses import replace

from ...options import SourceOptions
from .directory import matching


def options_of(options: SourceOptions, path: str) -> SourceOptions:
    """The options of one of several entities. What holds back small batches counts all of them, so it is left out."""
    return replace(options, entity=path, several=None, min_messages_per_trigger=None)


def paths_of(options: SourceOptions) -> list[str]:
    """The paths to read now: those that are named, then those that match. Asks the service if there is a pattern."""
    choice = options.several
    if choice is None:
        return [options.entity]
    return [*choice.paths, *(path for path in matching(options.connection, choice) if not choice.names(path))]


def is_named(options: SourceOptions, path: str) -> bool:
    """Whether the user has named the entity, rather than a pattern that it matches."""
    return options.several is None or options.several.names(path)


def is_chosen(options: SourceOptions, path: str) -> bool:
    """Whether the entity is named or matches, now that the options may be others than when a checkpoint began."""
    return options.several is None or options.several.has(path)
