"""Sphinx: pages in Markdown (MyST), the reference from docstrings. Nothing is fetched from a network."""

import re
import sys
from enum import EnumMeta
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils import nodes
from numpydoc.validate import validate
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

# The extension beside this file.
sys.path.insert(0, str(Path(__file__).parent))

from cross_references import list_members, list_names

project = "ddpn"
author = "The ddpn authors"
project_copyright = "The ddpn authors"
release = version = installed("ddpn")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "cross_references",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "results/*/*"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Sections of parameters as in numpy; "Shape:" and the like are no sections.
napoleon_google_docstring = False
napoleon_use_rtype = False
# Several names with one description, "lower, upper : int", stay one entry, in both sections.
napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]

# Values are quoted as in Python, "mean", so that they can be copied.
smartquotes_action = "De"
# Docstrings write `name` for code, which becomes a link if the reference has the name.
default_role = "py:obj"
# A page for every object in the tables of docs/api, in docs/api/generated.
autosummary_generate = True
autosummary_context = {"shown_members": {name: list_members(name) for name in list_names()}}
# Names of other packages that signatures and docstrings have, and their pages: no network is needed.
intersphinx_mapping = {
    name: (url, f"inventories/{name}.txt")
    for name, url in {
        "numpy": "https://numpy.org/doc/stable/",
        "pandas": "https://pandas.pydata.org/docs/",
        "polars": "https://docs.pola.rs/api/python/stable/",
        "sklearn": "https://scikit-learn.org/stable/",
        "torch": "https://docs.pytorch.org/docs/stable/",
    }.items()
}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "TableLike")}
# What torch and scikit-learn say of methods of theirs is not about ours.
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 110
add_module_names = False

html_theme = "furo"
html_title = "ddpn"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"

#: Marks that docstrings mean as they are and reStructuredText would read as its own.
_MARKS = re.compile(r"(?<!\\)([*|]|(?<=\w)_(?!\w))")


def escape_docstring(app: Any, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Escape stars and bars of a docstring, which is plain text with `code` in it, and make "Shape:" bold."""
    plain: list[str] = []
    in_example = False
    for line in lines:
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        # A list needs an empty line before it; its other items begin like it or are set in.
        if line.startswith("- ") and plain and plain[-1] and not plain[-1].startswith(("- ", "  ")):
            plain.append("")
        plain.append(line if in_example else _escape_line(line))
    lines[:] = plain


def _escape_line(line: str) -> str:
    # Odd parts lie between backticks.
    parts = line.split("`")
    parts[::2] = [_MARKS.sub(r"\\\1", part) for part in parts[::2]]
    return re.sub(r"\bShape:", "**Shape:**", "`".join(parts))


def shorten_signature(
    app: Any, what: str, name: str, thing: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Shorten a signature: `X: Any` becomes `X`, <factory> of dataclasses "...", and constants their values."""
    constants = vars(sys.modules.get(getattr(thing, "__module__", None) or "", object))

    def show_value(match: re.Match[str]) -> str:
        return f"{match[1]}{constants[match[2]]!r}" if match[2] in constants else match[0]

    signature = re.sub(r"(=\s?)([A-Z][A-Z_]{2,})\b", show_value, signature or "") or signature
    short = re.sub(r": ~?(typing\.)?Any\b( = )?", lambda match: "=" if match[2] else "", signature or "")
    # What sphinx makes of `ArrayLike | None`.
    short = re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", short.replace("<factory>", "..."))
    return short or signature, None if returned in ("Any", "~typing.Any") else returned


def check_parameters(app: Any, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Warn of parameters that a docstring of the reference does not describe, or that do not exist.

    Fields of a dataclass or a named tuple may be in the section "Attributes" instead; names with a star are forwarded.
    """
    checks = {"PR02"} if "Attributes" in lines else {"PR01", "PR02"}
    # The parameters of an enumeration are those of enum.Enum.
    if what in ("class", "function", "method") and not isinstance(thing, EnumMeta):
        for code, complaint in validate(name)["errors"]:
            if code in checks and re.search(r"'[a-zA-Z]", complaint):
                logging.getLogger(__name__).warning("%s: %s", name, complaint)


class NarrowPictures(SphinxTransform):
    """Beside a picture NAME.png the page has NAME-narrow.png, if there is one: custom.css shows one of the two."""

    default_priority = 400

    def apply(self, **options: Any) -> None:
        """Add the second picture."""
        for image in list(self.document.findall(nodes.image)):
            narrow = image["uri"].replace(".png", "-narrow.png")
            if narrow != image["uri"] and (Path(self.env.doc2path(self.env.docname)).parent / narrow).exists():
                second = image.deepcopy()
                second["uri"] = narrow
                second["classes"].append("narrow")
                image["classes"].append("wide")
                image.parent.insert(image.parent.index(image) + 1, second)


def setup(app: Any) -> None:
    """Register the transform and the callbacks; Sphinx calls this function."""
    app.add_transform(NarrowPictures)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", check_parameters, priority=300)
    # Before napoleon, whose markup must stay as it is.
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)
