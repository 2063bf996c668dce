"""``dpexec convert``: a model or its parameters in another format."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dpexec.commands import CommandError, count
from dpexec.commands.model_files import FORMATS, Model, detect, read
from dpexec.commands.model_writing import write

__all__ = ["NOTES", "add_options", "convert"]

NOTES = """\
formats, which names and contents tell unless --from and --to are given:
  paddle       a directory of save_inference_model, of Paddle 1.x or dpexec: __model__ and a file
               for each parameter, or one for all; also those of save_params and
               save_persistables, which hold parameters only
  fluid        files of fluid.save: NAME.pdparams, NAME.pdopt, NAME.pdmodel
  onnx         NAME.onnx
  safetensors  NAME.safetensors, parameters only
  numpy        NAME.npz, parameters only

Parameters alone are no model: --program names a model whose program they belong to. A file with
all parameters has no names; they are those of the program. What an optimizer keeps is left out if
the program does not train.

examples:
  dpexec convert old_model/ model.onnx             a model of Paddle 1.x for onnxruntime
  dpexec convert model.onnx model/                 a model of PyTorch's exporter for dpexec
  dpexec convert model.onnx weights.safetensors    its parameters alone
  dpexec convert new.safetensors model/ --program model.onnx
  dpexec convert saved_params/ weights.npz         what save_params wrote
  dpexec convert checkpoint.pdparams model/ --fetch softmax_0.tmp_0
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("source", type=Path, metavar="IN", help="a file, a directory, or the NAME "
                        "of fluid.save's files")  # fmt: skip
    parser.add_argument("target", type=Path, metavar="OUT", help="what to write; replaced if there")
    parser.add_argument("--from", dest="source_format", choices=FORMATS, help="format of IN")
    parser.add_argument("--to", dest="target_format", choices=FORMATS, help="format of OUT")
    parser.add_argument(
        "--program", type=Path, metavar="MODEL", help="take the program of this model"
    )
    parser.add_argument("--model-file", metavar="FILE", help="the program in a directory IN")
    parser.add_argument("--params-file", metavar="FILE", help="all parameters in a directory IN")
    parser.add_argument(
        "--combine", metavar="FILE", help="write all parameters of a directory OUT into this file"
    )
    parser.add_argument(
        "--feed", action="append", metavar="NAME", help="a variable to feed (repeatable)"
    )
    parser.add_argument(
        "--fetch", action="append", metavar="NAME", help="a variable to fetch (repeatable)"
    )
    parser.add_argument(
        "--opset",
        type=count,
        default=17,
        metavar="N",
        help="version of ONNX's operators (default: 17)",
    )


def convert(options: argparse.Namespace) -> int:
    """Convert; returns the exit code.

    Args:
        options: the command line's options.

    Raises:
        CommandError: the files cannot be read or written, or do not fit together.
    """
    target_format = options.target_format or detect(options.target, new=True)
    if options.source.resolve() == options.target.resolve():
        raise CommandError("IN and OUT are the same")
    with _steps(3) as step:
        step("reading")
        owner = None if options.program is None else _owner(options.program)
        model = read(
            options.source,
            options.source_format,
            options.model_file,
            options.params_file,
            None if owner is None else owner.program,
        )
        if owner is not None:
            model = _with_program(model, owner)
        step("writing")
        write(
            model,
            options.target,
            target_format,
            options.feed,
            options.fetch,
            options.combine,
            options.opset,
        )
        step("done")
    print(f"{model} -> {options.target} ({target_format})")
    return 0


def _owner(path: Path) -> Model:
    """The model whose program parameters belong to.

    Raises:
        CommandError: it has no program.
    """
    model = read(path)
    if model.program is None:
        raise CommandError(f"{path} has no program")
    return model


def _with_program(model: Model, other: Model) -> Model:
    """The parameters of one model in the program of another one.

    Raises:
        CommandError: names differ.
    """
    from dpexec.engine.ir.program import Program
    from dpexec.io.selection import get_program_persistable_vars

    stored = {var.name for var in get_program_persistable_vars(other.program or Program())}
    known = stored | other.arrays.keys() | other.state.keys()
    if model.format == "paddle":  # of training: with the state of the optimizer
        model.arrays = {n: array for n, array in model.arrays.items() if n in known}
    strange = sorted(model.arrays.keys() - known)
    missing = sorted((other.arrays.keys() or stored) - model.arrays.keys())
    if strange or missing:
        parts = [
            f"{what} {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}"
            for what, names in (("unexpected:", strange), ("missing:", missing))
            if names
        ]
        raise CommandError(
            f"the parameters of {model.path} are not those of {other.path}: {'; '.join(parts)}"
        )
    return Model(
        model.path, model.format, other.program, other.feeds, other.fetches, model.arrays,
        {**other.state, **model.state},
    )  # fmt: skip


@contextmanager
def _steps(total: int) -> Iterator[Callable[[str], None]]:
    """A bar of steps on the terminal, if they take longer than half a second."""
    from tqdm import tqdm

    with tqdm(total=total, delay=0.5, leave=False, disable=None) as bar:

        def step(text: str) -> None:
            bar.set_description(text)
            bar.update()

        yield step
