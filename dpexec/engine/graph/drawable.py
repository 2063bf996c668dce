"""Base class of graphs and plans: a JSON file for views, and a picture in notebooks."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from dpexec.engine.core import hooks

__all__ = ["Drawable"]


class Drawable(ABC):
    """An object that ``dpexec.viz.draw`` draws, directly or from its saved file."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain values: the content of the file."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a JSON file that ``dpexec.viz`` can read on any machine.

        Args:
            path: of the file.

        Returns:
            The path.
        """
        target = Path(path)
        text = json.dumps(self.to_json(), separators=(",", ":"))
        target.write_text(text + "\n", encoding="utf-8")
        return target

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {**hooks.picture(self), "text/plain": repr(self)}
