"""Puts views into one self-contained HTML file, for light and dark, with and without scripts."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Protocol

from dpexec.viz.pages.looks import page_rules
from dpexec.viz.pages.packing import packed
from dpexec.viz.pages.page_data import ViewData
from dpexec.viz.pages.style import DARK, LIGHT, ROLE_NAMES

_STATIC = Path(__file__).parents[1] / "static"
_COMPRESS_ABOVE = 20_000  # characters of JSON; smaller pages stay readable in a text editor
_NOTEBOOK_HEIGHT = 640  # CSS pixels of a view in a notebook
_NOTEBOOK_WIDTH = 640  # CSS pixels that every notebook has for a picture

# Browsers refuse every request under this policy, whatever the page's data may hold.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'"
)


class Shown(Protocol):
    """The properties of a view that a page needs."""

    title: str

    def payload(self) -> ViewData:
        """Return the data that the page draws."""
        ...

    @property
    def svg(self) -> str:
        """The static picture."""
        ...


def page(title: str, views: Sequence[Shown]) -> str:
    """Return one HTML document with the views as tabs, data, script and style inside.

    Args:
        title: Heading and title of the window.
        views: The views; a single one gets no tabs.

    Returns:
        A page that makes no request. Without scripts it shows each view's SVG.
    """
    content = {"title": title, "roles": ROLE_NAMES, "views": [view.payload() for view in views]}
    pictures = "\n".join(
        f'<section class="picture" aria-label="{escape(view.title)}">{view.svg}</section>'
        for view in views
    )
    # A picture has its own heading; several need a common one.
    heading = f"<h1>{escape(title)}</h1>\n" if len(views) > 1 else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{_colours()}\n{_static('page.css')}</style>\n</head>\n<body>\n"
        f'<main id="static">\n{heading}{pictures}\n</main>\n'
        f"{_data_element(content)}\n<script>\n{_static('page.js')}</script>\n</body>\n</html>\n"
    )


def in_notebook(html: str, svg: str, title: str) -> str:
    """Return a page as the HTML of a notebook's output cell.

    The page covers the picture, in a frame, so that its style and ids do not affect the notebook. A
    notebook that is not trusted drops the frame, and the picture remains in its full height.
    """
    picture = base64.b64encode(svg.encode()).decode()
    return (
        "<style>.dpexec-view:has(iframe){overflow:hidden;"
        f"height:{_NOTEBOOK_HEIGHT}px}}</style>"
        '<div class="dpexec-view" style="position:relative">'
        f'<img style="max-width:100%" alt="{escape(title)}" '
        f'src="data:image/svg+xml;base64,{picture}">'
        f'<iframe title="{escape(title)}" sandbox="allow-scripts allow-downloads allow-popups" '
        'style="position:absolute;inset:0;width:100%;height:100%;border:0" '
        f'srcdoc="{escape(html)}"></iframe></div>'
    )


def fitting(svg: str) -> str:
    """Return a picture that shrinks to the width of its page.

    Notebooks show pictures in their stated size, and cut them off. The style applies where the
    picture is a part of the page, the size where it is an image.

    Args:
        svg: A document whose size is in pixels.
    """
    head, end, rest = svg.partition(">")
    width = re.search(r' width="([\d.]+)"', head)
    if width is None or float(width[1]) <= _NOTEBOOK_WIDTH:
        return svg
    size = f' width="100%" style="max-width:{width[1]}px"'
    return re.sub(r' height="[\d.]+"', "", head.replace(width[0], size)) + end + rest


def _data_element(content: dict[str, Any]) -> str:
    short = _json(packed(content))
    plain = _json(content) if len(short) <= _COMPRESS_ABOVE else ""
    if plain and len(plain) <= _COMPRESS_ABOVE:
        # "</script>" in a name would end the element; JSON may write "<" as an escape.
        harmless = plain.replace("<", "\\u003c")
        return f'<script type="application/json" id="data">{harmless}</script>'
    data = base64.b64encode(zlib.compress(short.encode(), 4)).decode()
    return f'<script type="application/octet-stream" id="data">{data}</script>'


def _json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


@cache
def _static(name: str) -> str:
    text = (_STATIC / name).read_text(encoding="utf-8")
    return re.sub(r"</(?=script|style)", r"<\\/", text)


@cache
def _colours() -> str:
    """The roles' colours as custom properties, for light and dark pages."""

    def rules(roles: dict[str, tuple[str, str]]) -> str:
        return "".join(
            f"--{role}-line:{line};--{role}-fill:{fill};" for role, (line, fill) in roles.items()
        )

    return f":root{{{rules(LIGHT)}}}\n:root[data-theme=dark]{{{rules(DARK)}}}\n{page_rules()}"
