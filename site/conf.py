"""Sphinx's settings for the documentation site. Its pages are made by pages.py; build.sh runs both."""

import os
import re
import sys
from pathlib import Path

SITE = Path(__file__).parent
ROOT = SITE.parent
WORK = Path(os.environ.get("WORK") or ROOT / "build" / "site-work")
sys.path[:0] = [str(SITE), str(ROOT / "python")]

import docstrings  # noqa: E402
from cell_lexer import CellLexer  # noqa: E402
from hawkmoth.util import compiler  # noqa: E402

project = "cellc"
author = "the cellc authors"
release = version = re.search(r'CELLC_VERSION "(.*)"', (ROOT / "gen/main.c").read_text())[1]

extensions = ["myst_parser", "sphinx_copybutton", "sphinx.ext.autodoc", "hawkmoth"]
exclude_patterns = ["headers"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
# A link that leads nowhere is an error, but for what a page says of files that only a build has.
nitpicky = False

# The Python package is read without the frameworks that it is for.
autodoc_mock_imports = ["torch", "jax", "jaxlib", "numpy"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"

hawkmoth_root = str(WORK / "source" / "headers")
hawkmoth_clang = ["-std=c11", f"-I{ROOT}/runtime", *compiler.get_include_args("cc")]

html_theme = "furo"
html_title = "cellc"
html_baseurl = ""
html_static_path = ["static", str(WORK / "static")]
html_css_files = ["fonts.css", "site.css"]
html_js_files = [("site.js", {"defer": "defer"}), ("gallery.js", {"defer": "defer"})]
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_permalinks_icon = "#"
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {
        "font-stack": '"Plex Sans", system-ui, -apple-system, "Segoe UI", sans-serif',
        "font-stack--monospace": '"Plex Mono", ui-monospace, SFMono-Regular, Menlo, Consolas, monospace',
        "color-brand-primary": "#0b6b63",
        "color-brand-content": "#0b6b63",
        "color-brand-visited": "#0b6b63",
        "color-sidebar-link-text--top-level": "var(--color-foreground-primary)",
        "color-api-name": "var(--color-foreground-primary)",
        "color-api-pre-name": "var(--color-foreground-secondary)",
        "color-foreground-secondary": "#525a63",
        "color-foreground-muted": "#5f6770",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fd4c4",
        "color-brand-content": "#5fd4c4",
        "color-brand-visited": "#5fd4c4",
        "color-sidebar-link-text--top-level": "var(--color-foreground-primary)",
        "color-api-name": "var(--color-foreground-primary)",
        "color-api-pre-name": "var(--color-foreground-secondary)",
        "color-foreground-secondary": "#a6adb6",
        "color-foreground-muted": "#9aa2ab",
    },
}
pygments_style = "a11y-light"
pygments_dark_style = "github-dark-high-contrast"
copybutton_selector = "div.highlight pre"


def name_levels(app, pagename, templatename, context, doctree):
    """The captions of the navigation are headings: of which level, Furo leaves out."""
    tree = context.get("furo_navigation_tree")
    if tree:
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app):
    app.add_lexer("cell", CellLexer)
    app.add_lexer("cell-error", CellLexer)
    app.connect("autodoc-process-docstring", docstrings.process)
    app.connect("html-page-context", name_levels, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
