"""``fluid.layer_helper_base``."""

from dpexec.layer_helper import LayerHelper as LayerHelperBase

__all__ = ["LayerHelperBase"]
