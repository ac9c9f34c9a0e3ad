"""The shape of the package: imports run one way, never in a circle, and files and functions stay small.

Every check takes the folder of a package and returns its complaints, so that it can be tried on a planted violation.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "ddpn"

#: Rooms from the bottom up. A room imports itself and the layers below; those in one layer do not know each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"runtime"}),
    frozenset({"files"}),
    frozenset({"storage"}),
    frozenset({"tensor_files"}),
    frozenset({"registry"}),
    frozenset({"sample", "splits", "model_files"}),
    frozenset({"count_range"}),
    frozenset({"distributions", "streaming"}),
    frozenset({"heads", "metrics", "backbones", "features", "inputs"}),
    frozenset({"datasets", "forecasting"}),
    frozenset({"model"}),
    frozenset({"training"}),
    frozenset({"members"}),
    frozenset({"calibration", "diagnosis"}),
    frozenset({"predictor"}),
    frozenset({"predictions", "explanations"}),
    frozenset({"estimators"}),
    frozenset({"workflow"}),
    frozenset({"tuning"}),
    frozenset({"report", "experiments", "export", "serving"}),
    frozenset({"monitoring"}),
    frozenset({"cli"}),
)
LEVEL = {room: level for level, layer in enumerate(LAYERS) for room in layer}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


class Import(NamedTuple):
    target: str
    line: int


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file, for each module of the package in `root`."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class Contents(NamedTuple):
    #: Every import, wherever it stands: in functions and under TYPE_CHECKING, too.
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    #: Line, name and length of every function.
    functions: tuple[tuple[int, str, int], ...]


@cache
def contents(path: Path) -> Contents:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node) for node in functions]
    return Contents(
        tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)),
        tuple((node.lineno, node.name, lines) for node, lines in zip(functions, lengths, strict=True)),
    )


def imports(name: str, known: dict[str, Path]) -> Iterator[Import]:
    """What module `name` imports from its own package."""
    package = name.split(".")[0]
    home = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    for statement in contents(known[name]).imports:
        for target in targets(statement, home, known):
            if target.split(".")[0] == package:
                yield Import(target, statement.lineno)


def targets(statement: ast.Import | ast.ImportFrom, home: str, known: dict[str, Path]) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    source = statement.module or ""
    if statement.level:
        up = home.split(".")[: len(home.split(".")) - statement.level + 1]
        source = ".".join([*up, source] if source else up)
    for alias in statement.names:
        submodule = f"{source}.{alias.name}"
        yield submodule if submodule in known else source


def room_of(name: str) -> str | None:
    """The part after the package's name; None for the package itself, which re-exports and so sees everything."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


def unknown_rooms(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root.parent)}: the room '{room_of(name)}' is unknown. "
        "Add it to LAYERS in tests/test_architecture.py, in the lowest layer from which it can see what it imports."
        for name, path in modules(root).items()
        if room_of(name) not in {None, *LEVEL}
    ]


def wrong_way_imports(root: Path) -> list[str]:
    known = modules(root)
    complaints = []
    for name, path in known.items():
        here = room_of(name)
        for target, line in imports(name, known):
            there = room_of(target)
            if here is None or here == there or here not in LEVEL or (there is not None and there not in LEVEL):
                continue
            where = f"{path.relative_to(root.parent)}:{line}: {name} imports {target}, "
            if there is None:
                complaints.append(f"{where}the top of the package. Import from the room that defines the name.")
            elif LEVEL[there] >= LEVEL[here]:
                relation = "a sibling" if LEVEL[there] == LEVEL[here] else "which stands above it"
                complaints.append(f"{where}{relation}. Imports run downwards only: see LAYERS.")
    return complaints


def cycles(root: Path) -> list[str]:
    known = modules(root)
    graph = {name: {i.target for i in imports(name, known)} - {name} for name in known}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return ["These modules import each other in a circle: " + " -> ".join(reversed(error.args[1]))]
    return []


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters are documented one by one: a long list of them is no long function."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
    return (first.end_lineno or first.lineno) - first.lineno + 1 if is_docstring else 0


def oversized(root: Path) -> list[str]:
    complaints = []
    for path in modules(root).values():
        where, lines = path.relative_to(root.parent), len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            complaints.append(f"{where}: the file has {lines} lines, at most {MAX_FILE_LINES} are allowed. Split it.")
        for line, name, lines in contents(path).functions:
            if lines > MAX_FUNCTION_LINES:
                limit = f"at most {MAX_FUNCTION_LINES} are allowed"
                complaints.append(f"{where}:{line}: {name} has {lines} lines, {limit}. Split it.")
    return complaints


CHECKS = [unknown_rooms, wrong_way_imports, cycles, oversized]


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_keeps_its_shape(check):
    assert {"ddpn", "ddpn.runtime.errors", "ddpn.distributions"} <= set(modules(ROOT)), "looks in the wrong place"
    assert "\n".join(check(ROOT)) == ""


@pytest.fixture
def plant(tmp_path):
    """Lay out a package from {path: source} and return its folder; packages get their __init__.py."""

    def lay_out(files: dict[str, str]) -> Path:
        root = tmp_path / "ddpn"
        for name, source in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        for folder in {path.parent for path in root.rglob("*.py")} | {root}:
            (folder / "__init__.py").touch()
        return root

    return lay_out


