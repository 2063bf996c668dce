"""The base class of views, which every call of `dpexec.viz` returns."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from dpexec.viz.pages.page import fitting, in_notebook, page
from dpexec.viz.pages.page_data import ViewData
from dpexec.viz.pages.picture import cairo, convert


class View(ABC):
    """A view of a graph or a trace. At the end of a notebook cell it shows itself.

    Subclasses define the data of the interactive page (`payload`) and a static picture (`svg`);
    pages, files and notebooks are made from these two.
    """

    formats: tuple[str, ...] = (".svg", ".png", ".pdf", ".html", ".json")
    """Endings that `save` knows."""

    title: str

    @abstractmethod
    def payload(self) -> ViewData:
        """Return the data of the interactive page, as plain JSON values."""

    @property
    @abstractmethod
    def svg(self) -> str:
        """The view as an SVG document that is complete without scripts."""

    @cached_property
    def html(self) -> str:
        """The view as one interactive page that loads nothing; without scripts it shows the SVG."""
        return page(self.title, [self])

    def to_json(self) -> Mapping[str, Any]:
        """Return the numbers behind the view as plain JSON values."""
        return self.payload()

    @property
    def json(self) -> str:
        """The numbers behind the view."""
        return json.dumps(self.to_json())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the view to a file, in the format of its ending.

        Args:
            path: Its ending is one of `formats`. PNG and PDF need Cairo, which the `viz` extra
                installs; the others need nothing.

        Returns:
            The path.

        Raises:
            ValueError: The ending is not one of `formats`.
            RuntimeError: The ending is .png or .pdf, and Cairo is missing.
        """
        target, ending = Path(path), self.ending(path)
        content = self.encode(ending)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content, encoding="utf-8")
        return target

    @classmethod
    def ending(cls, path: str | os.PathLike[str]) -> str:
        """The ending of a file's name, after a check that a view can be written in this format.

        Args:
            path: The file.

        Raises:
            ValueError: The ending is not one of `formats`.
            RuntimeError: The ending is .png or .pdf, and Cairo is missing.
        """
        ending = Path(path).suffix.lower()
        if ending not in cls.formats:
            known = ", ".join(cls.formats)
            film = "; viz.animate makes films" if ending == ".gif" else ""
            raise ValueError(
                f"cannot write a view to {os.fspath(path)!r}: choose one of {known}{film}"
            )
        if ending in (".png", ".pdf"):
            cairo(ending)
        return ending

    def encode(self, ending: str) -> str | bytes:
        """Return the content of a file; subclasses with more formats extend it.

        Args:
            ending: The ending of its name, with the dot: one of `formats`.
        """
        if ending in (".png", ".pdf"):
            return convert(self.svg, ending)
        text: str = getattr(self, ending[1:])
        return text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {
            "text/html": in_notebook(self.html, self.svg, self.title),
            "image/svg+xml": fitting(self.svg),
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"
