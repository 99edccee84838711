"""`dataclass` of `broker/lazy_dataclass.py` against the library's: the same classes by both do the same."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import pytest

from emubus.broker import lazy_dataclass

SOURCE = '''
from __future__ import annotations
from dataclasses import field

@dataclass(frozen=True, slots=True)
class Point:
    """Frozen."""
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False)
    _secret: str = field(default="s", repr=False)

@dataclass(frozen=True, slots=True)
class Pixel(Point):
    color: str = "red"

@dataclass(slots=True)
class Open:
    x: int
    y: list[int] = field(default_factory=list)
    z: int = field(default=3, init=False)

    def __post_init__(self) -> None:
        self.x += 1

@dataclass(slots=True, eq=False, repr=False)
class Bare:
    x: int

@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    x: int
    y: int = 1

@dataclass(frozen=True, slots=True, order=True)
class Ordered:
    x: int
    y: str = ""

@dataclass(frozen=True, slots=True)
class Own:
    x: int
    def __repr__(self) -> str:
        return "own"
    def __eq__(self, other: object) -> bool:
        return True
    def __hash__(self) -> int:
        return 7

@dataclass(slots=True)
class Starting:
    x: int
    def __init__(self) -> None:
        self.x = 5

@dataclass(frozen=True, slots=True)
class Empty:
    pass

class Plain(Bare):
    """Derived without a decorator."""
'''


def module_of(name: str, decorator: object) -> Any:
    module = ModuleType(name)
    vars(module)["dataclass"] = decorator
    sys.modules[name] = module  # pickle finds classes by it
    exec(SOURCE, vars(module))
    return module


@pytest.fixture(params=["lazy", "library"])
def made(request: pytest.FixtureRequest) -> Any:
    """The classes by one of the two; new ones for each test, so that no method has been called before."""
    decorator: object = lazy_dataclass.dataclass if request.param == "lazy" else dataclasses.dataclass
    return module_of(f"made_by_{request.param}", decorator)


def test_fields_and_their_defaults(made: Any) -> None:
    point = made.Point(1)
    assert (point.x, point.y, point.tags, point._secret) == (1, 2, [], "s")
    assert made.Point(1).tags is not point.tags
    assert [each.name for each in fields(point)] == ["x", "y", "tags", "_secret"]
    assert made.Pixel(1, 5).color == "red"
    assert made.Named(x=3).y == 1
    opened = made.Open(1, [2])
    assert (opened.x, opened.y, opened.z) == (2, [2], 3)
    assert made.Plain(4).x == 4
    assert made.Starting().x == 5
    assert not hasattr(point, "__dict__")


@pytest.mark.parametrize(
    ("name", "arguments", "named", "text"),
    [
        ("Point", (), {}, r"Point.__init__\(\) missing 1 required positional argument: 'x'"),
        ("Point", (1,), {"z": 1}, r"Point.__init__\(\) got an unexpected keyword argument 'z'"),
        ("Named", (1,), {}, r"Named.__init__\(\) takes 1 positional argument but 2 were given"),
        ("Open", (1, [], 4), {}, r"Open.__init__\(\) takes from 2 to 3 positional arguments but 4 were given"),
        ("Empty", (1,), {}, r"Empty.__init__\(\) takes 1 positional argument but 2 were given"),
    ],
)
def test_wrong_arguments_are_named(
    made: Any, name: str, arguments: tuple[object, ...], named: dict[str, object], text: str
) -> None:
    for _ in range(2):  # the first call compiles the method
        with pytest.raises(TypeError, match=text):
            getattr(made, name)(*arguments, **named)


def test_text_equality_and_hash(made: Any) -> None:
    assert repr(made.Point(1, tags=["t"])) == "Point(x=1, y=2, tags=['t'])"
    assert repr(made.Pixel(1)) == "Pixel(x=1, y=2, tags=[], color='red')"
    assert repr(made.Open(1)) == "Open(x=2, y=[], z=3)"
    assert repr(made.Empty()) == "Empty()"
    assert "Bare object at" in repr(made.Bare(1))
    assert made.Point(1, tags=["a"]) == made.Point(1, tags=["b"])
    assert made.Point(1) != made.Point(2)
    assert made.Point(1) != made.Pixel(1)
    assert made.Bare(1) != made.Bare(1)
    assert len({made.Point(1), made.Point(1), made.Point(2)}) == 2
    assert made.Bare(1).__hash__() is not None
    assert (repr(made.Own(1)), made.Own(1) == made.Own(2), hash(made.Own(1))) == ("own", True, 7)
    with pytest.raises(TypeError, match="unhashable type: 'Open'"):
        hash(made.Open(1))


def test_order(made: Any) -> None:
    low, high = made.Ordered(1, "b"), made.Ordered(2, "a")
    assert sorted([high, low]) == [low, high]
    assert (low < high, low <= low, high > low, high >= high) == (True, True, True, True)
    with pytest.raises(TypeError, match="not supported between instances of 'Ordered' and 'int'"):
        operator.lt(low, 1)
    with pytest.raises(TypeError, match="not supported between instances of 'Point' and 'Point'"):
        operator.lt(made.Point(1), made.Point(2))


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda point: setattr(point, "x", 3), "cannot assign to field 'x'"),
        (lambda point: delattr(point, "x"), "cannot delete field 'x'"),
    ],
)
def test_what_is_frozen_stays_so(made: Any, act: Callable[[object], None], text: str) -> None:
    for cls in (made.Point, made.Pixel):
        point = cls(1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=text):
            act(point)
        assert point.x == 1
    opened = made.Open(1)
    opened.x = 9
    assert opened.x == 9
    with pytest.raises(AttributeError):
        opened.other = 1


def test_functions_of_the_library_take_it(made: Any) -> None:
    point = made.Point(1, tags=["t"])
    assert dataclasses.is_dataclass(type(point))
    assert replace(point, y=7) == made.Point(1, 7)
    assert replace(point, y=7).tags is point.tags
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "tags": ["t"], "_secret": "s"}
    assert copy.deepcopy(point) == point
    assert copy.copy(made.Open(1)).x == 2
    assert pickle.loads(pickle.dumps(point)) == point
    match point:
        case made.Point(x, y):
            assert (x, y) == (1, 2)


def test_a_method_is_compiled_once_and_then_is_the_librarys() -> None:
    made = module_of("made_by_lazy", lazy_dataclass.dataclass)
    before = made.Point.__init__
    made.Point(1)
    after = made.Point.__init__
    made.Point(2)
    assert before is not after
    assert made.Point.__init__ is after
    library = module_of("made_by_library", dataclasses.dataclass).Point.__init__
    assert after.__code__.co_code == library.__code__.co_code
    assert after.__code__.co_names == library.__code__.co_names
    assert made.Ordered.__init__ is not after, "each class has its own"
