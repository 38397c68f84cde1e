"""The documentation: `make docs` builds it from the pages here and the docstrings.

Formulas become MathML here, by docutils, so that the pages need no script from elsewhere to be read.
"""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from gpcde import __version__

project = "gpcde"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = "gpcde"
html_copy_source = False
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": True, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"index": [], "start": []}

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

default_role = "code"
numpydoc_show_class_members = False
autodoc_typehints = "none"  # docstrings say what is taken and what comes back
autodoc_member_order = "bysource"
autodoc_default_options = {
    # what scikit-learn adds to route metadata has documentation of its own
    "exclude-members": "set_fit_request, set_partial_fit_request, set_predict_request, set_score_request, upgraded"
}


def formula(page: Any, node: nodes.math) -> None:
    """A formula in a line of text."""
    page.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def display(page: Any, node: nodes.math_block) -> None:
    """A formula by itself, which may be wider than the page."""
    page.body.append(
        f'<div style="overflow-x: auto; padding: 0.3em 0 1em">{tex2mathml(node.astext(), as_block=True)}</div>'
    )
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (formula, None), (display, None))
