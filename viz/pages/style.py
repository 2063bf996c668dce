"""Colours and typefaces of the pictures, for any colour vision, light and dark."""

from __future__ import annotations

ROLE_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "collective": "collective",
    "optimize": "update",
    "lr_sched": "learning rate",
    "feed": "feed",
    "fetch": "fetch",
    "failure": "failed",
}

SIGNS = {
    "forward": "▸",
    "backward": "◂",
    "collective": "⇄",
    "optimize": "✚",
    "lr_sched": "η",
    "feed": "↧",
    "fetch": "↥",
    "failure": "✗",
}
"""Signs that distinguish roles without colours."""

# Line colours are those of Okabe and Ito (jfly.uni-koeln.de/color), fills are tints and shades.
LIGHT = {
    "forward": ("#0072b2", "#dcedf7"),
    "backward": ("#b87a00", "#fbedcf"),
    "collective": ("#a62b00", "#fbdfcf"),
    "optimize": ("#006b4f", "#d5f0e6"),
    "lr_sched": ("#a3507e", "#f6e3ee"),
    "feed": ("#4d5a66", "#e2e7ec"),
    "fetch": ("#756a00", "#f3f0c4"),
    "failure": ("#b00020", "#ffd6dd"),
}
DARK = {
    "forward": ("#56b4e9", "#12324a"),
    "backward": ("#e69f00", "#43320c"),
    "collective": ("#ff8a4c", "#4a2412"),
    "optimize": ("#2fc89b", "#0f3b30"),
    "lr_sched": ("#e08fbd", "#45233a"),
    "feed": ("#a9b5c0", "#2c363f"),
    "fetch": ("#f0e442", "#3b3808"),
    "failure": ("#ff6b6b", "#6b1218"),
}
LIGHT_PAGE = {"page": "#ffffff", "lane": "#f4f6f8", "text": "#1b2530", "faint": "#54616d"}
DARK_PAGE = {"page": "#14191f", "lane": "#1c232b", "text": "#e7edf3", "faint": "#9aa7b4"}
_MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"


def _colours(page: dict[str, str], roles: dict[str, tuple[str, str]]) -> list[str]:
    text, faint = page["text"], page["faint"]
    rules = [
        f".dpx .page {{ fill: {page['page']}; }}",
        f".dpx .lane {{ fill: {page['lane']}; }}",
        f".dpx text {{ fill: {text}; }}",
        f".dpx .faint, .dpx .detail {{ fill: {faint}; }}",
        f".dpx .line, .dpx .frame {{ stroke: {faint}; }}",
        f".dpx .head {{ fill: {faint}; }}",
    ]
    for role, (line, fill) in roles.items():
        rules.append(f".dpx .{role} rect {{ stroke: {line}; fill: {fill}; }}")
        rules.append(f".dpx .{role} .bus {{ stroke: {line}; }}")
        rules.append(f".dpx .{role} .dot, .dpx .{role} .sign {{ fill: {line}; }}")
    return rules


def css() -> str:
    """Return the style sheet of a picture; every rule stays inside `.dpx`."""
    rules = [
        f".dpx text {{ font-family: {_MONO}; font-size: 12px; }}",
        f".dpx .title {{ font-family: {_SANS}; font-size: 16px; font-weight: 600; }}",
        f".dpx .faint {{ font-family: {_SANS}; font-size: 12px; }}",
        f".dpx .lane-name {{ font-family: {_SANS}; font-size: 13px; font-weight: 600; }}",
        ".dpx .detail { font-size: 10px; }",
        ".dpx .sign { font-size: 12px; text-anchor: middle; }",
        ".dpx .middle { text-anchor: middle; }",
        ".dpx rect { stroke-width: 1.4; }",
        ".dpx .page, .dpx .lane { stroke: none; }",
        ".dpx .line { fill: none; stroke-width: 1.1; }",
        ".dpx .far { opacity: 0.35; stroke-width: 0.7; }",
        ".dpx .across { stroke-dasharray: 4 3; }",
        ".dpx path.gone { stroke-width: 1; }",
        ".dpx .frame { fill: none; stroke-dasharray: 2 3; }",
        ".dpx .bus { fill: none; stroke-width: 2; }",
        *_colours(LIGHT_PAGE, LIGHT),
        "@media (prefers-color-scheme: dark) {",
        *_colours(DARK_PAGE, DARK),
        "}",
    ]
    return "\n".join(rules)
