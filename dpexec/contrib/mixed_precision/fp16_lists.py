"""Lists of operators that run in float16, from their declarations (``precision``).

Source: the lists of ``fluid.contrib.mixed_precision``, 1.8.5.
"""

from __future__ import annotations

from collections.abc import Collection

from dpexec.engine.ir.opdef import types_where

__all__ = ["AutoMixedPrecisionLists"]

_UNKNOWN = {"rank"}
"""An operator of later versions that Paddle's gray list names."""


def _declared(precision: str) -> set[str]:
    return set(types_where(lambda definition: definition.precision == precision))


class AutoMixedPrecisionLists:
    """Three lists of operator types; types in none of them run in float32.

    Args:
        custom_white_list: types to run in float16.
        custom_black_list: types to run in float32.
        custom_black_varnames: operators that read or write one of these variables run in float32.

    Raises:
        ValueError: a type is in both lists.

    Example:
        >>> import dpexec as fluid
        >>> lists = fluid.contrib.AutoMixedPrecisionLists(custom_black_list=["matmul"])
        >>> "conv2d" in lists.white_list, "matmul" in lists.white_list, "matmul" in lists.black_list
        (True, False, True)
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
        self.white_list = (_declared("white") - black) | white
        self.black_list = (_declared("black") - white) | black
        self.gray_list = (_declared("gray") | _UNKNOWN) - white - black
        self.black_varnames = custom_black_varnames
