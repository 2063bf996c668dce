"""Colours: readable on light and dark pages, and distinct for any colour vision."""

from itertools import combinations

import pytest
from dpexec.viz.pages import looks, style
from dpexec.viz.pages.looks import LOOKS
from dpexec.viz.pages.words import PARTS

# Machado, Oliveira, Fernandes (2009): colours as people without one kind of cones see them
DEFICIENCIES = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
               (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
THEMES = {
    "light": (style.LIGHT, style.LIGHT_PAGE),
    "dark": (style.DARK, style.DARK_PAGE),
}


def linear(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(one, other):
    """Contrast ratio of WCAG 2."""
    lights = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))]
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def lab(rgb):
    x = (0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.9505
    y = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]
    z = (0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.089
    f = [max(v, 0.0) ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def distance(one, other, matrix=None):
    """CIE76 difference of two colours, as somebody with a deficiency sees them."""
    found = []
    for colour in (one, other):
        rgb = linear(colour)
        if matrix is not None:
            rgb = [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in matrix]
        found.append(lab(rgb))
    return sum((a - b) ** 2 for a, b in zip(*found, strict=True)) ** 0.5


@pytest.mark.parametrize("theme", THEMES)
def test_texts_and_lines_stand_out(theme):
    roles, page = THEMES[theme]
    grounds = [page["page"], page["lane"]]
    for ground in [*grounds, *(fill for _, fill in roles.values())]:
        assert contrast(page["text"], ground) >= 7
        assert contrast(page["faint"], ground) >= 4.5
    for role, (line, fill) in roles.items():
        for ground in (*grounds, fill):
            assert contrast(line, ground) >= 3, role


@pytest.mark.parametrize("eyes", [None, *DEFICIENCIES])
@pytest.mark.parametrize("theme", THEMES)
def test_the_roles_of_a_graph_differ_for_all_eyes(theme, eyes):
    roles, _ = THEMES[theme]
    shown = ("forward", "backward", "collective", "optimize", "lr_sched")
    for one, other in combinations(shown, 2):
        difference = distance(roles[one][0], roles[other][0], DEFICIENCIES.get(eyes))
        assert difference > 11, (one, other, difference)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_parts_of_time_are_told_apart_in_grey(theme):
    for bar in (list(PARTS), ["half", "none"]):
        for one, other in combinations([LOOKS[name] for name in bar], 2):
            lightness = [lab(linear(getattr(look, theme)))[0] for look in (one, other)]
            apart = abs(lightness[0] - lightness[1]) > 15
            assert apart or one.pattern != other.pattern, (one, other)


def test_a_meaning_looks_the_same_in_page_and_picture():
    page, picture = looks.page_rules(), "".join(looks.picture_rules(dark=False))
    for name, look in LOOKS.items():
        assert f".is-{name}{{--part:{look.light};" in page
        assert f"rect.back-{name} {{ fill: {look.light};" in picture
        assert f'id="dpx-is-{name}"' in looks.patterns()


def test_every_role_has_a_sign_of_its_own():
    assert list(style.SIGNS) == list(style.ROLE_NAMES)
    assert len(set(style.SIGNS.values())) == len(style.SIGNS)
    for roles, _ in THEMES.values():
        assert list(roles) == list(style.ROLE_NAMES)
