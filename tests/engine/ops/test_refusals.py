"""Calls that Paddle 1.8.5 refuses only when they run."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.core import EnforceNotMet

IMAGES = np.ones((2, 4, 6, 6), "float32")
BOXES = np.array([[0, 0, 3, 3]] * 3, "float32")
X = np.ones((2, 3), "float32")


def sequences(array, lengths):
    return fluid.create_lod_tensor(array, [lengths], fluid.CPUPlace())


def run(out, feed):
    used = fluid.default_main_program().global_block().vars
    feed = {name: value for name, value in feed.items() if name in used}
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(fluid.default_main_program(), feed, [out], return_numpy=False)[0]


POOLS = {
    "roi_align": lambda x, r: layers.roi_align(x, r),
    "roi_pool": lambda x, r: layers.roi_pool(x, r),
    "prroi_pool": lambda x, r: layers.prroi_pool(x, r, 1.0, 2, 2),
    "psroi_pool": lambda x, r: layers.psroi_pool(x, r, 2, 1.0, 2, 1),
    "deformable_psroi_pooling": lambda x, r: layers.deformable_roi_pooling(
        x,
        r,
        layers.fill_constant([3, 2, 2, 2], "float32", 0.1),
        pooled_height=2,
        pooled_width=2,
        part_size=(2, 2),
        sample_per_part=1,
    ),
}


@pytest.mark.parametrize("layer", POOLS)
@pytest.mark.parametrize("lengths", [[1, 1, 1], [3], [1, 2]])
def test_regions_have_a_sequence_for_each_image(layer, lengths):
    x = fluid.data("x", [None, 4, 6, 6])
    out = POOLS[layer](x, fluid.data("r", [None, 4], lod_level=1))
    feed = {"x": IMAGES, "r": sequences(BOXES, lengths)}
    if len(lengths) == 2:
        assert np.array(run(out, feed)).shape[0] == 3
        return
    with pytest.raises(EnforceNotMet, match=f"{layer}: ROIs .* a sequence for each image of X"):
        run(out, feed)


LISTS = {
    "reshape2: ShapeTensor": lambda x, n: layers.reshape(x, [n, -1]),
    "uniform_random: ShapeTensorList": lambda x, n: layers.uniform_random([n, 3]),
    "gaussian_random: ShapeTensorList": lambda x, n: layers.gaussian_random([n, 3]),
    "fill_constant: ShapeTensorList": lambda x, n: layers.fill_constant([n, 3], "float32", 1),
    "randint: ShapeTensorList": lambda x, n: layers.randint(0, 4, [n, 3]),
    "slice: StartsTensorList": lambda x, n: layers.slice(x, [0], [n], [2]),
    "slice: EndsTensorList": lambda x, n: layers.slice(x, [0], [0], [n]),
    "strided_slice: StartsTensorList": lambda x, n: layers.strided_slice(x, [0], [n], [2], [1]),
    "crop_tensor: ShapeTensor": lambda x, n: layers.crop_tensor(x, [n, 2]),
    "split: SectionsTensorList": lambda x, n: layers.split(x, [n, 2], 1)[0],
    "unsqueeze2: AxesTensorList": lambda x, n: layers.unsqueeze(x, [n]),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("shape", [[1], [2], [1, 1]])
def test_variables_in_a_list_of_numbers_are_one_number(name, shape):
    x, feed = fluid.data("x", [2, 3]), {"x": X, "n": np.ones(shape, "int32")}
    if shape == [1]:
        assert np.array(run(LISTS[name](x, fluid.data("n", shape, "int32")), feed)).size
        return
    with pytest.raises(EnforceNotMet, match=rf"{name} int32.* must have shape \[1\]"):
        run(LISTS[name](x, fluid.data("n", shape, "int32")), feed)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (float("inf"), "float32"),
        (float("nan"), "float32"),
        (-1e300, "float32"),
        (1e10, "int32"),
        (1e30, "int64"),
        (2.0, "bool"),
    ],
)
def test_a_number_fits_into_the_type_that_it_fills(value, dtype):
    with pytest.raises(EnforceNotMet, match=f"fill_any_like: value .* does not fit into {dtype}"):
        run(layers.full_like(fluid.data("x", [2, 3]), value, dtype=dtype), {"x": X})


@pytest.mark.parametrize(("value", "dtype"), [(1.0, "bool"), (300, "int32"), (2.5, "int32")])
def test_a_number_that_fits_is_taken(value, dtype):
    found = run(layers.full_like(fluid.data("x", [2, 3]), value, dtype=dtype), {"x": X})
    np.testing.assert_array_equal(np.array(found), np.full((2, 3), value, dtype))


@pytest.mark.parametrize(("returned", "outputs"), [(X, 0), ((X, X), 1), ((), 1)])
def test_a_function_returns_a_value_for_each_output(returned, outputs):
    x, block = fluid.data("x", [2, 3]), fluid.default_main_program().current_block()
    made = [block.create_var(name="o", dtype="float32", shape=[2, 3])][:outputs]
    layers.py_func(lambda _: returned, x, made or None)
    with pytest.raises(EnforceNotMet, match=f"returned . values, but it has {outputs} outputs"):
        run(layers.scale(made[0] if made else x), {"x": X})


def test_positions_of_sequences_are_encoded_in_matrices():
    x = fluid.data("x", [None, 2, 4], lod_level=1)
    out = layers.add_position_encoding(x, 1.0, 1.0)
    feed = {"x": sequences(np.ones((3, 2, 4), "float32"), [1, 2])}
    with pytest.raises(EnforceNotMet, match="with sequences"):
        run(out, feed)


@pytest.mark.parametrize("rank", [7, 10])
def test_tensors_may_have_any_number_of_dimensions(rank):
    x = fluid.data("x", [1] * rank)
    out = layers.reverse(layers.transpose(layers.pad(x, [0, 1] * rank), list(range(rank))), [0])
    found = np.array(run(out, {"x": np.ones([1] * rank, "float32")}))
    assert found.shape == (2,) * rank
    assert found.sum() == 1


@pytest.mark.parametrize("sections", [[1, 2], [4, 4], [1, -1, 9], [2, -1, 4], [-1, -1, 2], [7, -1]])
@pytest.mark.parametrize("how", ["known", "fed", "variable"])
def test_sections_add_up(sections, how):
    x = fluid.data("x", [2, -1 if how == "fed" else 6])
    if how == "variable":
        sections = [layers.fill_constant([1], "int32", sections[0]), *sections[1:]]
    with pytest.raises(EnforceNotMet, match=r"operator split.*sections .*(add up|only one)"):
        run(layers.split(x, sections, 1)[0], {"x": np.ones((2, 6), "float32")})


def test_regions_are_pooled_to_more_than_one_channel():
    x, regions = fluid.data("x", [None, 4, 6, 6]), fluid.data("r", [None, 4], lod_level=1)
    with pytest.raises(EnforceNotMet, match=r"psroi_pool: output_channels is 1"):
        layers.psroi_pool(x, regions, 1, 1.0, 2, 2)


@pytest.mark.parametrize("shape", [[1, 1], [2, 1]])
def test_axes_are_a_vector(shape):
    axes = layers.fill_constant(shape, "int32", 1)
    with pytest.raises(EnforceNotMet, match=r"AxesTensor int32.* must be a vector of axes"):
        layers.unsqueeze(fluid.data("x", [2, 3]), axes)


def test_sequences_of_boxes_have_images():
    boxes, info = fluid.data("b", [None, 4], lod_level=1), fluid.data("i", [None, 3])
    clipped = layers.box_clip(boxes, info)
    feed = {"b": sequences(BOXES, [1, 1, 1]), "i": np.ones((2, 3), "float32")}
    with pytest.raises(EnforceNotMet, match=r"box_clip: Input .* has 3 sequences, but ImInfo"):
        run(clipped, feed)


def test_sequences_of_perspective_regions_have_images():
    regions = fluid.data("r", [None, 8], lod_level=1)
    out = layers.roi_perspective_transform(fluid.data("x", [None, 4, 6, 6]), regions, 2, 2)[0]
    feed = {"x": IMAGES, "r": sequences(np.tile(BOXES, 2), [1, 1, 1])}
    with pytest.raises(EnforceNotMet, match=r"transform: ROIs .* have 3 sequences, but X"):
        run(out, feed)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_in_the_range_of_their_type(dtype):
    with pytest.raises(EnforceNotMet, match=rf"fill_constant: value .* is not from .*{dtype}"):
        layers.fill_constant([1], dtype, 1e20)


@pytest.mark.parametrize("resize", [layers.resize_nearest, layers.resize_bilinear])
@pytest.mark.parametrize("wanted", [{"out_shape": [0, 3]}, {"out_shape": [-2, 3]}, {"scale": 0.1}])
def test_images_are_resized_to_sizes_above_0(resize, wanted):
    x = fluid.data("x", [None, 1, None, None])
    ((argument, numbers),) = wanted.items()
    dtype = "int32" if argument == "out_shape" else "float32"
    fed = fluid.data("wanted", list(np.shape(numbers)) or [1], dtype)
    size = {argument: layers.assign(fed)}
    feed = {"x": np.ones((1, 1, 3, 3), "float32"), "wanted": np.atleast_1d(numbers).astype(dtype)}
    with pytest.raises(EnforceNotMet, match=r"interp(.|\n)* above 0, but it is \["):
        run(resize(x, **size), feed)


@pytest.mark.parametrize(
    ("made", "number", "problem"),
    [
        (lambda x, n: layers.slice(x, [0], [n], [9]), 4, r"slice(.|\n)*nothing is left of Input"),
        (lambda x, n: layers.topk(x, n)[0], 5, r"top_k(.|\n)*K is 5, but X has rows of 3"),
        (lambda x, n: layers.uniform_random([n, 2]), -1, r"no sizes below 0, but it is \[-1, 2\]"),
        (lambda x, n: layers.fill_constant([n], "int64", 1), -3, r"no sizes below 0.* \[-3\]"),
    ],
)
def test_numbers_that_variables_hold_are_checked(made, number, problem):
    out = made(fluid.data("x", [None, 3]), fluid.data("n", [1], "int32"))
    feed = {"x": np.ones((2, 3), "float32"), "n": np.array([number], "int32")}
    with pytest.raises(EnforceNotMet, match=problem):
        run(out, feed)


def table(rows, places):
    """A program that reads a table, the table, and a function that gives it ids."""
    block = fluid.default_main_program().global_block()
    kind = fluid.core.VarDesc.VarType.SELECTED_ROWS
    w = block.create_var(name="w", shape=[10, 2], dtype="float32", persistable=True, type=kind)
    out = block.create_var(name="out", dtype="float32")
    ids = fluid.data("ids", [None, 1], "int64")
    block.append_op("lookup_sparse_table", inputs={"W": w, "Ids": ids}, outputs={"Out": out})
    held = fluid.global_scope().var("w").get_selected_rows()
    held.set_rows(rows)
    held.set_height(10)
    value = np.arange(2 * places, dtype="float32").reshape(places, 2)
    held.get_tensor().set(value, fluid.CPUPlace())
    return held, lambda *numbers: run(out, {"ids": np.array(numbers).reshape(-1, 1)})


def test_tables_grow_by_ids_that_they_do_not_have_until_they_are_full():
    held, read = table([3, 0, 5], places=5)
    assert np.array(read(5, 4))[:, 0].tolist() == [4, 6]
    assert held.rows() == [3, 0, 5, 4]
    assert np.array(read(7, 4, 7))[:, 0].tolist() == [8, 6, 8]
    with pytest.raises(EnforceNotMet, match=r"W is full: it has places for 5 rows"):
        read(3, 8)
    assert held.rows() == [3, 0, 5, 4, 7]


@pytest.mark.parametrize("section", [([0], [100]), ([2], [1])], ids=str)
@pytest.mark.parametrize("cut", [layers.slice, layers.strided_slice], ids=lambda cut: cut.__name__)
def test_sections_of_no_rows_have_none(cut, section):
    steps = [[1]] if cut is layers.strided_slice else []
    out = cut(fluid.data("x", [None, 3]), [0], *section, *steps)
    assert np.array(run(out, {"x": X[:0]})).shape == (0, 3)
