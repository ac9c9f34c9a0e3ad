"""Find parameters that the reference does not describe: every callable that docs/api renders must document its own.

    python tools/check_docstrings.py

Reads the directives of the pages (autoclass, autofunction, ...) and the source files that they name, without importing
them. Each parameter of a signature must be in the section "Parameters" of the docstring, and only these; fields of a
dataclass or named tuple may be in "Attributes" instead. Prints one line per find; the exit status is 1 if there is any.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
SOURCE = ROOT / "src"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | Function
_DIRECTIVE = re.compile(r"^(?P<indent> *)\.\. (?P<kind>auto\w+|currentmodule):: (?P<name>[\w.]+)$")
_OPTION = re.compile(r"^ +:(?P<name>[\w-]+):(?P<value>.*)$")
_RULE = re.compile(r"^-{3,}$")
#: Bases whose fields are the parameters of the constructor.
_RECORDS = ("NamedTuple",)


class Rendered(NamedTuple):
    """Something that a page renders: its dotted name, and the definition with the module it stands in."""

    name: str
    module: str
    node: Definition


# Modules, read but not imported ----------------------------------------------------------------------------------


def path_of(module: str, source: Path) -> Path | None:
    """The file of a module or package; None for what is not ours."""
    base = source.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


@cache
def tree_of(module: str, source: Path) -> ast.Module:
    """The syntax tree of a module."""
    path = path_of(module, source)
    assert path is not None, f"No module named {module!r} in {source}"
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Those at the top of a module, and those under `if TYPE_CHECKING`, where lazy imports are named."""
    for statement in tree.body:
        yield from statement.body if isinstance(statement, ast.If) else [statement]


def find(name: str, module: str, source: Path) -> tuple[str, Definition] | None:
    """The module and the definition that `name` means in `module`, through its imports; None for what is not ours."""
    for statement in statements(tree_of(module, source)):
        if isinstance(statement, Definition) and statement.name == name:
            return module, statement
        if isinstance(statement, ast.ImportFrom) and path_of(statement.module or "", source):
            for alias in statement.names:
                if name == (alias.asname or alias.name):
                    return find(alias.name, statement.module or "", source)
    return None


