"""Sphinx configuration."""

import sklearn_clue

project = "sklearn_clue"
copyright = "the sklearn_clue developers"
version = release = sklearn_clue.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
]
autosummary_generate = True
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
default_role = "literal"
exclude_patterns = ["_build", "results", "whats_new"]
html_theme = "pydata_sphinx_theme"
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
}
