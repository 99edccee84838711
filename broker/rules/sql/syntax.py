"""The syntax tree of filters and actions: immutable values.

Precedence becomes nesting; operators of one precedence are one flat node (`a + b - c`), a row of signs or NOTs is one
node. Does not know semantics. `line` and `column` count from 1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal; an integer may be 2^63, which only a minus in front makes valid."""

    value: bool | int | float | str | None
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """`@name`, without the @."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class SystemName:
    """`sys.Name` in its canonical spelling."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class UserName:
    """`name` or `user.name`, as written."""

    name: str


Property = SystemName | UserName


@dataclass(frozen=True, slots=True, eq=False)
class NewId:
    """`newid()`."""


@dataclass(frozen=True, slots=True, eq=False)
class PropertyCall:
    """`property(e)` or `p(e)`."""

    argument: Expression
    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class Signed:
    """One sign or a row of them before an operand."""

    negative: bool
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """`first`, then operators of one precedence with their right operands, from left to right."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


Expression = Constant | Parameter | SystemName | UserName | NewId | PropertyCall | Signed | Chain


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """`left operator right`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class IsNull:
    """`property IS NULL`."""

    property: Property


@dataclass(frozen=True, slots=True, eq=False)
class Exists:
    """`EXISTS (property)`."""

    property: Property


@dataclass(frozen=True, slots=True, eq=False)
class In:
    """`left IN (items)`."""

    left: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Like:
    """`left LIKE pattern ESCAPE escape`."""

    left: Expression
    pattern: Expression
    escape: Expression | None
    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    """`NOT operand`; also what the NOT in `IS NOT NULL`, `NOT IN` and `NOT LIKE` stands for."""

    operand: Predicate


@dataclass(frozen=True, slots=True, eq=False)
class All:
    """Predicates joined by AND."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf:
    """Predicates joined by OR."""

    items: tuple[Predicate, ...]


Predicate = Comparison | IsNull | Exists | In | Like | Not | All | AnyOf


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """`SET property = expression`; line and column are those of the statement."""

    property: Property
    expression: Expression
    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class Remove:
    """`REMOVE property`."""

    property: Property
    line: int
    column: int


Statement = Set | Remove
