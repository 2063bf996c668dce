"""``from_torch``: a module of PyTorch as a program, with the same names of parameters."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from dpexec.onnx.loader import load_with_padding
from dpexec.onnx.loading.model import nodes_of

__all__ = ["from_torch"]


def from_torch(
    module: Any,
    example: Any,
    *,
    names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    is_test: bool = True,
    exporter: str | None = None,
) -> list[Any]:
    """A module of PyTorch as a program, through PyTorch's exporter to ONNX.

    Parameters and buffers have the names of ``module.state_dict()``, and their values are stored in
    the scope. Parameters with ``requires_grad`` are trained. The first dimension of every example
    is the batch, and stays open; ``dynamic_axes`` opens others.

    Args:
        module: a ``torch.nn.Module``; it is exported as it computes in ``eval()``.
        example: a tensor for each argument, as a tuple, or one tensor. Exporters of PyTorch take
            batches of 1 as fixed: give two samples or more.
        names: names of the variables to feed; ``x0``, ``x1``, ... by default.
        dynamic_axes: the open dimensions of inputs as for ``torch.onnx.export``: a word for each,
            by number, such as ``{"x0": {0: "batch", 1: "length"}}``. Inputs that are not named have
            no open dimension. None opens the first dimension of every input.
        is_test: as for :func:`~dpexec.onnx.load`.
        exporter: ``"dynamo"``, which traces with ``torch.export`` and needs onnxscript, or
            ``"script"``, which traces TorchScript; None takes the first if it is installed.

    Returns:
        The program, the names to feed, and the variables to fetch.

    Raises:
        ImportError: PyTorch is not installed.
        ValueError: names and examples differ in number, ``dynamic_axes`` names another input, or
            the exporter is unknown.
        UnsupportedError: the module uses operators that programs do not have.

    Example:
        >>> import dpexec as fluid
        >>> program, feeds, fetches = fluid.from_torch(net, torch.randn(2, 3))  # doctest: +SKIP
    """
    if importlib.util.find_spec("torch") is None:
        raise ImportError("dpexec.from_torch needs PyTorch: https://pytorch.org/get-started")
    examples = example if isinstance(example, (tuple, list)) else (example,)
    names = list(names or (f"x{i}" for i in range(len(examples))))
    if len(names) != len(examples):
        raise ValueError(f"there are {len(examples)} examples, but {len(names)} names: {names}")
    axes = _axes(names, examples, dynamic_axes)
    if exporter is None:
        exporter = "script" if importlib.util.find_spec("onnxscript") is None else "dynamo"
    if exporter not in ("script", "dynamo"):
        raise ValueError(f"exporter must be 'dynamo' or 'script', not {exporter!r}")
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with TemporaryDirectory() as folder:
            path = Path(folder, "module.onnx")
            _EXPORTERS[exporter](module, tuple(examples), path, axes)
            parameters = dict(module.named_parameters(remove_duplicate=False))
            trained = {name for name, p in parameters.items() if p.requires_grad}
            return load_with_padding(
                path,
                is_test=is_test,
                trainable=lambda name: name in trained,
                padding=_padding(module, parameters),
            )
    finally:
        for part, was in training.items():
            part.training = was


def _axes(
    names: list[str], examples: Sequence[Any], given: Mapping[str, Mapping[int, str]] | None
) -> dict[str, dict[int, str]]:
    """The words of open dimensions, by the names of all inputs and by number."""
    if given is None:
        return {name: {0: "batch"} for name in names}
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(f"dynamic_axes has {unknown}, but the inputs are {names}")
    made = {}
    for name, example in zip(names, examples, strict=True):
        rank, words = example.dim(), given.get(name, {})
        if wrong := [axis for axis in words if not -rank <= axis < rank]:
            raise ValueError(f"dynamic_axes of {name!r} has {wrong}; it has {rank} dimensions")
        made[name] = {axis % rank: word for axis, word in words.items()}
    return made


def _by_script(
    module: Any, examples: tuple[Any, ...], path: Path, axes: dict[str, dict[int, str]]
) -> None:
    import torch

    class Whole(torch.nn.Module):
        """Claims to be trained: else parameters with equal numbers would become one."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.training = True

        def forward(self, *args: Any) -> Any:
            return self.module(*args)

    with _quiet():
        torch.onnx.export(
            Whole(),
            examples,
            str(path),
            input_names=list(axes),
            dynamic_axes=axes,
            training=torch.onnx.TrainingMode.PRESERVE,  # else normalizations are folded away
            do_constant_folding=False,
            dynamo=False,
        )
    _rename(path)


def _rename(path: Path) -> None:
    """Give parameters the names that they have in the module itself."""
    model = onnx.load(path)
    kept = {tensor.name for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.name = tensor.name.removeprefix("module.")
    for node in nodes_of(model.graph):
        names = [name.removeprefix("module.") if name in kept else name for name in node.input]
        node.input[:] = names
    onnx.save(model, path)


def _padding(module: Any, parameters: Mapping[str, Any]) -> dict[str, int]:
    """The rows of embeddings that PyTorch does not train, by all names of their tables."""
    import torch

    rows = {
        id(part.weight): part.padding_idx
        for part in module.modules()
        if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None
    }
    return {name: rows[id(p)] for name, p in parameters.items() if id(p) in rows}


def _by_dynamo(
    module: Any, examples: tuple[Any, ...], path: Path, axes: dict[str, dict[int, str]]
) -> None:
    import torch

    dims = {word: torch.export.Dim(word) for words in axes.values() for word in words.values()}
    shapes: Any = tuple({n: dims[word] for n, word in words.items()} for words in axes.values())
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:  # which is one argument to torch.export
        count = kinds.index(inspect.Parameter.VAR_POSITIONAL)
        shapes = (*shapes[:count], shapes[count:])
    with _quiet():
        torch.onnx.export(
            module,
            examples,
            str(path),
            input_names=list(axes),
            dynamic_shapes=shapes,
            external_data=False,
            optimize=False,  # it folds normalizations and transposed weights
            dynamo=True,
        )


_EXPORTERS = {"script": _by_script, "dynamo": _by_dynamo}


@contextlib.contextmanager
def _quiet() -> Any:
    """Without what exporters print of their progress, and warn of their own future."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
