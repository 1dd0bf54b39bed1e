"""How the pages are built: `pip install '.[docs]' && sphinx-build -W docs docs/_build`."""

import re
import shutil
from pathlib import Path

import matplotlib as mpl
from docutils.nodes import container
from matplotlib.figure import Figure
from sphinx.addnodes import pending_xref
from sphinx_gallery.directives import imgsgnode
from sphinx_gallery.scrapers import figure_rst, matplotlib_scraper

from diht import __version__
from diht.report.plots import COLOURS, FAINT, INK

project = "diht"
author = "The diht developers"
copyright = "The diht developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "examples/*.py", "examples/*.ipynb", "examples/*.json"]
suppress_warnings = ["config.cache"]  # a scraper is a function

html_theme = "pydata_sphinx_theme"
html_title = "diht"
html_static_path = ["_static"]
html_css_files = ["diht.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_context = {"default_mode": "auto"}
html_sidebars = {"examples/**": [], "guide": [], "evidence": [], "project": []}

myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "code"  # what docstrings and examples put in single backquotes
autodoc_typehints = "none"  # the docstrings have them
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
add_function_parentheses = False
autosummary_generate = True
napoleon_use_rtype = False

mpl.use("agg")


def _drawn(block, variables, conf):
    """Show a figure that a block has made without pyplot and keeps as `figure`."""
    figure = variables["example_globals"].pop("figure", None)
    if not isinstance(figure, Figure):
        return ""
    path = next(variables["image_path_iterator"])
    figure.savefig(path, dpi=100)
    return figure_rst([path], conf["src_dir"])


def _style(conf, name):
    """Draw the figures of examples as the package draws its own."""
    mpl.rcParams.update({
        "axes.prop_cycle": mpl.cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False,
        "axes.edgecolor": FAINT, "axes.grid": True, "axes.axisbelow": True, "grid.color": "#ececec",
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "font.size": 9.5, "legend.frameon": False,
    })  # fmt: skip


sphinx_gallery_conf = {
    "reset_modules": ("matplotlib", _style),
    "image_scrapers": (matplotlib_scraper, _drawn),
    "write_computation_times": False,
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
}

_SCIKIT_LEARNS = (
    "set_fit_request",
    "set_predict_request",
    "set_score_request",
    "get_metadata_routing",
    "set_callbacks",
    "set_output",
)


def _skip(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator, and attributes that the class tells of itself."""
    return skip or name in (*_SCIKIT_LEARNS, "mu", "smoothness", "pieces", "dual_coef_")


def _plain(app, what, name, obj, options, lines):
    """Leave out links into scikit-learn's own pages, in what is inherited from it."""
    lines[:] = [re.sub(r":ref:`([^<`]+?)\s*(?:<[^>`]*>)?`", r"\1", line) for line in lines]


def _formulas(app, what, name, obj, options, lines):
    """Show the formulas of a loss, the paragraph after its first line, as they are written."""
    if what == "class" and name.startswith("diht.losses.") and any(" = " in line for line in lines[2:4]):
        end = lines.index("", 2) if "" in lines[2:] else len(lines)
        lines[2:end] = [".. code-block:: text", "", *(f"    {line}" for line in lines[2:end])]


def _links(app, doctree):
    """Keep links to classes; other words of types, such as n_samples, would lead to whatever attribute has that name."""
    for link in list(doctree.findall(pending_xref)):
        wanted = link.get("reftarget", "").split(".")[-1]
        if link.get("refdomain") == "py" and link.get("reftype") == "class" and not wanted[:1].isupper():
            link.replace_self(link.children)


def _boxes(app, doctree):
    """Put the figures of examples in boxes, which scroll on a phone."""
    for image in list(doctree.findall(imgsgnode)):
        box = container(classes=["example-figure"])
        image.replace_self(box)
        box += image


_AS_THEY_ARE = ("peers.csv", "reproduction/page.html", "reproduction/results.csv")


def _copied(app, exception):
    """Put files that pages link to beside them."""
    if exception is None:
        for name in _AS_THEY_ARE:
            target = Path(app.outdir) / name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(Path(app.srcdir) / name, target)


def setup(app):
    """Connect the above."""
    app.connect("build-finished", _copied)
    app.connect("doctree-read", _links)
    app.connect("doctree-read", _boxes)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _formulas, priority=400)
    app.connect("autodoc-process-docstring", _plain, priority=400)
