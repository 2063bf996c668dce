"""Assertions of tests are rewritten by pytest so that they can say what failed.

In a fresh clone that takes 7 s of a processor, for each of the processes that share the tests: all
collect the same files in the same order at the same time. So each rewrites its part ahead, and
finds the other parts on the disk.
"""

import contextlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import AssertionRewritingHook

HERE = Path(__file__).parent


def rewrite_ahead(config: pytest.Config) -> None:
    """Rewrite the part of one process, if there are others.

    Args:
        config: of a process that shares the tests, or of one that does not.
    """
    shared = getattr(config, "workerinput", None)
    hooks = [found for found in sys.meta_path if isinstance(found, AssertionRewritingHook)]
    if shared is None or not hooks or sys.dont_write_bytecode:
        return
    number, count = int(shared["workerid"].removeprefix("gw")), shared["workercount"]
    places = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    paths = sorted(
        path for path in HERE.rglob("test_*.py") if any(map(path.is_relative_to, places))
    )
    vars(rewrite)["exec"] = lambda code, names: None  # the hook would run what it rewrites
    try:
        for path in paths[number % count :: count]:
            spec = spec_from_file_location("rewritten", path, loader=hooks[0])
            assert spec is not None
            with contextlib.suppress(SyntaxError):  # collecting reports it
                hooks[0].exec_module(module_from_spec(spec))
    finally:
        del vars(rewrite)["exec"]
