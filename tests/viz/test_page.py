"""The file of a page: complete, small, and safe with any names in it."""

import json
import re
import subprocess
import tomllib
import zlib
from base64 import b64decode
from pathlib import Path

import pytest
from dpexec.viz.pages.page import in_notebook, page

from tests.viz.test_packing import unpacked

ROOT = Path(__file__).parents[2]
WEB = ROOT / "viz" / "web"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><title>x</title></svg>'


class Shown:
    def __init__(self, title="A view", notes=()):
        self.title, self.notes = title, notes
        self.svg = SVG

    def payload(self):
        return {"type": "text", "title": self.title, "notes": list(self.notes), "sections": []}


def data(html):
    kind, text = re.search(r'<script type="([^"]+)" id="data">(.*?)</script>', html, re.S).groups()
    if kind == "application/json":
        return json.loads(text)
    return unpacked(json.loads(zlib.decompress(b64decode(text))))


@pytest.mark.parametrize("length", [1, 100_000])
def test_a_page_carries_its_data(length):
    note = "</script><b>&amp;" * length
    html = page("Title <b>", [Shown(notes=[note])])
    assert data(html)["views"][0]["notes"] == [note]
    assert len(html) < 200_000
    assert "<title>Title &lt;b&gt;</title>" in html


def test_a_page_shows_its_pictures_without_scripts():
    html = page("Both", [Shown("One"), Shown("Two")])
    plain = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert plain.count(SVG) == 2
    assert plain.index('aria-label="One"') < plain.index('aria-label="Two"')


def test_a_page_allows_no_request():
    html = page("x", [Shown()])
    assert "default-src 'none'" in html
    assert not re.search(r"""(src|href)=["']?https?:""", html)


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        page("x", [Shown(notes=[float("nan")])])


def test_a_notebook_frame_is_sealed():
    html = in_notebook(page("x", [Shown()]), SVG, 'A "quoted" title')
    assert html.count("<iframe") == 1 and 'title="A &quot;quoted&quot; title"' in html
    assert "allow-same-origin" not in html


def test_the_bundle_is_in_the_wheel():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["setuptools"]["package-data"]["dpexec.viz"] == ["static/*"]
    assert {path.name for path in (ROOT / "viz" / "static").iterdir()} >= {"page.js", "page.css"}


def test_the_bundle_is_built_from_its_source(tmp_path):
    esbuild = WEB / "node_modules" / ".bin" / "esbuild"
    if not esbuild.exists():
        pytest.skip("esbuild is not installed; `make page` installs it")
    command = json.loads((WEB / "package.json").read_text())["scripts"]["bundle"].split()[1:]
    command = [part for part in command if not part.startswith("--outdir")]
    subprocess.run(
        [esbuild, *command, f"--outdir={tmp_path}", "--log-level=error"], cwd=WEB, check=True
    )
    for name in ("page.js", "page.css"):
        assert (tmp_path / name).read_text() == (ROOT / "viz" / "static" / name).read_text()
