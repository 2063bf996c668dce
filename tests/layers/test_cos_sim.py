"""``cos_sim`` of vectors near zero, compared with Paddle 1.8.5."""

import numpy as np

import dpexec as fluid

LEFT = np.array([[0, 0], [1, 2], [3e-6, 1e-7], [1e-3, 0]], "float32")
RIGHT = np.array([[1, 1], [0, 0], [2e-6, 3e-7], [0, 1e-3]], "float32")


def cosines(right):
    """The cosines with all of LEFT, then gradients."""
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [len(right), 2])
    x.stop_gradient = y.stop_gradient = False
    out = fluid.layers.cos_sim(x, y)
    fetches = [out, *fluid.gradients([out], [x, y])]
    return fluid.Executor(fluid.CPUPlace()).run(feed={"x": LEFT, "y": right}, fetch_list=fetches)


def test_vectors_are_divided_by_no_less_than_a_small_norm():
    out, d_left, d_right = cosines(RIGHT)
    np.testing.assert_allclose(out.ravel(), [0, 0, 6.030001e-4, 0], rtol=1e-5)
    expected = [[7071.0684, 7071.0684], [0, 0], [199.81912, 29.993975], [0, 999.99994]]
    np.testing.assert_allclose(d_left, expected, rtol=1e-5)
    expected = [[0, 0], [4472.136, 8944.272], [299.87943, 9.981911], [999.99994, 0]]
    np.testing.assert_allclose(d_right, expected, rtol=1e-5)


def test_one_vector_for_all_of_which_one_is_zero():
    out, d_left, _ = cosines(RIGHT[:1])  # no machine code
    np.testing.assert_allclose(out.ravel(), [0, 0.9486833, 0.0219203, 0.7071068], rtol=1e-5)
    np.testing.assert_allclose(d_left[0], [7071.0684, 7071.0684], rtol=1e-5)
