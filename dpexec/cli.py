"""The command line: ``demo``, ``run``, ``tune``, ``viz``, ``convert``, ``kernels``, ``info``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from dpexec.commands import (
    USAGE_ERROR,
    CommandError,
    convert,
    count,
    kernels,
    launch,
    quiet_ends,
    run,
    tune,
    viz,
)
from dpexec.engine.core.version import __version__

_DESCRIPTION = "Trains PaddlePaddle fluid programs data-parallel on Dask."
_EXAMPLES = """\
examples:
  dpexec demo                              train a digit classifier on two replicas
  dpexec demo word2vec --mode reduce       sparse embeddings, each parameter updated by its owner
  dpexec demo digits --json --out results  end with one line of JSON, files into results/
  dpexec run train.py --devices 4          run an unmodified fluid 1.x script on 4 replicas
  dpexec run train.py --lr 0.1             what dpexec does not know is passed to the script
  dpexec run train.py --report out.html    where the time and the memory went, as a page
  dpexec viz trace.json                    the same of a recorded trace, as text
  dpexec tune train.py                     which strategies are faster for a script
  dpexec convert model.onnx model/         between ONNX, Paddle 1.x, safetensors, NumPy
  dpexec kernels                           compile ahead what first steps need
  dpexec info                              devices, versions, kernel libraries, threads
"""
_DEMO_NOTES = """\
examples:
  dpexec demo                                digits on two replicas
  dpexec demo fit_a_line --devices 4 --mode reduce
  dpexec demo word2vec --epochs 1 --json
"""
_DEMOS = ("digits", "fit_a_line", "word2vec")
_INFO_NOTES = """\
examples:
  dpexec info
  dpexec info --json
"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _add_run_options(parser: argparse.ArgumentParser, devices: int | None) -> None:
    default = "CPU_NUM, else the CPUs of this process" if devices is None else str(devices)
    parser.add_argument(
        "--devices",
        type=count,
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
        type=_scheduler,
        metavar="S",
        help="threads, sync (one thread, for debugging), or the address of a cluster's scheduler "
        "(default: threads)",
    )


def _scheduler(text: str) -> str:
    """Read the value of ``--scheduler``."""
    if text not in ("threads", "sync") and "://" not in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not threads, sync, or an address like tcp://host:8786"
        )
    return text


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dpexec", description=_DESCRIPTION, epilog=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"dpexec {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="train a small net on real data", epilog=_DEMO_NOTES)
    demo.add_argument(
        "name",
        nargs="?",
        default="digits",
        choices=_DEMOS,
        help="what to train (default: digits)",
    )
    _add_run_options(demo, devices=2)
    demo.add_argument("--epochs", type=count, metavar="N", help="how often to go through the data")
    demo.add_argument("--json", action="store_true", help="end with one line of JSON")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="DIR",
        help="folder for graph, trace and loss curve (default: demo-out)",
    )
    demo.set_defaults(function=_demo)

    _add_commands(commands)
    info = commands.add_parser("info", help="show devices and libraries", epilog=_INFO_NOTES)
    info.add_argument("--json", action="store_true", help="as JSON")
    info.set_defaults(function=_info)
    return parser


def _add_commands(commands: Any) -> None:
    """Add the commands that have a module of their own."""
    for name, module, function, what in (
        ("run", run, _run, "run an unmodified fluid script"),
        ("tune", tune, _tune, "try strategies for a script"),
    ):
        script = commands.add_parser(name, help=what, epilog=module.NOTES)
        module.add_options(script)
        _add_run_options(script, devices=None)
        script.set_defaults(function=function)

    shown = commands.add_parser("viz", help="show what a trace or graph holds", epilog=viz.NOTES)
    viz.add_options(shown)
    shown.set_defaults(function=viz.show)

    ahead = commands.add_parser(
        "kernels", help="compile ahead what first steps need", epilog=kernels.NOTES
    )
    kernels.add_options(ahead)
    ahead.set_defaults(function=kernels.build)

    converted = commands.add_parser(
        "convert", help="write a model in another format", epilog=convert.NOTES
    )
    convert.add_options(converted)
    converted.set_defaults(function=convert.convert)