UPWARD = {
    "absolute": {"distributions/law.py": "from ddpn.heads.poisson import Head", "heads/poisson.py": ""},
    "plain import": {"distributions/law.py": "import ddpn.heads.poisson", "heads/poisson.py": ""},
    "of a submodule": {"distributions/law.py": "from ddpn import heads", "heads/poisson.py": ""},
    "relative": {"distributions/law.py": "from ..heads.poisson import Head", "heads/poisson.py": ""},
    "relative, of a submodule": {"distributions/law.py": "from .. import heads", "heads/poisson.py": ""},
    "from an __init__": {"distributions/__init__.py": "from ..heads import poisson", "heads/poisson.py": ""},
    "for types": {
        "model.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ddpn.cli import main",
        "cli.py": "",
    },
    "in a function": {"files.py": "def f():\n    import ddpn.model", "model.py": ""},
    "in a method, under try": {
        "files.py": "class C:\n  def f(self):\n    try:\n      import ddpn.model\n    except ImportError: pass",
        "model.py": "",
    },
    "of a missing module": {"distributions/law.py": "from ddpn.training.loop import fit"},
    "between siblings": {"heads/poisson.py": "from ddpn.metrics import crps", "metrics/scores.py": ""},
    "between siblings near the top": {"serving.py": "from ddpn.report import write", "report.py": ""},
    "of the top": {"heads/poisson.py": "from ddpn import DoublePoisson", "__init__.py": ""},
}


@pytest.mark.parametrize("files", UPWARD.values(), ids=UPWARD.keys())
def test_an_import_against_the_order_is_found(plant, files):
    (complaint,) = wrong_way_imports(plant(files))
    assert complaint.startswith(f"ddpn/{next(iter(files))}:")


CIRCLES = {
    "of two": {"datasets/a.py": "from ddpn.datasets import b", "datasets/b.py": "from ddpn.datasets.a import x"},
    "of three": {
        "datasets/a.py": "import ddpn.datasets.b",
        "datasets/b.py": "from .c import x",
        "datasets/c.py": "from . import a",
    },
    "through the room's own __init__": {
        "datasets/__init__.py": "from ddpn.datasets.a import x",
        "datasets/a.py": "from ddpn.datasets import y",
    },
    "in a class body": {
        "datasets/a.py": "from ddpn.datasets import b",
        "datasets/b.py": "class C:\n    from ddpn.datasets.a import x",
    },
    "for types": {
        "datasets/a.py": "from ddpn.datasets import b",
        "datasets/b.py": "if TYPE_CHECKING:\n    from ddpn.datasets import a",
    },
    "in a function": {
        "datasets/a.py": "from ddpn.datasets import b",
        "datasets/b.py": "def f():\n    from ddpn.datasets import a",
    },
    "in the other branch of TYPE_CHECKING": {
        "datasets/a.py": "from ddpn.datasets import b",
        "datasets/b.py": "if TYPE_CHECKING:\n    pass\nelse:\n    from ddpn.datasets import a",
    },
}


@pytest.mark.parametrize("files", CIRCLES.values(), ids=CIRCLES.keys())
def test_a_circle_is_found(plant, files):
    (complaint,) = cycles(plant(files))
    assert "ddpn.datasets.a" in complaint


def function_of(lines: int) -> str:
    return "async def long():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ("x = 1\n" * (MAX_FILE_LINES + 1), "the file has 401 lines"),
        (function_of(MAX_FUNCTION_LINES + 1), "ddpn/model.py:1: long has 61 lines"),
        ("class C:\n" + indent(function_of(MAX_FUNCTION_LINES + 1), "    "), "ddpn/model.py:2: long has 61 lines"),
    ],
    ids=["file", "function", "method"],
)
def test_what_is_too_long_is_found(plant, source, fragment):
    (complaint,) = oversized(plant({"model.py": source}))
    assert fragment in complaint


@pytest.mark.parametrize("name", ["utils.py", "plots/bars.py"])
def test_an_unknown_room_is_found_with_its_remedy(plant, name):
    complaint = unknown_rooms(plant({name: ""}))[-1]
    assert complaint.startswith(f"ddpn/{name}: ")
    assert "Add it to LAYERS in tests/test_architecture.py" in complaint


def test_what_is_allowed_passes(plant):
    root = plant(
        {
            "__init__.py": "from ddpn.cli import main\nfrom ddpn.distributions import law",
            "files.py": "import ddpnx\nfrom collections import abc",
            "distributions/__init__.py": "from ddpn.distributions.law import Law\nfrom . import count",
            "distributions/law.py": "from ddpn.distributions import count\nfrom ..files import lock",
            "distributions/count.py": "def f():\n    from ddpn.files import lock\n",
            "model.py": "from ddpn.distributions import Law\n" + function_of(MAX_FUNCTION_LINES),
            "training/loop.py": "x = 1\n" * MAX_FILE_LINES,
            "cli.py": "from ddpn.training import loop",
        }
    )
    assert [complaint for check in CHECKS for complaint in check(root)] == []
