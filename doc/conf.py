"""Sphinx configuration. Builds without a network and without warnings:

python -m sphinx -W --keep-going -b html doc doc/_build/html

`-D plot_gallery=0` leaves the examples unexecuted.
"""

import os
import pydoc
import re

from docutils import nodes
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sphinx_gallery.sorting import ExplicitOrder

import sklearn_clue
from sklearn_clue import _validation

os.environ.setdefault("TQDM_DISABLE", "1")
# Estimators shown in the gallery link to their pages in this very build.
_validation.documentation_address = lambda: "../.."

project = "sklearn_clue"
copyright = "the sklearn_clue developers"
version = release = sklearn_clue.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "results", "whats_new"]
default_role = "literal"
# Every name that a docstring or a page refers to must exist.
nitpicky = True

autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False  # the template of a class does

plot_include_source = False
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 130)]

sphinx_gallery_conf = {
    # Benchmarks have no header, so they are not in the gallery.
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "subsection_order": [
        f"../examples/{room}" for room in ("quickstart", "advanced", "paper")
    ],
    "within_subsection_order": ExplicitOrder(
        [
            "plot_random_forest.py",
            "plot_one_minute_clue.py",
            "plot_lightgbm.py",
            "plot_any_regressor.py",
            "plot_pipeline_mixed_frame.py",
            "*",
        ]
    ),
    # The paper's room holds commands, too, which print tables.
    "ignore_pattern": r"^(?!plot_)",
    # All of them are executed: none needs what is not installed, or a download.
    "filename_pattern": r"/plot_",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklearn_clue",),
    "reference_url": {"sklearn_clue": None},
    "abort_on_example_error": False,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "matplotlib_animations": False,
    "copyfile_regex": "",
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["sklearn_clue.css"]
html_title = f"sklearn_clue {version}"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sklearn_clue"},
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "collapse_navigation": True,
}
html_sidebars = {"api": [], "developers": [], "generated/*": []}

# Where other projects keep the page of a name. Intersphinx would fetch their
# inventories over the network at each build.
_PAGES = {
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{page}.html",
    "matplotlib": "https://matplotlib.org/stable/api/_as_gen/{page}.html",
    "pandas": "https://pandas.pydata.org/docs/reference/api/{page}.html",
}
# What the docstrings of inherited methods refer to.
_LABELS = {
    "accuracy_score": "modules/model_evaluation.html#accuracy-score",
    "df_output_transform": "modules/df_output_transform.html",
    "meta-estimator": "glossary.html#term-meta-estimator",
    "metadata_routing": "metadata_routing.html",
    "r2_score": "modules/model_evaluation.html#r2-score",
    "sphx_glr_auto_examples_miscellaneous_plot_set_output.py": (
        "auto_examples/miscellaneous/plot_set_output.html"
    ),
}


def _link_elsewhere(app, env, node, contnode):
    """Link to a name of another project, if it exists in the installed version."""
    target = node.get("reftarget", "")
    if node.get("reftype") in {"ref", "term"} and target in _LABELS:
        link = f"https://scikit-learn.org/stable/{_LABELS[target]}"
        return nodes.reference("", "", contnode, refuri=link, internal=False)
    pattern = _PAGES.get(target.partition(".")[0])
    if pattern is None or pydoc.locate(target) is None:
        return None
    is_member = node.get("reftype") in {"meth", "attr"}
    page = target.rpartition(".")[0] if is_member else target
    link = pattern.format(page=page)
    return nodes.reference("", "", contnode, refuri=link, internal=False)


def _as_rst(app, relative_path, parent, content):
    """Read the headings and links of the changelog, which is Markdown."""
    if relative_path.name == "CHANGELOG.md":
        text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", content[0])
        for mark, line in {"# ": "=", "## ": "-"}.items():
            text = re.sub(
                rf"^{mark}(.*)$",
                lambda found, line=line: f"{found[1]}\n{line * len(found[1])}",
                text,
                flags=re.M,
            )
        content[0] = text


def setup(app):
    app.connect("missing-reference", _link_elsewhere)
    app.connect("include-read", _as_rst)
