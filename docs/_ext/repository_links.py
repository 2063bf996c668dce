"""Files of the repository outside ``docs`` as pages of the site, and links between all of them.

Links in Markdown lead from file to file, so that they work wherever the repository is read. Here a
link to a file that is a page of the site becomes one to that page; one to another file, its name.
"""

from __future__ import annotations

import re
import shutil
from os.path import normpath, relpath
from pathlib import Path
from typing import TYPE_CHECKING

import public_names

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
COPIES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "tests/benchmarks/README.md": "project/benchmarks.md",
    **{f"notebooks/{p.name}": f"notebooks/{p.name}" for p in (ROOT / "notebooks").glob("*.ipynb")},
}
"""Files that are pages, by their paths in the repository; values are paths below ``docs``."""

MODULES = {name.replace(".", "/"): f"api/{name}.rst" for name in public_names.modules()}
PAGES = {
    "README.md": "index.md",
    "notebooks": "notebooks.md",
    "docs": "index.md",
    **COPIES,
    **MODULES,
}
PAGES |= {"dpexec": "api/index.rst", "dpexec/engine/ops": "api/operators.rst"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s\\]+)(#[^)\s]*)?\)")


def copy_files(app: Sphinx) -> None:
    """Put the files where Sphinx looks for pages."""
    for source, target in COPIES.items():
        place = Path(app.srcdir) / target
        place.parent.mkdir(exist_ok=True)
        if not place.exists() or place.stat().st_mtime < (ROOT / source).stat().st_mtime:
            shutil.copy(ROOT / source, place)


def relink(page: str, text: str) -> str:
    """The text of a page with its links leading to pages of the site.

    Args:
        page: its path below ``docs``.
        text: its Markdown, with links as in the repository.
    """
    origins = {target: source for source, target in COPIES.items()}  # of copies
    folder = Path(origins.get(page, f"docs/{page}")).parent

    def replace(link: re.Match[str]) -> str:
        picture, words, target, part = link.groups()
        path = normpath(folder / target)
        place = re.sub(r"(/__init__)?\.py$", "", path)
        inside = PAGES.get(place) or (path[5:] if path.startswith("docs/") else None)
        if picture and inside is None:
            inside = relpath(ROOT / path, ROOT / "docs")
        if inside is None and (ROOT / path).exists():
            return words if path in words else f"{words} (`{path}`)"
        return f"{picture}[{words}]({relpath(inside or path, Path(page).parent)}{part or ''})"

    return _LINK.sub(replace, text)


def _on_read(app: Sphinx, name: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(name, base=False))
    if path.suffix in (".md", ".ipynb"):
        source[0] = relink(str(path), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", copy_files)
    app.connect("source-read", _on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
