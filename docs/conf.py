"""How Sphinx builds the site: ``make docs``."""

import sys
from pathlib import Path

import dpexec

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "dpexec"
author = "the dpexec authors"
version = release = dpexec.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "api_pages",
    "reference_pages",
    "repository_links",
]
exclude_patterns = ["_build", "_inventories", "_templates"]
nitpicky = True
nitpick_ignore = [
    ("py:class", "graphviz.graphs.Digraph"),  # its site has no such page
    ("py:class", "pd.DataFrame"),  # pandas, scikit-learn, onnx are optional: no names of them below
    ("py:class", "onnx.onnx_ml_pb2.ModelProto"),
    ("py:exc", "NotFittedError"),
    ("py:class", "sklearn.base.ClassifierMixin"),
    ("py:class", "sklearn.base.RegressorMixin"),
]

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries = False
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

nb_execution_mode = "off"  # `make notebooks` executes and stores them
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # they would come from a network
nb_render_markdown_format = "myst"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

# The names that texts link to, as files: nothing is loaded when the site is built.
_elsewhere = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "dask": "https://docs.dask.org/en/stable/",
    "distributed": "https://distributed.dask.org/en/stable/",
}
intersphinx_mapping = {
    name: (address, f"_inventories/{name}.txt") for name, address in _elsewhere.items()
}

html_theme = "pydata_sphinx_theme"
html_title = "dpexec"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": {  # tables of five columns need the room
        "**": ["page-toc"],
        "reference/strategies": [],
        "compared": [],
        "differences": [],
    },
    "collapse_navigation": True,
    "show_prev_next": False,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",  # all on one line beside the search
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"api/*": ["api-names"], "api/index": ["sidebar-nav-bs"], "index": []}
