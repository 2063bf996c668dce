"""The site of ``make docs``, as far as it can be checked without Sphinx.

The build itself takes minutes (``.github/workflows/tests.yml``). ``tests/site_references.py`` looks
for the references that would make it fail, in seconds.
"""

import doctest
import enum
import importlib
import importlib.util
import inspect
import json
import re
import sys
import typing
from types import ModuleType

import pytest
import yaml

import dpexec as fluid
from dpexec.cli import _parser
from dpexec.commands.paddle_alias import paddle_is_dpexec
from tests import reference
from tests.guides import BUILT, GUIDES, ROOT, programs

DOCS = ROOT / "docs"
PAGES = [path for path in GUIDES if path.is_relative_to(DOCS)]


def extension(name):
    """A file of ``docs/_ext``."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


public_names = extension("public_names")
extension("meanings")
families = extension("families")
links = extension("repository_links")
site_references = importlib.import_module("tests.site_references")  # it uses both


@pytest.fixture(scope="module")
def names():
    return public_names.names()


def test_every_name_of_paddle_has_a_page(names):
    described = {public_names.identity(name.value) for name in names} - {None}
    values = {id(name.value) for name in names}
    wanted = json.loads((ROOT / "tests" / "fixtures" / "public_names.json").read_text())
    without = []
    with paddle_is_dpexec():
        for place, members in wanted.items():
            try:
                module = importlib.import_module(place)
            except ModuleNotFoundError:
                continue  # not here: tests/test_public_names.py
            for member in members:
                value = getattr(module, member, None)
                known = id(value) in values or public_names.identity(value) in described
                if not (value is None or isinstance(value, ModuleType) or known):
                    without.append(f"{place}.{member}")
    assert without == []


def test_every_page_of_a_name_is_one_file(names):
    pages = [public_names.page_of(name.home) for name in names if name.home == name.full]
    assert len({page.lower() for page in pages}) == len(pages) > 800
    assert {name.home for name in names} == {name.full for name in names if name.home == name.full}


def test_every_name_says_what_it_is(names):
    own = [name for name in names if name.home == name.full and public_names.identity(name.value)]
    assert [name.full for name in own if not (name.value.__doc__ or "").strip()] == []
    texts = {name.name: public_names.text(name) for name in names if name.module == "dpexec.extend"}
    assert [name for name, text in texts.items() if not text or "annotated type" in text] == []
    assert texts["Floats"] == "The address of float32 numbers."


def test_every_example_of_a_public_name_is_run(names):
    """By pytest, which collects doctests of modules: of what a decorator hides it finds none."""
    own = [name.value for name in names if public_names.identity(name.value)]
    found = {}
    without = []
    for value in {id(value): value for value in own}.values():
        members = vars(value).values() if inspect.isclass(value) else ()
        for described in (value, *members):
            function = getattr(described, "fget", None) or getattr(described, "__func__", described)
            written_here = inspect.isfunction(function) or inspect.isclass(function)
            if not written_here or ">>>" not in (function.__doc__ or ""):
                continue
            place = function.__module__
            if place not in found:
                tests = doctest.DocTestFinder().find(importlib.import_module(place))
                found[place] = {test.name for test in tests}
            if f"{place}.{function.__qualname__}" not in found[place]:
                without.append(f"{place}.{function.__qualname__}")
    assert without == [] and len(found) > 20


def shows_an_example(value):
    """Whether a name, or a method of it, has one."""
    described = [value, *(vars(value).values() if inspect.isclass(value) else ())]
    functions = [getattr(each, "fget", getattr(each, "__func__", each)) for each in described]
    return any(">>>" in (getattr(each, "__doc__", None) or "") for each in functions)


def test_every_public_name_has_an_example(names):
    own = [name for name in names if name.home == name.full and public_names.identity(name.value)]
    assert [name.full for name in own if not shows_an_example(name.value)] == []


def undescribed(value):
    """The parts of a call of which the documentation says nothing."""
    text = inspect.getdoc(value) or ""
    described = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    words = re.findall(r"^    ([\w*, ]+): ", "".join(described), re.MULTILINE)
    known = {word.strip("* ") for some in words for word in some.split(",")}
    signature = inspect.signature(value)
    if "Args: as " not in text and value is not fluid.extend.OpDef:  # whose facts are elsewhere
        yield from (name for name in signature.parameters if name.strip("_") not in {*known, ""})
    silent = (None, "None", "NoReturn", inspect.Signature.empty)
    says = re.search("^(Returns|Yields):", text, re.MULTILINE)
    if signature.return_annotation not in silent and not says:
        yield "returns"


class Undescribed:
    """Says little.

    Args:
        x: is described.
    """

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


def test_arguments_and_results_that_are_not_described_are_found():
    assert list(undescribed(Undescribed)) == ["y"]
    assert list(undescribed(shows_an_example)) == ["value"]
    assert list(undescribed(re.escape)) == ["pattern"]


def test_every_argument_and_result_is_described(names):
    without = {}
    for name in names:
        value = name.value
        if name.home != name.full or not getattr(value, "__module__", "").startswith("dpexec"):
            continue
        if inspect.isclass(value):  # of these, nobody calls enumerations, protocols and errors
            never = isinstance(value, enum.EnumType | typing._ProtocolMeta)
            if never or issubclass(value, BaseException):
                continue
        if callable(value) and (found := list(undescribed(value))):
            without[name.full] = found
    assert without == {}


def test_every_public_name_has_neighbours(names):
    homes = {name.full: name for name in names if name.home == name.full}
    listed = {full for family in families.FAMILIES for full in family.full_names()}
    assert sorted(listed - set(homes)) == []
    without = [
        full
        for full, name in homes.items()
        if "See Also:" not in public_names.text(name) and not families.neighbours(full)
    ]
    assert without == []


def test_the_nearest_neighbours_come_first():
    found = families.neighbours("dpexec.layers.relu6")
    assert set(found[:2]) == {"dpexec.layers.relu", "dpexec.layers.brelu"} and len(found) == 6


def test_every_reference_of_a_public_name_leads_somewhere(names):
    own = [name for name in names if name.home == name.full and public_names.identity(name.value)]
    assert [found for name in own for found in site_references.lost(name)] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_anchor_and_role_of_a_page_leads_somewhere(page):
    assert list(site_references.lost_in_page(page)) == []


class Misled:
    """Uses :class:`Nothing`, and ``a literal."""

    def fit(self):
        """Fit; as :meth:`fit` and :func:`fluid.layers.fc`.

        Raises:
            ValueError: never.
            UnheardOfError: never.
        """


def test_references_that_lead_nowhere_are_found(tmp_path):
    found = list(site_references.lost(public_names.Name(__name__, "Misled", Misled, "Misled")))
    assert [line.partition(": ")[2].partition(":")[0] for line in found] == [
        "Nothing",
        "a literal that does not end",
        "UnheardOfError",
    ]
    page = tmp_path / "page.md"
    page.write_text("# A `title`\n[here](#a-title) [there](#another) {py:func}`nothing.at.all`\n")
    assert list(site_references.lost_in_page(page)) == [
        "page.md: nothing.at.all",
        "page.md: #another",
    ]


def test_every_page_is_in_a_table_of_contents():
    listed = {"index.md", *(f"{folder}/index.md" for folder in BUILT)}
    for page in PAGES:
        trees = re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for line in "\n".join(trees).splitlines():
            if line and not line.startswith(":"):
                place = (page.parent / line).resolve().relative_to(DOCS)
                assert place.parts[0] in BUILT or (DOCS / f"{place}.md").exists(), (page, line)
                listed.add(f"{place}.md")
    assert {str(page.relative_to(DOCS)) for page in PAGES} - listed == set()


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("viz.md", "[a](../notebooks/01_quickstart.ipynb)", "[a](notebooks/01_quickstart.ipynb)"),
        ("tutorial/x.md", "[a](../viz.md#top)", "[a](../viz.md#top)"),
        ("project/contributing.md", "[a](docs/viz.md)", "[a](../viz.md)"),
        ("project/contributing.md", "[a](CHANGELOG.md)", "[a](changelog.md)"),
        ("viz.md", "[a](../dpexec/layers/__init__.py)", "[a](api/dpexec.layers.rst)"),
        ("viz.md", "[a](../Makefile)", "a (`Makefile`)"),
        ("viz.md", "[a](https://dask.org) [b](#b)", "[a](https://dask.org) [b](#b)"),
    ],
)
def test_links_of_files_become_links_of_pages(page, written, shown):
    assert links.relink(page, written) == shown


def test_nothing_is_loaded_from_a_network_when_the_site_is_built():
    text = (DOCS / "conf.py").read_text(encoding="utf-8")
    for name in re.findall(r'^    "(\w+)": "https:', text, re.MULTILINE):
        lines = (DOCS / "_inventories" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert lines[0] == "# Sphinx inventory version 1" and len(lines) > 3


@pytest.mark.parametrize("strategy", [fluid.BuildStrategy, fluid.ExecutionStrategy])
def test_every_field_of_a_strategy_has_its_row(strategy):
    lines = (DOCS / "reference" / "strategies.md").read_text(encoding="utf-8").splitlines()
    rows = [row for _, row, _ in reference.strategy_cells(strategy)]
    assert [row for row in rows if not any(line.startswith(row) for line in lines)] == []
    assert len(rows) > 10


def test_the_program_of_the_strategies_runs():
    names = {}
    (program,) = programs("docs/reference/strategies.md")
    exec(program, names)
    assert names["execution"].num_iteration_per_run == 10


def test_every_flag_has_its_row_in_its_table():
    text = (DOCS / "reference" / "flags.md").read_text(encoding="utf-8")
    heeded, ignored = text.split("## Without effect")
    for name, row, effective in reference.flag_cells():
        assert f"\n{row}" in (heeded if effective else ignored), name


def test_every_command_has_its_help():
    text = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\{command-help\} (\w+)$", text, re.MULTILINE)
    (parser,) = (action for action in _parser()._actions if action.choices)
    assert sorted(shown) == sorted(parser.choices)


@pytest.mark.parametrize(
    "path",
    [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml"],
    ids=lambda p: p.name,
)
def test_what_workflows_and_hooks_call_is_there(path):
    text = path.read_text(encoding="utf-8")
    assert isinstance(yaml.safe_load(text), dict)
    targets = re.findall(r"^([\w.$()/%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = re.findall(r"(?:run|&&): make (\w+) ", text)
    assert set(called) <= set(targets)
    assert [
        name for name in re.findall(r"tests/[\w/]+\.py", text) if not (ROOT / name).exists()
    ] == []
