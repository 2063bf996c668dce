"""Which operators run in float16. Source: the lists of ``fluid.contrib.mixed_precision``, 1.8.5."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["AutoMixedPrecisionLists"]

WHITE = frozenset({"conv2d", "matmul", "mul"})
"""Always float16: what takes the time."""

BLACK = frozenset({
    "cos_sim", "cross_entropy", "cross_entropy2", "exp", "log", "mean",
    "sigmoid_cross_entropy_with_logits", "softmax", "softmax_with_cross_entropy", "square",
    "sum",
})  # fmt: skip
"""Always float32: what overflows or loses digits."""

GRAY = frozenset({
    "batch_norm", "cast", "dropout", "elementwise_add", "elementwise_div",
    "elementwise_floordiv", "elementwise_max", "elementwise_min", "elementwise_mod",
    "elementwise_mul", "elementwise_pow", "elementwise_sub", "fill_constant", "flatten2",
    "gather", "gaussian_random", "gaussian_random_batch_size_like",
    "get_tensor_from_selected_rows", "leaky_relu", "lookup_table", "pool2d", "pool3d", "rank",
    "relu", "relu6", "reshape2", "scale", "sigmoid", "sign", "slice", "soft_relu", "stack",
    "tanh", "top_k", "transpose2", "uniform_random_batch_size_like", "unstack",
})  # fmt: skip
"""As the operators that their inputs come from."""


class AutoMixedPrecisionLists:
    """Three lists of operator types; types in none of them run in float32.

    Args:
        custom_white_list: types to run in float16.
        custom_black_list: types to run in float32.
        custom_black_varnames: operators that read or write one of these variables run in float32.

    Raises:
        ValueError: a type is in both lists.
    """

    def __init__(
        self,
        custom_white_list: Collection[str] | None = None,
        custom_black_list: Collection[str] | None = None,
        custom_black_varnames: Collection[str] | None = None,
    ) -> None:
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        if white & black:
            raise ValueError(
                f"Custom white list overlap custom black list: {', '.join(sorted(white & black))}"
            )
        self.white_list = set((WHITE - black) | white)
        self.black_list = set((BLACK - white) | black)
        self.gray_list = set(GRAY - white - black)
        self.black_varnames = custom_black_varnames
