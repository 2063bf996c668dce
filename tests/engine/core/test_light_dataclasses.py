"""Our dataclasses do what those of the standard library do."""

import copy
import dataclasses
import functools
import inspect
import pickle

import numpy as np
import pytest

from dpexec.engine.core import light_dataclasses
from dpexec.engine.core.light_dataclasses import field


def classes(dataclass):
    """The same classes by a decorator: all switches that are used."""

    @dataclass
    class Plain:
        x: int
        y: list = field(default_factory=list, repr=False)

    @dataclass(frozen=True)
    class Frozen:
        x: int
        y: str = field(default="b", compare=False)
        z: tuple = field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "z", (self.x,))

        @functools.cached_property
        def twice(self):
            return 2 * self.x

    @dataclass(frozen=True, slots=True)
    class Slotted:
        x: int
        y: int = 3
        z: int = field(default=5, init=False)

    @dataclass(frozen=True)
    class Further(Frozen):
        w: float = 0.5

    @dataclass(eq=False, slots=True)
    class Apart:
        x: int = 1

    @dataclass(kw_only=True)
    class Named:
        x: int
        y: int = 0

    @dataclass(frozen=True, repr=False)
    class Written:
        x: int

        def __hash__(self):
            return 7

    @dataclass(frozen=True)
    class Empty:
        pass

    return Plain, Frozen, Slotted, Further, Apart, Named, Written, Empty


OURS, THEIRS = classes(light_dataclasses.dataclass), classes(dataclasses.dataclass)
NAMES = [cls.__name__ for cls in OURS]
for _cls in OURS:  # where pickle looks for them
    _cls.__qualname__ = _cls.__name__
    globals()[_cls.__name__] = _cls
for _cls in THEIRS:
    _cls.__qualname__ = _cls.__name__
PAIRS = pytest.mark.parametrize(("ours", "theirs"), list(zip(OURS, THEIRS, strict=True)), ids=NAMES)


def made(cls, x=1):
    return cls(**({"x": x} if "x" in inspect.signature(cls).parameters else {}))


@PAIRS
def test_values_and_what_is_written_of_them(ours, theirs):
    mine, other = made(ours), made(theirs)
    parts = [[(f.name, getattr(v, f.name)) for f in dataclasses.fields(v)] for v in (mine, other)]
    assert parts[0] == parts[1]
    if ours.__name__ not in ("Written",):
        assert repr(mine) == repr(other)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))


@PAIRS
def test_equality_and_hashes(ours, theirs):
    for x in (1, 2):
        assert (made(ours) == made(ours, x)) == (made(theirs) == made(theirs, x))
    assert made(ours) != made(theirs)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    if ours.__hash__ is not None and ours.__eq__ is not object.__eq__:
        assert hash(made(ours)) == hash(made(theirs))


@PAIRS
def test_frozen_ones_refuse_changes(ours, theirs):
    for change in (lambda v: setattr(v, "x", 5), lambda v: delattr(v, "x")):
        outcomes = []
        for cls in (ours, theirs):
            try:
                change(made(cls))
                outcomes.append(None)
            except (AttributeError, TypeError) as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1] or ours.__name__ == "Empty"


@PAIRS
def test_copies_and_pickles(ours, theirs):
    mine = made(ours)
    for other in (copy.copy(mine), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert type(other) is ours
        if ours.__eq__ is not object.__eq__:
            assert other == mine
    if "x" in inspect.signature(ours).parameters:
        assert dataclasses.replace(mine, x=4).x == 4


def test_a_cached_property_of_a_frozen_one_is_kept():
    assert made(OURS[1], 3).twice == 6


@pytest.mark.parametrize("dataclass", [light_dataclasses.dataclass, dataclasses.dataclass])
def test_a_value_is_equal_to_itself_also_as_the_only_field(dataclass):
    @dataclass
    class One:
        x: object

    for value in (np.arange(3), float("nan")):
        assert (One(value) == One(value)) is True
    assert One(1) != One(2)


@pytest.mark.parametrize("dataclass", [light_dataclasses.dataclass, dataclasses.dataclass])
def test_frozen_ones_that_say_what_equals_them_have_hashes(dataclass):
    @dataclass(frozen=True)
    class Alike:
        x: int

        def __eq__(self, other):
            return isinstance(other, Alike) and self.x == other.x

    assert len({Alike(3), Alike(3), Alike(4)}) == 2
