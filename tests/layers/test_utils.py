"""``fluid.layers.utils``: nested structures."""

from collections import namedtuple

import pytest

import dpexec as fluid

utils = fluid.layers.utils
Pair = namedtuple("Pair", "b a")
NEST = {"z": [1, (2, "three")], "a": Pair(4, {"k": 5})}


def test_structures_are_taken_apart_and_put_together():
    assert utils.flatten(NEST) == [4, 5, 1, 2, "three"]
    made = utils.pack_sequence_as(NEST, ["p", "q", "r", "s", "t"])
    assert made == {"z": ["r", ("s", "t")], "a": Pair("p", {"k": "q"})}
    assert list(made) == ["z", "a"]
    assert utils.pack_sequence_as(0, [7]) == 7
    assert utils.map_structure(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]


def test_values_must_fit_the_structure():
    with pytest.raises(ValueError, match="could not pack 1 values into a structure of 5"):
        utils.pack_sequence_as(NEST, [1])
    with pytest.raises(TypeError, match="must be a sequence"):
        utils.pack_sequence_as(NEST, 1)


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        ([1, 2], [1], ValueError),
        ([1], 1, ValueError),
        ([1, [2]], [[1], 2], ValueError),
        ([1], (1,), TypeError),
        ({"a": 1}, {"b": 1}, ValueError),
    ],
)
def test_other_structures_are_noticed(one, other, error):
    with pytest.raises(error, match="differ"):
        utils.assert_same_structure(one, other)


def test_types_may_differ_on_request():
    utils.assert_same_structure([1, {"a": 2}], (1, {"b": 2}), check_types=False)
    utils.assert_same_structure(NEST, NEST)


def test_variable_is_found_by_its_name():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2])
        assert fluid.framework._get_var("x") is x
        assert isinstance(x, fluid.layers.Variable)
    assert fluid.framework._get_var("x", main) is x
