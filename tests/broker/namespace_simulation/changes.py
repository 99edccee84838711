"""Changes of the namespace: entities are deleted while they are used, created again, disabled and enabled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import commands as c
from .world import STORES

if TYPE_CHECKING:
    from .steps import Run


class Changes:
    """The handlers of these commands.

    They do nothing while a store is in trouble, anything is under way or the model has a doubt about
    a message (what became of it could depend on what was there then), and nothing to a small entity:
    the service has none so small, and only a file of the broker's start may name it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.handlers: dict[type, Callable[[Any], None]] = {
            c.Delete: self._delete,
            c.Create: self._create,
            c.SetStatus: self._set_status,
        }

    def _is_quiet(self) -> bool:
        run = self._run
        is_troubled = any(
            run.world.is_troubled(store) or run.world.broker.namespace.workers[store].failure is not None
            for store in range(STORES)
        )
        is_sure = run.model.calm and not any(item.doubts for item in run.model.all())
        return is_sure and not is_troubled and not run.world.is_slow() and not run.world.is_busy()

    def _delete(self, command: c.Delete) -> None:
        run = self._run
        if command.of not in run.model.shapes or not self._is_quiet():
            return
        self._let_go(command.of)
        run.model.drop(command.of)
        run.tally.clear()
        run.world.broker.administration.delete(command.of)
        run.world.loop.run_until_idle()
        if run.world.broker.namespace.entity(command.of) is not None:
            run.report("answer", f"{command}: it is still there")

    def _create(self, command: c.Create) -> None:
        run = self._run
        shape = command.shape
        is_possible = (
            not shape.small and shape.path not in run.model.shapes and shape.topic in {shape.path, *run.model.shapes}
        )
        if not is_possible or not self._is_quiet():
            return
        run.world.broker.administration.create(shape.description())
        run.model.create(shape)

    def _set_status(self, command: c.SetStatus) -> None:
        run = self._run
        shape = run.model.shapes.get(command.of)
        if shape is None or shape.small or shape.status == command.status or not self._is_quiet():
            return
        changed = replace(shape, status=command.status)
        self._let_go(command.of, paths={command.of})
        run.world.broker.administration.update(changed.description())
        run.model.shapes[command.of] = changed
        run.model.tick(run.model.now)  # what expired while a receiver held it is free, and goes

    def _let_go(self, top: str, paths: set[str] | None = None) -> None:
        """The receivers that hold sessions of an entity, or of a topic's subscriptions, are detached: they are free."""
        run = self._run
        for path, name in list(run.sessions.holders):
            is_meant = path in paths if paths is not None else top in (path, run.model.shapes[path].topic)
            if is_meant:
                del run.sessions.holders[path, name]
                run.model.end_holding(path, name, sure=True)
