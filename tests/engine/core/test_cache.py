"""What is kept never exceeds the limit, whichever way it came."""

import pytest

from dpexec.engine.core.cache import LimitedCache

WAYS = {
    "item": lambda kept, key: kept.__setitem__(key, -key),
    "setdefault": lambda kept, key: kept.setdefault(key, -key),
    "update": lambda kept, key: kept.update({key: -key}),
    "or": lambda kept, key: kept.__ior__({key: -key}),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_oldest_are_forgotten(way):
    kept = LimitedCache(2)
    for key in range(10):
        WAYS[way](kept, key)
    assert dict(kept) == {8: -8, 9: -9}


def test_what_was_used_is_kept_longer():
    kept = LimitedCache(2)
    kept[1], kept[2] = "one", "two"
    assert kept.used(1) == "one"
    kept[3] = "three"
    assert list(kept) == [1, 3]
    assert kept.used(2) is None
