"""Partitions of dataframes as arrays of the declared types, and errors that name the column."""

from dataclasses import replace

import numpy as np
import pandas
import pytest

from dpexec.engine.feeds.partition_arrays import FedRows, partition_arrays

X = FedRows("x", np.dtype("float32"), (2,), ("a", "b"))
Y = FedRows("y", np.dtype("int64"), (1,), ("label",))
FRAME = pandas.DataFrame({"a": [1.5, 2, 3], "b": [4, 5, 6], "label": [True, False, True]})


def arrays(*variables, part):
    if not isinstance(part, pandas.DataFrame):  # nothing else has columns
        variables = [replace(var, columns=()) for var in variables]
    return partition_arrays(variables, 7, part)


def test_columns_take_the_declared_type_and_shape():
    found = arrays(X, Y, part=FRAME)
    assert found["x"].dtype == "float32" and found["y"].dtype == "int64"
    assert found["x"].tolist() == [[1.5, 4], [2, 5], [3, 6]]
    assert found["y"].tolist() == [[1], [0], [1]]
    image = FedRows("x", np.dtype("float32"), (1, 2, 1), ("a", "b"))
    assert arrays(image, part=FRAME)["x"].shape == (3, 1, 2, 1)
    flat = FedRows("y", np.dtype("bool"), (), ("label",))
    assert arrays(flat, part=FRAME)["y"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (pandas.array([1, 2], "Int64"), "int64"),
        (pandas.array([1.0, None], "Float64"), "float32"),
        (pandas.array([1, None], "Int32"), "float64"),
        (pandas.array([True, False], "boolean"), "int64"),
        (np.array([1.0, 2.0]), "int32"),
        (np.array([0, 1], "uint64"), "bool"),
        (np.array([2**63 - 1, -(2**63)]), "int64"),
    ],
)
def test_columns_that_fit(column, declared):
    var = FedRows("v", np.dtype(declared), (), ("c",))
    found = arrays(var, part=pandas.DataFrame({"c": column}))["v"]
    assert found.dtype == declared
    wanted = pandas.Series(column).to_numpy(dtype="O")
    for got, expected in zip(found, wanted, strict=True):
        assert np.isnan(got) if pandas.isna(expected) else got == expected


@pytest.mark.parametrize(
    ("column", "declared", "message"),
    [
        (["a", "b"], "float32", r"partition 7, column 'c' of type (str|object) .*'v'.*float32"),
        (pandas.Categorical(["a", "b"]), "int64", r"'c' of type category .*\.cat\.codes"),
        (pandas.to_datetime(["2020-01-01", "2020-01-02"]), "int64", "'c' of type datetime64"),
        ([1.0, 2.5], "int64", r"partition 7, column 'c' holds 2.5 in row 1, .*'v' .*int64"),
        ([1.0, np.nan], "int64", "'c' holds nan in row 1"),
        (pandas.array([1, None], "Int64"), "int64", "'c' lacks values, .*int64"),
        ([1, 300], "uint8", "'c' holds 300 in row 1"),
        ([1, -1], "uint8", "'c' holds -1 in row 1"),
        (np.array([2**63], "uint64"), "int64", f"'c' holds {2**63} in row 0"),
        ([0, 2], "bool", "'c' holds 2 in row 1"),
        ([1.0, 1e300], "float32", r"'c' holds 1e\+300 in row 1"),
        ([1j, 2j], "float32", "'c' of type complex128"),
    ],
)
def test_columns_that_do_not_fit_are_named(column, declared, message):
    var = FedRows("v", np.dtype(declared), (1,), ("c",))
    with pytest.raises((TypeError, ValueError), match=message):
        arrays(var, part=pandas.DataFrame({"c": column}))


def test_infinities_stay():
    var = FedRows("v", np.dtype("float32"), (), ("c",))
    assert arrays(var, part=pandas.DataFrame({"c": [np.inf]}))["v"].tolist() == [np.inf]


@pytest.mark.parametrize(
    "part",
    [
        [(np.ones(2), 1), (np.zeros(2), 0)],
        [{"x": [1, 1], "y": 1}, {"y": 0, "x": [0, 0]}],
        (np.array([[1, 1], [0, 0]]), np.array([1, 0])),
        {"x": np.array([[1, 1], [0, 0]]), "y": np.array([[1], [0]]), "z": None},
    ],
    ids=["tuples", "dicts", "tuple of arrays", "arrays by name"],
)
def test_elements_of_bags_and_what_is_delayed(part):
    found = arrays(X, Y, part=part)
    assert found["x"].tolist() == [[1, 1], [0, 0]] and found["y"].tolist() == [[1], [0]]


def test_partitions_without_rows():
    for part in ([], FRAME[:0], (np.ones((0, 2)), np.ones((0, 1)))):
        assert {n: a.shape for n, a in arrays(X, Y, part=part).items()} == {
            "x": (0, 2),
            "y": (0, 1),
        }


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (np.ones((3, 2)), "partition 7 is a ndarray, which feeds one variable, but .* x, y"),
        ((np.ones((3, 2)),), "partition 7 is a tuple of 1, but there are 2 variables: x, y"),
        ({"x": np.ones((3, 2))}, "partition 7 has nothing for 'y'"),
        ({"x": np.ones((3, 2)), "y": np.ones(2)}, "numbers of rows: 3 for 'x', 2 for 'y'"),
        ({"x": np.ones((3, 3)), "y": np.ones(3)}, r"'x' should have the shape \[-1, 2\].*\[3, 3\]"),
        ({"x": 1.0, "y": np.ones(3)}, "'x' gets a number"),
        ([(np.ones(2), 1), (np.ones(3), 1)], "partition 7, rows of 'x': .*same shape"),
        ([{"x": np.ones(2)}], "element 0 of partition 7 has nothing for 'y'"),
        ({"x": np.array(["a"]), "y": np.ones(1)}, "partition 7: an array of type <U1 .*'x'"),
        (FRAME[["a", "label"]], "partition 7 has no column 'b' for 'x'"),
    ],
)
def test_parts_that_do_not_fit_are_named(part, message):
    with pytest.raises((TypeError, ValueError), match=message):
        arrays(X, Y, part=part)


def test_columns_of_what_is_no_dataframe_are_refused():
    with pytest.raises(TypeError, match="partition 7 is a list, but feed says which columns"):
        partition_arrays([X, Y], 7, [(np.ones(2), 1)])
