"""``paddle.compat``, compared with Paddle's on Python 3."""

import pytest

from dpexec.paddle import compat


def test_bytes_become_text_also_in_containers():
    assert compat.to_text(b"a") == compat.to_text("a") == "a"
    assert compat.to_text([b"a", "b", None]) == ["a", "b", None]
    assert compat.to_text({b"a"}) == {"a"}
    assert compat.to_text({b"a": b"b"}) == {"a": "b"}


def test_text_becomes_bytes():
    assert compat.to_bytes("ä", "latin-1") == b"\xe4"
    assert compat.to_bytes(["a", b"b"]) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("given", "made"), [([b"a"], ["a"]), ({b"a"}, {"a"}), ({b"a": b"b"}, {"a": "b"})]
)
def test_containers_change_only_if_asked(given, made):
    before = given.copy()
    assert compat.to_text(given) == made and given == before
    assert compat.to_text(given, inplace=True) is given and given == made


@pytest.mark.parametrize(
    ("x", "digits", "rounded"), [(2.5, 0, 3.0), (-2.5, 0, -3.0), (1.25, 1, 1.3), (0.0, 0, 0.0)]
)
def test_halves_are_rounded_away_from_zero(x, digits, rounded):
    assert compat.round(x, digits) == rounded


def test_the_rest():
    assert compat.floor_division(7, 2) == 3
    assert compat.get_exception_message(ValueError("x")) == "x"
    assert compat.long_type is int
