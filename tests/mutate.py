"""Mutate the core at a fixed sample of places, and run the tests of what was mutated: do they notice? `make mutate`.

Half of the mutations are ordinary (a comparison, an operator, a number, a condition), half semantic: a weight, a mask,
an exposure, a group or a correction term is dropped, or a minimum and a maximum are exchanged. Each runs in a copy of
the tree, in a fork of a process that has imported the libraries. It is noticed if a test fails, which passes without
the mutation, or the limit of CPU time is reached. Mutations that change no result by `tests/equivalent_mutations.txt`,
or that cannot be imported, do not count.
"""

import argparse
import ast
import contextlib
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: Parts of the core, each with the paths that it has.
PARTS = {
    "members": ("members/",),
    "calibration": ("calibration/",),
    "tables": ("tables/", "rows/"),
    "metrics": ("metrics/", "statistics.py"),
    "analysis": ("analysis/",),
}
#: Pages and figures: what they show is tested by reading them.
LEFT_OUT = ("analysis/report/", "analysis/plots/")
#: Contracts over every member and step, which run after the mirrored tests, and the paths of what they use.
CONTRACTS = {
    "tests/members/test_contract.py": ("members/", "rows/", "tables/encoding/"),
    "tests/soundness/test_row_contract.py": (
        *("members/", "rows/", "tables/encoding/"),
        *("calibration/", "metrics/", "statistics.py", "analysis/"),
    ),
}
EQUIVALENT = ROOT / "tests" / "equivalent_mutations.txt"
LIBRARIES = (
    "torch",
    "lightgbm",
    "numba",
    "scipy.stats",
    "sklearn.covariance",
    "pandas",
    "polars",
)

#: The status of a process that cannot import what was mutated.
FATAL = 9
FLIPPED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
EXCHANGED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.And: "or", ast.Or: "and"}
OPPOSITE = {"min": "max", "minimum": "maximum", "amin": "amax", "argmin": "argmax", "any": "all"}
OPPOSITE |= {other: name for name, other in OPPOSITE.items()}
DROPPED = {"weight": ("weight", "share"), "exposure": ("exposure", "volume"), "group": ("group",)}


class Mutation(NamedTuple):
    """A replacement of one part of a file; `kind` says what it does."""

    path: str
    line: int
    start: int
    end: int
    new: str
    kind: str
    is_semantic: bool

    def apply(self, source: str) -> str:
        content = source.encode()
        return (content[: self.start] + self.new.encode() + content[self.end :]).decode()

    def describe(self, source: str) -> str:
        """Return the line before and after, as the list of equivalent mutations has it."""
        before, after = (text.splitlines()[self.line - 1].strip() for text in (source, self.apply(source)))
        return f"{self.path}: {before} -> {after}"


