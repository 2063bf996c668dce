"""Static pictures below each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_GAP = 24.0
_SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([\d.]+)"[^>]*?\bheight="([\d.]+)"')


def stacked(pictures: Sequence[str], title: str) -> str:
    """Return one SVG document that shows several, one below the other.

    Args:
        pictures: SVG documents with width and height in pixels.
        title: Text for screen readers.

    Raises:
        ValueError: A picture has no size.
    """
    parts: list[str] = []
    width = y = 0.0
    for picture in pictures:
        size = _SIZE.search(picture)
        if size is None:
            raise ValueError("a picture without width and height cannot be stacked")
        parts.append(picture.replace("<svg ", f'<svg y="{y:g}" ', 1))
        width = max(width, float(size[1]))
        y += float(size[2]) + _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{y:g}">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>", ""])
