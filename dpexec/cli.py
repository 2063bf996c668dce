"""The command line: ``dpexec demo``, ``dpexec run``, ``dpexec info``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from dpexec.version import __version__

USAGE_ERROR = 2
SCRIPT_ERROR = 1

_DESCRIPTION = "Trains PaddlePaddle fluid programs data-parallel on Dask."
_EXAMPLES = """\
examples:
  dpexec demo                              train a digit classifier on two replicas
  dpexec demo word2vec --mode reduce       sparse embeddings, each parameter updated by its owner
  dpexec demo digits --json --out results  end with one line of JSON, files into results/
  dpexec run train.py --devices 4          run an unmodified fluid 1.x script on 4 replicas
  dpexec run train.py --lr 0.1             what dpexec does not know is passed to the script
  dpexec info                              devices, versions, kernel libraries, threads
"""
_RUN_NOTES = """\
The script's `import paddle.fluid as fluid`, `import paddle.fluid.layers as layers`,
`from paddle.fluid import core` and `import paddle` (batch, reader, dataset) are answered by
dpexec; a real Paddle need not be installed. Names that NumPy has dropped since then (np.float,
np.int ...) are there. Options of dpexec may stand before or after the
script; everything after `--` goes to the script as it is.

examples:
  dpexec run train.py
  dpexec run train.py --devices 4 --mode reduce
  dpexec run --scheduler sync train.py --epochs 3      one thread, for a debugger
  dpexec run train.py -- --devices mine                an option of the script itself
"""
_DEMO_NOTES = """\
examples:
  dpexec demo                                digits on two replicas
  dpexec demo fit_a_line --devices 4 --mode reduce
  dpexec demo word2vec --epochs 1 --json
"""
_INFO_NOTES = """\
examples:
  dpexec info
  dpexec info --json
"""


class CommandError(Exception):
    """What the user asked for cannot be done; shown as one line."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _count(text: str) -> int:
    """A number of at least one, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _add_run_options(parser: argparse.ArgumentParser, devices: int | None) -> None:
    default = "CPU_NUM, else the CPUs of this process" if devices is None else str(devices)
    parser.add_argument(
        "--devices",
        type=_count,
        default=devices,
        metavar="N",
        help=f"number of replicas (default: {default})",
    )
    parser.add_argument(
        "--mode",
        choices=("allreduce", "reduce"),
        help="how gradients are aggregated where the program does not say (default: allreduce)",
    )
    parser.add_argument(
        "--scheduler",
        choices=("threads", "sync"),
        help="dask's threaded scheduler, or one thread for debugging (default: threads)",
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dpexec", description=_DESCRIPTION, epilog=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"dpexec {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train a small net on real data", epilog=_DEMO_NOTES)
    demo.add_argument(
        "name",
        nargs="?",
        default="digits",
        choices=("digits", "fit_a_line", "word2vec"),
        help="what to train (default: digits)",
    )
    _add_run_options(demo, devices=2)
    demo.add_argument("--epochs", type=_count, metavar="N", help="how often to go through the data")
    demo.add_argument("--json", action="store_true", help="end with one line of JSON")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="DIR",
        help="folder for graph, trace and loss curve (default: demo-out)",
    )
    demo.set_defaults(function=_demo)

    run = commands.add_parser("run", help="run an unmodified fluid script", epilog=_RUN_NOTES)
    run.usage = "dpexec run SCRIPT [ARGS] [--devices N] [--mode M] [--scheduler S]"
    run.add_argument("script", metavar="SCRIPT", help="a Python file; ARGS are passed to it")
    _add_run_options(run, devices=None)
    run.set_defaults(function=_run)

    info = commands.add_parser("info", help="show devices and libraries", epilog=_INFO_NOTES)
    info.add_argument("--json", action="store_true", help="as JSON")
    info.set_defaults(function=_info)
    return parser


def _separate(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of ``run`` into dpexec's own (with the script) and the script's.

    argparse alone cannot: it would take unknown options out of their order.
    """
    ours = {"--devices", "--mode", "--scheduler"}
    own: list[str] = []
    script: list[str] = []
    found = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            script.extend(rest)
        elif argument in ours:
            own.extend([argument, *[value for value in [next(rest, None)] if value is not None]])
        elif argument.split("=")[0] in ours or (not found and argument.startswith("-")):
            own.append(argument)
        elif found:
            script.append(argument)
        else:
            own.append(argument)
            found = True
    return own, script


def _mode(name: str | None) -> Any:
    from dpexec.runtime.strategy import BuildStrategy

    strategies = BuildStrategy.ReduceStrategy
    return strategies.Reduce if name == "reduce" else strategies.AllReduce