class Finder(ast.NodeVisitor):
    """A visitor that collects the mutations of a file."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.content, self.found = path, source.encode(), list[Mutation]()
        lengths = [len(line) for line in self.content.splitlines(keepends=True)]
        self.starts = [sum(lengths[:line]) for line in range(len(lengths) + 1)]

    def place(self, node: ast.AST, is_end: bool = False) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if is_end else (node.lineno, node.col_offset)
        return self.starts[line - 1] + column

    def text(self, node: ast.AST) -> str:
        return self.content[self.place(node) : self.place(node, is_end=True)].decode()

    def add(self, node: ast.AST, new: str, kind: str, is_semantic: bool = False) -> None:
        span = self.place(node), self.place(node, is_end=True)
        self.found.append(Mutation(self.path, node.lineno, *span, new, kind, is_semantic))

    def between(self, left: ast.AST, right: ast.AST, new: str, kind: str) -> None:
        """Replace what stands between two operands, such as an operator, with its brackets as they are."""
        start, end = self.place(left, is_end=True), self.place(right)
        operator = self.content[start:end].decode()
        core = operator.strip("() \n#")
        if core and "\n" not in operator:
            self.found.append(
                Mutation(self.path, left.end_lineno, start, end, operator.replace(core, new, 1), kind, False)
            )

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are not mutated."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nor is text."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not node.name.startswith(("__repr", "_repr", "__str")):
            for part in node.body:
                self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Defaults of fields are choices, as constants of a module are."""
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and type(node.ops[0]) in FLIPPED:
            self.between(node.left, node.comparators[0], FLIPPED[type(node.ops[0])], "flip a comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in EXCHANGED:
            self.between(node.left, node.right, EXCHANGED[type(node.op)], "exchange an operator")
        if isinstance(node.op, ast.Add | ast.Sub):
            self.add(node, f"({self.text(node.left)})", "drop a term", is_semantic=True)
        if isinstance(node.op, ast.Mult | ast.Div):
            for name, words in DROPPED.items():
                if any(word in self.text(node.right) for word in words):
                    self.add(node, f"({self.text(node.left)})", f"drop {name}", is_semantic=True)
                elif isinstance(node.op, ast.Mult) and any(word in self.text(node.left) for word in words):
                    self.add(node, f"({self.text(node.right)})", f"drop {name}", is_semantic=True)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.between(node.values[0], node.values[1], EXCHANGED[type(node.op)], "exchange and with or")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add(node, f"({self.text(node.operand)})", "drop a not")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.add(node.test, f"not ({self.text(node.test)})", "negate a condition")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            self.add(node, repr(node.value + 1 if isinstance(node.value, int) else 1.5 * node.value + 0.1), "number")

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OPPOSITE:
            new = self.text(node.func)[: -len(name)] + OPPOSITE[name]
            self.add(node.func, new, "exchange minimum and maximum", is_semantic=True)
        for value in (*node.args, *(keyword.value for keyword in node.keywords)):
            last = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
            for kind, words in DROPPED.items():
                if last.removesuffix("s") in words:
                    self.add(value, "None", f"drop {kind}", is_semantic=True)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        words = ("used", "known", "kept", "inside", "mask", "some", "==", "!=", ">", "~")
        if isinstance(node.ctx, ast.Load) and any(word in self.text(node.slice) for word in words):
            self.add(node, self.text(node.value), "drop a mask", is_semantic=True)
        self.generic_visit(node)


def find_part(path: str) -> str:
    """Return the part of the core that a file belongs to, "" if it belongs to none."""
    return next((part for part, paths in PARTS.items() if path.startswith(paths)), "")


def find_mutations() -> list[Mutation]:
    """Find all mutations of the packages, some of which may not parse."""
    mutations = []
    for path in sorted((ROOT / "src/ddpn").rglob("*.py")):
        name = path.relative_to(ROOT / "src/ddpn").as_posix()
        if find_part(name) and not name.startswith(LEFT_OUT):
            source = path.read_text()
            finder = Finder(name, source)
            for statement in ast.parse(source).body:
                # Constants of a module are choices, with evidence beside them.
                if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    finder.visit(statement)
            mutations += finder.found
    return mutations


def parses(source: str) -> bool:
    with contextlib.suppress(SyntaxError):
        ast.parse(source)
        return True
    return False


def draw_mutations(number: int, seed: int) -> Iterator[Mutation]:
    """Draw more than enough mutations, half of them semantic, files of a part as their places are; one per line."""
    rng, by_part, lines, parts = random.Random(seed), defaultdict(list), set(), list(PARTS)
    equivalent = {line.split("  #")[0].strip() for line in EQUIVALENT.read_text().splitlines()}
    for one in find_mutations():
        by_part[find_part(one.path), one.is_semantic].append(one)
    for turn in range(20 * number):
        one = rng.choice(by_part[parts[turn // 2 % len(parts)], turn % 2 == 0])
        source = (ROOT / "src/ddpn" / one.path).read_text()
        if (one.path, one.line) not in lines and parses(one.apply(source)) and one.describe(source) not in equivalent:
            lines.add((one.path, one.line))
            yield one


def select_tests(path: str) -> list[str]:
    """Return the tests that must notice mutations of a file, those that are most likely to fail first.

    These are its mirrored tests or, without any, those of its folder and of the files that import it; its own examples;
    the contracts; and the tests of its package and of soundness that import it, or the front of its package.
    """
    package, module = path.split("/")[0], Path("ddpn", path).with_suffix("").as_posix().replace("/", ".")
    module = module.removesuffix(".__init__")
    line, front = f"from {module} import", f"from ddpn.{package} import"
    folder = mirror(path).parent
    mirrored = [mirror(path)]
    if not mirrored[0].exists():
        sources = (ROOT / "src/ddpn" / package).rglob("*.py")
        mirrored = [mirror(one.relative_to(ROOT / "src/ddpn")) for one in sources if line in one.read_text()]
        mirrored += folder.glob("test_*.py")
    users = [
        one for one in (ROOT / "tests" / package).rglob("test_*.py") if any(map(one.read_text().count, (line, front)))
    ]
    users += [one for one in (ROOT / "tests/soundness").glob("test_*.py") if line in one.read_text()]
    near = [folder.parent / f"test_{folder.name}.py", folder / "test_contract.py"]
    contracts = [ROOT / one for one, paths in CONTRACTS.items() if path.startswith(paths)]
    files = [*sorted(mirrored), ROOT / "src/ddpn" / path, *near, *contracts, *sorted(users)]
    return list(dict.fromkeys(one.relative_to(ROOT).as_posix() for one in files if one.exists()))


def mirror(path: str | Path) -> Path:
    """Return where the tests of a file are."""
    return ROOT / "tests" / Path(path).parent / f"test_{Path(path).stem}.py"


class Mutator:
    """A runner of mutations, one after the other, in a copy of the tree."""

    def __init__(self, copy: Path, seconds: int) -> None:
        self.copy, self.seconds = copy, seconds
        self._sound: set[str] = set()

    def run(self, one: Mutation) -> tuple[str, str]:
        """Return "killed", "survived", "timeout" or "fatal" (it cannot be imported), and the test that failed."""
        target = self.copy / "src/ddpn" / one.path
        source = target.read_text()
        target.write_text(one.apply(source))
        try:
            outcome = self._fork(one.path, select_tests(one.path))
        finally:
            target.write_text(source)
        output = (self.copy / "output").read_text().splitlines()
        failed = [
            line.split(" - ")[0].split(maxsplit=1)[1] for line in output if line.startswith(("FAILED ", "ERROR "))
        ]
        if outcome == "killed" and failed and failed[0] not in self._sound:
            if self._fork(one.path, failed[:1]) != "survived":
                raise SystemExit(f"{failed[0]} fails without a mutation too.")
            self._sound.add(failed[0])
        return outcome, failed[0] if failed else ""

    def _fork(self, path: str, tests: list[str]) -> str:
        child = os.fork()
        if not child:
            run_tests(path, tests, self.copy, self.seconds)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return "timeout" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "killed"
        # Tests failed (1) or could not be collected (2); anything else would be a fault of this program.
        return {0: "survived", 1: "killed", 2: "killed", FATAL: "fatal"}[os.WEXITSTATUS(status)]


def run_tests(path: str, tests: list[str], copy: Path, seconds: int) -> None:
    """Run tests of a file in this process, and leave it."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    os.chdir(copy)
    sys.path.insert(0, str(copy / "src"))
    output = os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = importlib.import_module(f"ddpn.{name}")
        assert str(module.__file__).startswith(str(copy))
    except BaseException:
        os._exit(FATAL)
    code = FATAL
    try:
        code = int(pytest.main(["-x", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider", *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=60, help="mutations")
    parser.add_argument("--seed", type=int, default=0, help="another sample")
    parser.add_argument(
        "--seconds",
        type=int,
        default=400,
        help="limit of CPU time for each, which tests without a mutation are far below",
    )
    parser.add_argument("--part", default="0/1", help="k/n: every n-th mutation from the k-th on, to share the work")
    arguments = parser.parse_args()
    for name in LIBRARIES:
        importlib.import_module(name)
    part, parts = map(int, arguments.part.split("/"))
    started, outcomes = time.process_time(), defaultdict(int)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(ROOT / name, copy / name)
        # At once: the tree may change while mutations run.
        drawn = list(islice(draw_mutations(arguments.number, arguments.seed), arguments.number))
        mutator = Mutator(copy, arguments.seconds)
        for one in drawn[part::parts]:
            outcome, test = mutator.run(one)
            outcomes[outcome] += 1
            source = (copy / "src/ddpn" / one.path).read_text()
            print(f"{outcome:9}src/ddpn/{one.path}:{one.line} ({one.kind}) {one.describe(source)}", flush=True)
            if test:
                print(f"         by {test}", flush=True)
    tried = sum(outcomes.values()) - outcomes["fatal"]
    noticed = outcomes["killed"] + outcomes["timeout"]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (time.process_time() - started + used.ru_utime + used.ru_stime) / 60.0
    print(f"{noticed} of {tried} mutations noticed ({noticed / max(tried, 1):.0%}), {minutes:.1f} CPU minutes")


if __name__ == "__main__":
    main()
