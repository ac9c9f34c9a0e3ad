"""What the pages of the reference show of a class, and links from names in docstrings and on pages to these pages."""

import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.ext.autosummary import import_by_name
from sphinx.transforms import SphinxTransform

import ddpn

#: The methods and properties that a page shows; subclasses show those in "shared", too.
MEMBERS = tomllib.loads((Path(__file__).parent / "api" / "members.toml").read_text(encoding="utf-8"))
#: A name in a table of the reference.
_ENTRY = re.compile(r"^   ~([\w.]+)$", flags=re.MULTILINE)
_CLASSES = "|".join(name for name in ddpn.__all__ if name[0].isupper())
#: A public class on a page: `Prediction`, `ddpn.CountRegressor()`.
_CLASS = re.compile(rf"(?:ddpn\.)?({_CLASSES})(?:\(\))?")


def list_members(name: str) -> list[str]:
    """List the methods and properties that the page of a class shows; of a function there are none."""
    bases = getattr(import_by_name(name)[1], "__mro__", ())
    own = MEMBERS["classes"].get(name.rpartition(".")[2], [])
    shared = [member for base in bases for member in MEMBERS["shared"].get(base.__name__, [])]
    return list(dict.fromkeys([*own, *shared])) if bases else []


def list_names() -> list[str]:
    """List the names in the tables of the reference."""
    pages = (Path(__file__).parent / "api").glob("*.md")
    return [f"ddpn.{name}" for page in pages for name in _ENTRY.findall(page.read_text(encoding="utf-8"))]


class LinkClasses(SphinxTransform):
    """Make the first mention of a public class on a page a link to its reference."""

    default_priority = 410

    def apply(self, **options: Any) -> None:
        """Wrap literals in references, which Sphinx resolves when it knows all pages."""
        linked = set()
        for literal in list(self.document.findall(nodes.literal)):
            match = _CLASS.fullmatch(literal.astext())
            in_text = not isinstance(literal.parent, nodes.reference | nodes.title | addnodes.pending_xref)
            if match and in_text and match[1] not in linked:
                linked.add(match[1])
                link = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=match[1], refdoc=self.env.docname, refwarn=False
                )
                literal.replace_self(link)
                link += literal


def resolve_class(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a class by its last part if that is unique: signatures name the module that defines it."""
    last = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or not last[:1].isupper():
        return None
    domain = env.get_domain("py")
    names = [name for name, entry in domain.objects.items() if name.endswith(f".{last}") and not entry.aliased]
    if len(names) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", names[0], node, content)


def setup(app: Any) -> None:
    """Register the transform and the callback; Sphinx calls this function."""
    app.add_transform(LinkClasses)
    # Before intersphinx, which would take `Poisson` for a class of torch.
    app.connect("missing-reference", resolve_class, priority=400)