def _demo(options: argparse.Namespace) -> int:
    from dpexec.examples import demo
    from dpexec.examples.example import MissingPackageError
    from dpexec.examples.training import Settings

    settings = Settings(
        devices=options.devices,
        mode=_mode(options.mode),
        scheduler=options.scheduler or "threads",
        epochs=options.epochs,
    )
    try:
        outcome = demo.run(demo.find(options.name), settings, options.out)
    except MissingPackageError as error:
        raise CommandError(f"{error}: pip install 'dpexec[demo]'") from error
    except OSError as error:
        raise CommandError(f"cannot write to {options.out}: {error}") from error
    if options.json:
        print(json.dumps(outcome.to_json()))
    return 0


def _run(options: argparse.Namespace) -> int:
    from dpexec.old_numpy import old_numpy_names
    from dpexec.paddle_alias import paddle_is_dpexec
    from dpexec.runtime.strategy import DEFAULTS

    script = Path(options.script)
    if not script.is_file():
        raise CommandError(f"there is no script {options.script}")
    if options.devices is not None:
        os.environ["CPU_NUM"] = str(options.devices)
    if options.mode is not None:
        DEFAULTS.reduce_strategy = _mode(options.mode)
    if options.scheduler is not None:
        DEFAULTS.scheduler = options.scheduler
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    with paddle_is_dpexec(), old_numpy_names():
        try:
            runpy.run_path(options.script, run_name="__main__")
        except Exception as error:
            _print_traceback(error, options.script)
            return SCRIPT_ERROR
    return 0


def _print_traceback(error: Exception, script: str) -> None:
    """Print the traceback as Python would have for the script alone."""
    inside: TracebackType | None = error.__traceback__
    while inside is not None and inside.tb_frame.f_code.co_filename != script:
        inside = inside.tb_next
    traceback.print_exception(type(error), error, inside or error.__traceback__)


def collect_info() -> dict[str, Any]:
    """Return what ``dpexec info`` shows."""
    import numpy as np
    from threadpoolctl import threadpool_info

    from dpexec import kernels
    from dpexec.core.places import available_cpus, get_cuda_device_count

    np.dot(np.ones((2, 2)), np.ones((2, 2)))  # the BLAS library is loaded by its first use
    optional = ("cupy-cuda12x", "matplotlib", "scikit-learn")
    required = ("numpy", "dask", "distributed")
    versions = {"dpexec": __version__, "python": platform.python_version()}
    for package in (*required, *optional):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    libraries = [
        {key: library[key] for key in ("internal_api", "version", "num_threads", "filepath")}
        for library in threadpool_info()
    ]
    cpus = available_cpus()
    text = os.environ.get("CPU_NUM")
    return {
        "versions": versions,
        "cpus": cpus,
        "CPU_NUM": text,
        "cpu_devices": int(text) if text and text.lstrip("+-").isdecimal() else cpus,
        "cuda_devices": get_cuda_device_count(),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "kernel_libraries": libraries,
        "machine_code": kernels.libraries(),
    }


def _info(options: argparse.Namespace) -> int:
    info = collect_info()
    if options.json:
        print(json.dumps(info))
        return 0
    versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items())
    number = info["CPU_NUM"]
    visible = info["CUDA_VISIBLE_DEVICES"]
    print(f"versions      {versions}")
    print(f"CPUs          {info['cpus']} available to this process")
    print(f"CPU_NUM       {'not set' if number is None else number}")
    print(f"CPU devices   {info['cpu_devices']} replicas by default")
    print(f"scheduler     {4 * info['cpu_devices']} threads for them (num_threads = 0)")
    suffix = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
    print(f"CUDA devices  {info['cuda_devices']}{suffix}")
    for library in info["kernel_libraries"]:
        print(
            f"kernels       {library['internal_api']} {library['version'] or ''}, "
            f"1 thread per replica in a run (else {library['num_threads']}), "
            f"{Path(library['filepath']).name}"
        )
    made_with = ", ".join(f"{name} {version}" for name, version in info["machine_code"].items())
    print(f"machine code  {made_with or 'none, operators run on NumPy'}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; None for those of the process.

    Returns:
        The exit code: 0, 1 when a script failed, 2 when the command itself was wrong.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    script_arguments: list[str] = []
    if given[:1] == ["run"]:
        own, script_arguments = _separate(given[1:])
        given = ["run", *own]
    options = _parser().parse_args(given)
    if options.command == "run":
        options.arguments = script_arguments
    try:
        return int(options.function(options))
    except CommandError as error:
        print(f"dpexec {options.command}: {error}", file=sys.stderr)
        return USAGE_ERROR