def lineage(module: str, node: ast.ClassDef, source: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    """A class and its bases that are ours, nearest first."""
    yield module, node
    for base in node.bases:
        found = find(base.id, module, source) if isinstance(base, ast.Name) else None
        if found and isinstance(found[1], ast.ClassDef):
            yield from lineage(found[0], found[1], source)


def member(name: str, module: str, node: ast.ClassDef, source: Path) -> tuple[str, Function] | None:
    """A method or property of a class or of its bases, and the module it stands in."""
    for home, owner in lineage(module, node, source):
        for statement in owner.body:
            if isinstance(statement, Function) and statement.name == name:
                return home, statement
    return None


# Pages -----------------------------------------------------------------------------------------------------------


def directives(page: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Kind, full dotted name and options of each; a method's name gets that of the class above it."""
    module, owner = "", ""
    lines = page.splitlines()
    for number, line in enumerate(lines):
        if not (found := _DIRECTIVE.match(line)):
            continue
        kind, name = found["kind"], found["name"]
        if kind == "currentmodule":
            module = name
            continue
        options, last = {}, ""
        for after in lines[number + 1 :]:
            if option := _OPTION.match(after):
                last = option["name"]
                options[last] = option["value"].strip()
            elif last and after.startswith(" ") and after.strip():
                options[last] += " " + after.strip()
            else:
                break
        full = name if name.startswith("ddpn.") else f"{owner if found['indent'] else module}.{name}"
        owner = full if kind == "autoclass" else owner
        module = full if kind == "automodule" else module
        yield kind, full, options


def split(name: str, source: Path) -> tuple[str, list[str]]:
    """The longest part of a dotted name that is a module, and the rest, which has one part or more."""
    parts = name.split(".")
    length = next(n for n in range(len(parts) - 1, 0, -1) if path_of(".".join(parts[:n]), source))
    return ".".join(parts[:length]), parts[length:]


def resolve(name: str, source: Path) -> Rendered:
    """What a dotted name means; raises an `AssertionError` if it does not exist."""
    module, rest = split(name, source)
    found = find(rest[0], module, source)
    assert found, f"The page names {name}, which {module} does not define"
    for part in rest[1:]:
        assert isinstance(found[1], ast.ClassDef)
        found = member(part, *found, source) if isinstance(found[1], ast.ClassDef) else None
        assert found, f"The page names {name}, which {module} does not define"
    return Rendered(name, *found)


def rendered(page: str, source: Path = SOURCE) -> Iterator[Rendered]:
    """What a page renders with its docstring: functions, classes, and the members that are named."""
    for kind, name, options in directives(page):
        if kind == "automodule":
            named = options.get("members", "").replace(",", " ").split()
            public = [] if "members" not in options else public_names(tree_of(name, source))
            yield from (resolve(f"{name}.{part}", source) for part in named or public)
            continue
        yield (thing := resolve(name, source))
        if not isinstance(thing.node, ast.ClassDef):
            continue
        for part in options.get("members", "").replace(",", " ").split():
            yield resolve(f"{name}.{part}", source)


def public_names(tree: ast.Module) -> list[str]:
    """Functions and classes that a module defines."""
    return [node.name for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")]


# Docstrings ------------------------------------------------------------------------------------------------------


def decorators(node: Definition) -> set[str]:
    """The last part of each decorator's name: `dataclass` for `@dataclasses.dataclass(frozen=True)`."""
    called = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return {item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in called}


def is_property(node: Definition) -> bool:
    """Whether a definition is read like an attribute."""
    return bool(decorators(node) & {"property", "cached_property", "lazy_property"})


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return "dataclass" in decorators(node) or any(getattr(base, "id", "") in _RECORDS for base in node.bases)


def signature(node: Function) -> list[str]:
    """Names of the arguments of a function, without self, cls and private ones."""
    arguments = node.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [item.arg for item in (arguments.vararg, arguments.kwarg) if item]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def fields(node: ast.ClassDef) -> list[str]:
    """Annotated names of a dataclass that its constructor takes."""
    found = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            source = ast.unparse(item)
            is_argument = "init=False" not in source and "ClassVar" not in source
            found += [item.target.id] if is_argument and not item.target.id.startswith("_") else []
    return found


def parameters(thing: Rendered, source: Path = SOURCE) -> list[str]:
    """The names that a caller may pass."""
    if not isinstance(thing.node, ast.ClassDef):
        return [] if is_property(thing.node) else signature(thing.node)
    own = list(lineage(thing.module, thing.node, source))
    for _, owner in own:
        if constructor := next((f for f in owner.body if isinstance(f, Function) and f.name == "__init__"), None):
            # Errors are caught rather than made: their base documents the constructor of all.
            is_inherited = owner is not thing.node and owner.name.endswith("Error")
            return [] if is_inherited else signature(constructor)
        if is_record(owner):
            records = [base for _, base in reversed(own) if is_record(base)]
            return list(dict.fromkeys(name for base in records for name in fields(base)))
    return []


def documented(docstring: str, *sections: str) -> list[str]:
    """Names in sections of a numpydoc docstring, such as "Parameters"; `a, b : int` is two, stars are left out."""
    lines, names, inside = docstring.splitlines(), [], False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if _RULE.match(below):
            inside = line.strip() in sections
        elif inside and line and not line.startswith(" ") and not _RULE.match(line):
            names += [name.strip(" *`") for name in line.split(" : ")[0].split(",")]
    return names


def complaints(thing: Rendered, source: Path = SOURCE) -> list[str]:
    """What is wrong with the docstring of something rendered, one sentence each."""
    docstring = ast.get_docstring(thing.node)
    if not docstring:
        return [f"{thing.name} has no docstring."]
    if is_property(thing.node):
        # Napoleon reads "type: description" in it.
        first = re.sub(r"`[^`]*`", "", docstring.splitlines()[0])
        return [f"{thing.name}: the first line of a property must not contain a colon."] * (":" in first)
    expected = parameters(thing, source)
    record = isinstance(thing.node, ast.ClassDef) and any(
        is_record(node) for _, node in lineage(thing.module, thing.node, source)
    )
    found = documented(docstring, "Parameters", *(["Attributes"] if record else []))
    missing = [name for name in expected if name not in found]
    unknown = [name for name in documented(docstring, "Parameters") if name not in expected]
    return [f"{thing.name} does not document {name!r}." for name in missing] + [
        f"{thing.name} documents {name!r}, which is not a parameter." for name in unknown
    ]


def main() -> int:
    """Print every find; the exit status."""
    found = [
        line for page in PAGES for thing in rendered(page.read_text(encoding="utf-8")) for line in complaints(thing)
    ]
    print("\n".join(dict.fromkeys(found)), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
