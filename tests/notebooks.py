"""Executes the notebooks, each in a kernel of its own.

``python -m tests.notebooks`` stores them with their outputs, one after another so that the times
in them are right; ``--into FOLDER`` puts them there, and is faster: several run at once, and in a
cell with metadata ``quick`` texts are replaced by others, which makes large examples small.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
SECONDS = 1200  # for a cell


def tidy(notebook: Any) -> None:
    """Keep what shows without scripts, and nothing that changes from run to run for no reason.

    A view is stored as its SVG: its interactive page would be larger than the notebook, and comes
    back when the cell runs.
    """
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not _of_xgboost(output)]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                data.pop("text/html", None)
                title = re.search("<title>(.*?)</title>", data["image/svg+xml"])
                data["text/plain"] = title[1] if title else "picture"


def _of_xgboost(output: Any) -> bool:
    """Whether XGBoost's workers printed it: their ranks, in any order and at any time."""
    lines = output.get("text", "").split("\n") if output.get("name") == "stderr" else []
    return bool(lines) and all(not line.strip() or "got rank" in line for line in lines)


async def execute(path: Path, quick: bool = False) -> Any:
    """Run a notebook from top to bottom, and return it; errors stand in its outputs."""
    notebook = nbformat.read(path, as_version=4)
    if quick:
        for cell in notebook.cells:
            for text, instead in cell.metadata.get("quick", {}).items():
                if text not in cell.source:
                    raise ValueError(f"{path.name} is not made quick: a cell lacks {text!r}")
                cell.source = cell.source.replace(text, instead)
    with tempfile.TemporaryDirectory() as scratch:
        resources = {"metadata": {"path": scratch}}
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", allow_errors=True, resources=resources
        )
        client.extra_arguments = ["--Application.log_level=40"]  # errors
        await client.async_execute()
    tidy(notebook)
    return notebook


def failure(notebook: Any) -> str:
    """The traceback of the first cell that failed; nothing if all went well."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return "\n".join(output.traceback)
    return ""


async def execute_all(into: Path) -> int:
    """Execute the notebooks and return how many failed; what failed is not stored in its place."""
    stored = into == FOLDER
    free = asyncio.Semaphore(1 if stored else os.cpu_count() or 1)

    async def one(path: Path) -> bool:
        async with free:
            notebook = await execute(path, quick=not stored)
        error = failure(notebook)
        if error:
            print(f"{path.name} failed:\n{error}", file=sys.stderr)
        if not (error and stored):
            nbformat.write(notebook, into / path.name)
        return bool(error)

    return sum(await asyncio.gather(*map(one, sorted(FOLDER.glob("*.ipynb")))))


def main() -> int:
    """Execute all notebooks; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=FOLDER, help="where to write them")
    return 1 if asyncio.run(execute_all(parser.parse_args().into.resolve())) else 0


if __name__ == "__main__":
    sys.exit(main())
