"""`dataclass` for what a start imports: each method is compiled when it is first called.

The library's decorator compiles three to six methods of each class at import, and those of 130 classes were a sixth of
a start's instructions. Most of them nothing calls before the first message, and many nothing ever. Otherwise it is the
library's: it says which fields there are and makes the slots, and the methods are those of a twin with the same fields.
So `fields`, `replace` and `asdict` take these classes, and type checkers see nothing else.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

_ORDER: Final = ("__lt__", "__le__", "__gt__", "__ge__")

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass

    from _typeshed import DataclassInstance
else:

    def dataclass(
        *,
        slots: bool,
        repr: bool = True,  # noqa: A002 # the library's name
        eq: bool = True,
        order: bool = False,
        frozen: bool = False,
        kw_only: bool = False,
    ) -> Callable[[type], type]:
        """`dataclasses.dataclass` with some of its options. A class that it derives from is made by it, too."""

        def decorated(cls: type) -> type:
            if cls.__doc__ is None:
                cls.__doc__ = ""  # else the library writes a signature, which is slow
            wanted = {"__init__": True, "__repr__": repr, "__eq__": eq, "__hash__": eq and frozen}
            wanted |= dict.fromkeys(_ORDER, order)
            names = [name for name, is_wanted in wanted.items() if is_wanted and name not in vars(cls)]

            def compiled_later(name: str) -> Callable[..., object]:
                def method(self: object, *arguments: object, **named: object) -> object:
                    compiled = vars(_twin(made, name, is_frozen=frozen))[name]
                    setattr(made, name, compiled)
                    return compiled(self, *arguments, **named)

                return method

            for name in names:
                setattr(cls, name, compiled_later(name))
            if frozen:
                cls.__setattr__ = _refuse_to_set
                cls.__delattr__ = _refuse_to_delete
                cls.__getstate__ = _values
                cls.__setstate__ = _set_values
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            return made

        return decorated


def _twin(cls: type, method: str, *, is_frozen: bool) -> type:
    """A class with the fields of this one, for which the library compiles little more than this method."""
    fields = [(field.name, field.type, field) for field in dataclasses.fields(cls)]
    own = {"__post_init__": None} if hasattr(cls, "__post_init__") else {}
    return dataclasses.make_dataclass(
        cls.__name__,
        fields,
        namespace=own,
        init=method == "__init__",
        repr=method == "__repr__",
        eq=method == "__eq__" or method in _ORDER,
        order=method in _ORDER,
        unsafe_hash=method == "__hash__",
        frozen=is_frozen and method == "__init__",
        slots=not all(field.init for _, _, field in fields),  # then the library sets defaults of these fields, too
    )


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _values(self: DataclassInstance) -> list[object]:
    """For `copy` and `pickle`, which would set attributes."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_values(self: DataclassInstance, values: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)