def _mode(name: str | None) -> Any:
    from dpexec.engine.strategy.strategies import BuildStrategy

    strategies = BuildStrategy.ReduceStrategy
    return strategies.Reduce if name == "reduce" else strategies.AllReduce


def _demo(options: argparse.Namespace) -> int:
    from dpexec.examples import demo
    from dpexec.examples.example import MissingPackageError
    from dpexec.examples.training import Settings

    try:
        with _connected(options.scheduler or "threads") as scheduler:
            settings = Settings(
                devices=options.devices,
                mode=_mode(options.mode),
                scheduler=scheduler,
                epochs=options.epochs,
            )
            outcome = demo.run(demo.find(options.name), settings, options.out)
    except MissingPackageError as error:
        raise CommandError(f"{error}: pip install 'dpexec[demo]'") from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"cannot write to {options.out}: {error}") from error
    if options.json:
        print(json.dumps(outcome.to_json()))
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.trainers is not None:
        return launch.launch(options)
    for name in ("servers", "restarts"):
        if getattr(options, name) is not None:
            raise CommandError(f"--{name} needs --trainers N")
    with _defaults(options):
        return run.run(options)


def _tune(options: argparse.Namespace) -> int:
    with _defaults(options):
        return tune.tune(options)


@contextlib.contextmanager
def _defaults(options: argparse.Namespace) -> Iterator[None]:
    """Set the strategies' defaults from the command line's options."""
    from dpexec.engine.strategy.strategies import DEFAULTS

    if options.devices is not None:
        os.environ["CPU_NUM"] = str(options.devices)
    if options.mode is not None:
        DEFAULTS.reduce_strategy = _mode(options.mode)
    with _connected(options.scheduler) as DEFAULTS.scheduler:
        yield


@contextlib.contextmanager
def _connected(scheduler: Any) -> Iterator[Any]:
    """The scheduler's name for strategies; an address gets a client for the time of the block."""
    if scheduler is None or "://" not in scheduler:
        yield scheduler
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout=10)
    except OSError as error:
        raise CommandError(f"no dask scheduler answers at {scheduler}: {error}") from error
    with client:
        yield "distributed"


def collect_info() -> dict[str, Any]:
    """Return what ``dpexec info`` shows."""
    import numpy as np
    from threadpoolctl import threadpool_info

    from dpexec.engine import kernels
    from dpexec.engine.core.places import available_cpus, get_cuda_device_count
    from dpexec.engine.gpu import about

    np.dot(np.ones((2, 2)), np.ones((2, 2)))  # the BLAS library is loaded by its first use
    optional = ("cupy-cuda12x", "cupy-cuda13x", "matplotlib", "scikit-learn")
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
        "gpu_libraries": about.libraries(),
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
    print(f"CPU devices   {info['cpu_devices']} by default, a replica on each")
    print(f"scheduler     {4 * info['cpu_devices']} threads for them (num_threads = 0)")
    suffix = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
    print(f"CUDA devices  {info['cuda_devices']}{suffix}")
    for work, library in info["gpu_libraries"].items():
        print(f"on GPUs       {work}: {library}")
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
        arguments: the arguments without the program's name; None takes ``sys.argv``.

    Returns:
        The exit code: 0, 1 when a script failed, 2 when the command itself was wrong, 130 after
        Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    script_arguments: list[str] = []
    if given[:1] in (["run"], ["tune"]):
        ours = run.OURS if given[0] == "run" else tune.OURS
        own, script_arguments = run.separate(given[1:], ours)
        given = [given[0], *own]
    options = _parser().parse_args(given)
    if options.command in ("run", "tune"):
        options.arguments = script_arguments
    try:
        if options.command == "run":  # a script ends as it would with Python alone
            return int(options.function(options))
        with quiet_ends():
            return int(options.function(options))
    except CommandError as error:
        print(f"dpexec {options.command}: {error}", file=sys.stderr)
        return USAGE_ERROR
