"""``fluid.ParamAttr``: attributes of the parameters that layers create."""

from __future__ import annotations

from typing import Any

from dpexec.checks import check_type
from dpexec.initializer import Constant, Initializer, Xavier
from dpexec.regularizer import WeightDecayRegularizer

__all__ = ["ParamAttr", "WeightNormParamAttr"]


class ParamAttr:
    """Attributes of a parameter.

    Args:
        name: its name; None generates one. Two layers that give the same name share the parameter.
        initializer: its initial value; None takes the layer's default.
        learning_rate: factor on the optimizer's learning rate.
        regularizer: weight decay of this parameter instead of the optimizer's.
        trainable: whether optimizers update the parameter.
        do_model_average: whether ModelAverage includes the parameter.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the name is empty.

    Example:
        >>> import dpexec as fluid
        >>> table = ParamAttr(name="shared_table", learning_rate=0.1)
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     for word in ("first", "second"):
        ...         ids = fluid.data(word, shape=[None], dtype="int64")
        ...         vector = fluid.embedding(ids, size=[100, 8], param_attr=table)
        ...     [param.name for param in fluid.default_main_program().all_parameters()]
        ['shared_table']
    """

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = True,
    ) -> None:
        check_type(name, "name", (str, type(None)), "ParamAttr")
        check_type(learning_rate, "learning_rate", (float, int), "ParamAttr")
        check_type(trainable, "trainable", bool, "ParamAttr")
        check_type(do_model_average, "do_model_average", bool, "ParamAttr")
        if name == "":
            raise ValueError("name of ParamAttr can not be empty")
        for argument, value in (("initializer", initializer), ("regularizer", regularizer)):
            if not (value is None or callable(value)):
                raise TypeError(
                    f"The type of '{argument}' in ParamAttr must be {argument.capitalize()} or "
                    f"None, but received {type(value).__name__} ({value!r:.80})"
                )
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average

    def _set_default_initializer(self, initializer: Initializer | None) -> None:
        if self.initializer is None:
            if initializer is None:
                raise ValueError("ParamAttr.initializer is not set and the layer has no default")
            self.initializer = initializer

    def _set_default_param_initializer(self) -> None:
        self._set_default_initializer(Xavier())

    def _set_default_bias_initializer(self) -> None:
        self._set_default_initializer(Constant(0.0))

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """Convert an argument of a layer to a ParamAttr; False stays False, lists stay lists."""
        if isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, (list, tuple)):
            return [ParamAttr._to_attr(item) for item in arg]
        if arg is None or arg is True:
            return ParamAttr()
        if arg is False:
            return False
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        raise TypeError(
            "a parameter attribute must be a ParamAttr, a name, an initializer, a regularizer, "
            f"a bool or None, but received {type(arg).__name__} ({arg!r:.80})"
        )

    def _to_kwargs(self, with_initializer: bool = False) -> dict[str, Any]:
        kwargs: dict[str, Any] = {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "do_model_average": self.do_model_average,
        }
        if with_initializer:
            kwargs["initializer"] = self.initializer
        return kwargs


class WeightNormParamAttr(ParamAttr):
    """Attributes of a weight that is learnt as a direction and a length, ``g * v / norm(v)``.

    The layer makes two parameters, ``<name>_g`` and ``<name>_v``. Source: Salimans and Kingma,
    Weight normalization, 2016.

    Args:
        dim: the dimension of the weight along which each slice has a length of its own; None for
            one length of the whole weight.
        name: as for :class:`ParamAttr`, as all that follow.
        initializer: initial value of the weight.
        learning_rate: factor on the optimizer's learning rate.
        regularizer: weight decay of both parameters.
        trainable: whether optimizers update both parameters.
        do_model_average: whether ModelAverage includes both parameters.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", shape=[None, 4])
        ...     y = fluid.layers.fc(x, 3, param_attr=WeightNormParamAttr(dim=1), bias_attr=False)
        ...     [(p.name, p.shape) for p in fluid.default_main_program().all_parameters()]
        [('fc_0.w_0_g', (1, 3)), ('fc_0.w_0_v', (4, 3))]
    """

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
    ) -> None:
        super().__init__(name, initializer, learning_rate, regularizer, trainable, do_model_average)
        self.dim = dim
