"""SVG to PNG and PDF."""

from __future__ import annotations

from typing import Any

_SCALE = 2.0  # pixels per SVG unit, so that prints and dense screens stay sharp


def cairo(ending: str) -> Any:
    """The package that draws .png and .pdf files.

    Args:
        ending: ".png" or ".pdf".

    Raises:
        RuntimeError: CairoSVG or the Cairo library is missing.
    """
    try:
        import cairosvg
    except (ImportError, OSError):  # OSError: the package is there, the C library is not
        raise RuntimeError(
            f"a picture as {ending} needs Cairo: pip install 'dpexec[viz]' (and, on Debian, "
            "apt-get install libcairo2); .svg and .html work without"
        ) from None
    return cairosvg


def convert(svg: str, ending: str) -> bytes:
    """Turn an SVG document into the bytes of a .png or .pdf file, in its light colours.

    Args:
        svg: The document; style rules by class are kept, media queries ignored.
        ending: ".png" or ".pdf".

    Raises:
        RuntimeError: CairoSVG or the Cairo library is missing.
    """
    package = cairo(ending)
    draw = package.svg2png if ending == ".png" else package.svg2pdf
    result: bytes = draw(bytestring=svg.encode(), scale=_SCALE if ending == ".png" else 1.0)
    return result
