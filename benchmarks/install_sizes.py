"""Measure the disk space of the core and of each extra of ddpn.

    python benchmarks/install_sizes.py --out benchmarks/results

A size is that of the files that pip recorded for the installed packages. The size of an extra is what it adds to the
core.
"""

import argparse
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]


def list_packages(requirements: list[str]) -> set[str]:
    """Return the names of all packages that the requirements need, directly or through others."""
    done: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(text) for text in requirements]
    while todo:
        requirement = todo.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in done:
            continue
        done.add(key)
        try:
            needed = [Requirement(text) for text in distribution(requirement.name).requires or []]
        except PackageNotFoundError:
            print(f"  {requirement.name} is not installed")
            continue
        extras = {"", *requirement.extras}
        todo += [
            candidate
            for candidate in needed
            if candidate.marker is None or any(candidate.marker.evaluate({"extra": e}) for e in extras)
        ]
    return {name for name, _ in done}


def measure_megabytes(names: set[str]) -> float:
    """Return the size on disk of the named packages in MB; packages that are not installed count as 0."""
    total = 0
    for name in names:
        try:
            paths = [file.locate() for file in distribution(name).files or []]
        except PackageNotFoundError:
            continue
        total += sum(Path(path).stat().st_size for path in paths if Path(path).exists())
    return total / 1e6


def describe_sizes() -> list[str]:
    """Return a line for the core, its largest packages and each extra."""
    core = list_packages(PROJECT["dependencies"])
    lines = [f"- core: {len(core)} packages, {measure_megabytes(core):,.0f} MB"]
    for name in sorted(core, key=lambda name: -measure_megabytes({name}))[:8]:
        lines.append(f"  - {name}: {measure_megabytes({name}):,.0f} MB")
    for extra, requirements in PROJECT["optional-dependencies"].items():
        more = list_packages([text for text in requirements if not text.startswith("ddpn[")]) - core
        lines.append(f"- {extra}: {len(more)} packages, {measure_megabytes(more):,.0f} MB")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="the folder of install_sizes.md")
    path = parser.parse_args().out / "install_sizes.md"
    path.write_text("\n".join(["# What an installation takes on disk", "", *describe_sizes(), ""]), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
