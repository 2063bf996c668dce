"""Figures in readable form: times, sizes, counts, percentages."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from dpexec.viz.pages.page_data import Unit

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def seconds_text(seconds: float) -> str:
    """Return a time with its unit.

    Example:
        >>> seconds_text(0.00123), seconds_text(9.999e-9), seconds_text(12), seconds_text(0)
        ('1.23 ms', '10.0 ns', '12.0 s', '0 s')
    """
    if not seconds:
        return "0 s"
    size, unit = next((t for t in _TIMES if abs(seconds) >= t[0] * 0.9995), _TIMES[-1])
    return f"{_digits(seconds / size)} {unit}"


def spread_text(spread: float) -> str:
    """Return the spread of values as a text to append to their median; "" for 0.

    Example:
        >>> spread_text(0.0021), spread_text(0)
        (' ± 2.10 ms', '')
    """
    return f" ± {seconds_text(spread)}" if spread else ""


def bytes_text(size: float) -> str:
    """Return a size with its unit.

    Example:
        >>> bytes_text(1536), bytes_text(17), bytes_text(3 << 30)
        ('1.50 KiB', '17 B', '3.00 GiB')
    """
    factor, unit = next((s for s in _SIZES if abs(size) >= s[0]), _SIZES[-1])
    return f"{size:.0f} B" if factor == 1 else f"{_digits(size / factor)} {unit}"


def cut(text: str, longest: int) -> str:
    """Return a text, or its beginning if it has more than `longest` characters.

    Example:
        >>> cut("relu", 6), cut("elementwise_add", 6)
        ('relu', 'eleme…')
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shortened(text: str, longest: int) -> str:
    """Return a text, without its middle if it has more than `longest` characters.

    Names of variables and what is said behind them differ at the end, types of operators at the
    beginning.

    Example:
        >>> shortened("relu", 6), shortened("elementwise_add", 6)
        ('relu', 'el…add')
    """
    if len(text) > longest:
        head = (longest - 1) // 2
        text = f"{text[:head]}…{text[head + 1 - longest :]}"
    return text


def room() -> int:
    """Return the number of characters that a printed line may have.

    Without a terminal these are 88: notebooks in small windows break longer lines, in mid-word.
    """
    return shutil.get_terminal_size((88, 0)).columns


def wrapped(*sentences: str) -> list[str]:
    """Return sentences as lines to print; further lines of an item of a list are indented.

    Example:
        >>> first, *further = wrapped("- " + "so it goes " * 40)
        >>> {line[:2] for line in further}
        {'  '}
    """
    return [line for text in sentences for line in _lines(text)]


def _lines(text: str) -> list[str]:
    inner = "  " if text.startswith("- ") else ""
    return textwrap.wrap(text, room(), subsequent_indent=inner, break_on_hyphens=False) or [text]


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural if needed.

    Example:
        >>> counted(1, "operator"), counted(1536, "operator"), counted(0, "step")
        ('1 operator', '1,536 operators', '0 steps')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def tally(names: Iterable[str]) -> list[str]:
    """Return each name once with its count, the most frequent first.

    Example:
        >>> tally(["mul", "relu", "mul"])
        ['mul ×2', 'relu']
    """
    return [f"{n} ×{times}" if times > 1 else n for n, times in Counter(names).most_common()]


def few(texts: Sequence[str], longest: int = 30) -> str:
    """Return as many of the texts as fit into a line, at least the first.

    Example:
        >>> few(["mul ×2", "elementwise_add", "softmax_with_cross_entropy"])
        'mul ×2, elementwise_add, …'
    """
    line = texts[0]
    for text in texts[1:]:
        if len(line) + len(text) > longest:
            return f"{line}, …"
        line += f", {text}"
    return line


def percent(share: float) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.2345), percent(0.0042), percent(0)
        ('23%', '0.4%', '0%')
    """
    if share >= 0.0995 or not share:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def signed_percent(share: float) -> str:
    """Return a change in percent with its sign.

    Example:
        >>> signed_percent(-0.331)
        '−33.1%'
    """
    return f"{share:+.1%}".replace("-", "−")


def ratio_text(ratio: float) -> str:
    """Return how many times as much something is; a division where that is hardly anything.

    Example:
        >>> ratio_text(1.5), ratio_text(1323.21), ratio_text(0.0021), ratio_text(0.0)
        ('×1.50', '×1,323', '÷476', '×0.00')
    """
    if 0 < ratio < 0.095:
        return f"÷{_digits(1 / ratio)}"
    return f"×{ratio:,.0f}" if ratio >= 99.95 else f"×{ratio:.2f}"


def figure_text(value: str | float | None, unit: Unit) -> str:
    """Return a figure of a table; "" for an unknown one.

    Example:
        >>> figure_text(0.5, "fraction"), figure_text(12.345, "number"), figure_text(None, "bytes")
        ('50%', '12.3', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    if unit == "seconds":
        return seconds_text(value)
    if unit == "bytes":
        return bytes_text(value)
    if unit == "fraction":
        return percent(value)
    if unit == "ratio":
        return ratio_text(value)
    return f"{value:g}" if unit == "count" else _digits(value)


def time_ticks(high: float, most: int = 10) -> list[tuple[float, str]]:
    """Return round times from 0 to `high` seconds with their labels, all in one unit.

    Example:
        >>> time_ticks(0.0031, 4)
        [(0.0, '0'), (0.001, '1 ms'), (0.002, '2 ms'), (0.003, '3 ms')]
    """
    size, unit = next((t for t in _TIMES if high >= t[0] * 0.9995), _TIMES[-1])
    marks = round_steps(high / size, most)
    return [(mark * size, f"{mark:g} {unit}" if mark else "0") for mark in marks]


def size_ticks(high: float, most: int = 6) -> list[tuple[float, str]]:
    """Return sizes from 0 to `high` bytes with their labels, all in one unit.

    Example:
        >>> size_ticks(5000)
        [(0.0, '0'), (1024.0, '1 KiB'), (2048.0, '2 KiB'), (3072.0, '3 KiB'), (4096.0, '4 KiB')]
    """
    factor, unit = next((s for s in _SIZES if high >= s[0]), _SIZES[-1])
    step = 1.0
    while high / factor / step > most:
        step *= 2
    marks = [step * k for k in range(int(high / factor / step) + 1)]
    return [(mark * factor, f"{mark:g} {unit}" if mark else "0") for mark in marks]


def round_steps(high: float, most: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten from 0 to `high`, at most `most` + 1.

    Example:
        >>> round_steps(7.3, 4)
        [0.0, 2.0, 4.0, 6.0]
    """
    if high <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(high / most))
    step = next(power * k for k in (1, 2, 5, 10, 20) if high / (power * k) <= most)
    return [round(k * step, 12) for k in range(int(high / step + 1e-9) + 1)]
