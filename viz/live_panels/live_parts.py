"""Pieces that the panels of the live view are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from dpexec.viz.pages.style import DARK, LIGHT, ROLE_NAMES

__all__ = ["CHARACTER", "css", "filled", "fit", "framed", "more", "number", "rect", "svg"]

CHARACTER = 6.3
"""Width of a character at 11 px."""

_PAGES = {
    "light": {"page": "#ffffff", "panel": "#f4f6f8", "text": "#1b2530", "faint": "#55626e"},
    "dark": {"page": "#14191f", "panel": "#1c232b", "text": "#e7edf3", "faint": "#a3b0bd"},
}
_PATTERNS = {
    "backward": '<path d="M0 8L8 0M-2 2L2 -2M6 10L10 6"/>',
    "collective": '<path d="M0 0L8 8M8 0L0 8"/>',
    "optimize": '<path d="M0 4H8"/>',
    "lr_sched": '<path d="M4 0V8"/>',
}


def css() -> str:
    """Return the style sheet of the panels; every rule stays inside `.dpl`."""

    def names(theme: str) -> str:
        colours = {"light": LIGHT, "dark": DARK}[theme]
        page = [f"--{name}: {value};" for name, value in _PAGES[theme].items()]
        roles = [f"--{r}: {line}; --{r}-fill: {fill};" for r, (line, fill) in colours.items()]
        return " ".join([*page, *roles])

    rules = [
        f".dpl {{ {names('light')} color: var(--text); line-height: 1.4;",
        "font-family: system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif; }",
        f"@media (prefers-color-scheme: dark) {{ .dpl {{ {names('dark')} }} }}",
        f"body[data-jp-theme-light='true'] .dpl {{ {names('light')} }}",
        f"body[data-jp-theme-light='false'] .dpl {{ {names('dark')} }}",
        ".dpl h3 { font-size: 14px; font-weight: 600; margin: 0 0 4px; }",
        ".dpl .note { color: var(--faint); font-size: 12px; margin: 2px 0; }",
        ".dpl svg { display: block; height: auto; max-width: 100%; }",
        ".dpl svg text { fill: var(--text); font-size: 11px; }",
        ".dpl svg .faint { fill: var(--faint); }",
        ".dpl svg .strong { font-size: 12px; font-weight: 600; }",
        ".dpl svg .middle { text-anchor: middle; } .dpl svg .end { text-anchor: end; }",
        ".dpl .panel { fill: var(--panel); } .dpl .rule { stroke: var(--faint); opacity: 0.35; }",
        ".dpl .halo { paint-order: stroke; stroke: var(--panel); stroke-width: 3px; }",
        ".dpl .curve { fill: none; stroke: var(--forward); stroke-width: 1.8; }",
        ".dpl .meter { fill: var(--forward); }",
        ".dpl .waiting { opacity: 0.45; } .dpl .slow .edge { stroke-width: 3.5; }",
        ".dpl .running .edge { stroke-width: 3; stroke-dasharray: 7 4; }",
        ".dpl .edge { fill: none; stroke-width: 1.3; }",
        ".dpl .tiles { display: flex; flex-wrap: wrap; gap: 8px 28px; margin: 0; }",
        ".dpl-ended .dpl .tiles .state { display: none; }",  # it was that of the latest report
        # Notebooks have rules of their own for lists.
        ".dpl .tiles dt, .dpl .tiles dd { float: none; width: auto; margin: 0; padding: 0; }",
        ".dpl .tiles dt { color: var(--faint); font-size: 12px; font-weight: 400; }",
        ".dpl .tiles dd { font-size: 20px; font-weight: 600; }",
    ]
    for role in ROLE_NAMES:
        rules.append(f".dpl .{role} {{ fill: var(--{role}-fill); }}")
        rules.append(f".dpl .{role}-hatch {{ stroke: var(--{role}); stroke-width: 0.9; }}")
        rules.append(f".dpl .{role}-edge {{ stroke: var(--{role}); }}")
    return "\n".join(rules)


def svg(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """Return a picture; on narrow screens it shrinks."""
    hatches = "".join(
        f'<pattern id="dpl-{role}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<g class="{role}-hatch" fill="none" opacity="0.55">{drawing}</g></pattern>'
        for role, drawing in _PATTERNS.items()
    )
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}"><defs>{hatches}</defs>{"".join(parts)}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle of a class of the style sheet."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
        f'height="{height:.1f}" rx="3"/>'
    )


def filled(x: float, y: float, width: float, height: float, role: str) -> str:
    """Return a rectangle in the colour and the pattern of a role."""
    place = f'x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"'
    hatch = f'<rect {place} fill="url(#dpl-{role})"/>' if role in _PATTERNS else ""
    return f'<rect class="{role}" {place}/>{hatch}'


def framed(x: float, y: float, width: float, height: float, roles: Mapping[str, int]) -> str:
    """Return a rectangle that is divided among roles, with the frame of the last one.

    Args:
        x: of the left side.
        y: of the upper side.
        width: in pixels.
        height: in pixels.
        roles: the roles, and the number of operators of each.
    """
    fills, at, whole = "", x, sum(roles.values())
    for role, count in roles.items():
        fills += filled(at, y, width * count / whole, height, role)
        at += width * count / whole
    return fills + (
        f'<rect class="edge {[*roles][-1]}-edge" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" '
        f'height="{height:.1f}" rx="{3 if width > 12 else 0}"/>'
    )


def fit(text: str, width: float, least: int = 1) -> str:
    """Cut a text to a width; "" if less than `least` characters would remain.

    Example:
        >>> fit("elementwise_add", 70), fit("elementwise_add", 20, least=3)
        ('elementwis…', '')
    """
    room = int(width / CHARACTER)
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room > least else ""


def more(count: int, one: str, many: str) -> str:
    """Return a sentence with the number of things that are not shown; "" for 0.

    Example:
        >>> more(2, "device is not drawn", "devices are not drawn"), more(0, "", "")
        ('2 devices are not drawn.', '')
    """
    return "" if count <= 0 else f"{count:,} {one if count == 1 else many}."


def number(value: float) -> str:
    """Return a number with four significant digits.

    Example:
        >>> number(0.123456), number(123456), number(float("nan"))
        ('0.1235', '123,456', '–')
    """
    if value != value:
        return "–"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
