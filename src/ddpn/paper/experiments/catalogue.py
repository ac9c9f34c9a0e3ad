"""The experiments: TOML files in the folder `catalogue`, listed, selected and read. Imports no torch.

The numbers that the paper prints are in the folder `reference`.
"""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.table import Table

from ddpn.paper.experiments.experiment import Experiment, Method, Training
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice

#: Stands for every experiment with `in_all`.
EVERY = "all"
_CATALOGUE, _REFERENCE = (files(__package__) / folder for folder in ("catalogue", "reference"))
_METHODS = "methods"


def names() -> list[str]:
    """The names of all experiments."""
    found = [Path(entry.name) for entry in _CATALOGUE.iterdir()]
    return sorted(path.stem for path in found if path.suffix == ".toml" and path.stem != _METHODS)


def listing() -> Table:
    """A table of all experiments with what they need and how long they take."""
    table = Table(title="ddpn reproduce NAME")
    for heading in ("experiment", "what it shows", "in the paper", "needs"):
        table.add_column(heading, no_wrap=heading == "experiment", overflow="fold")
    table.add_column("minutes", justify="right")
    for name in names():
        found = experiment(name)
        # A view of another experiment has a title of its own.
        table.add_row(name, read(name)["title"], found.paper, found.needs, f"{found.minutes:g}")
    table.caption = "Minutes on two CPU cores; 600 or more are estimates for experiments that need a GPU."
    return table


def select(
    chosen: Sequence[str],
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    max_steps: int | None = None,
    **training: Any,
) -> list[Experiment]:
    """The experiments with these names, each once, as they are to be run; with other settings of the `training`.

    `only` must be methods of at least one of them. `quick` and `max_steps` (a dry run) shorten the training.
    """
    known = [*names(), EVERY]
    if not chosen:
        raise ConfigError(f"NAME must be one or more of {', '.join(known)}. `ddpn reproduce --list` describes them.")
    for name in chosen:
        check_choice("NAME", name, known)
    every = [each for each in map(experiment, names()) if each.in_all] if EVERY in chosen else []
    # By their own names: a view of another experiment is that experiment.
    found = {each.name: each for each in [*every, *(experiment(name) for name in chosen if name != EVERY)]}
    for method in only:
        check_choice("method in --only", method, dict.fromkeys(m.name for each in found.values() for m in each.methods))
    shorter = [each.quick() if quick else each for each in found.values()]
    shorter = [each if max_steps is None else each.dry(max_steps) for each in shorter]
    return [each.with_training(**training) for each in shorter]


def read(name: str) -> dict[str, Any]:
    """The content of a file of the catalogue."""
    return tomllib.loads((_CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """The paper's numbers by (kind, method, metric); the kind is "" in a table without kinds.

    `dataset` is one of the data sets of the table, if it has several.
    """
    rows = list(csv.DictReader((_REFERENCE / f"{table}.csv").read_text(encoding="utf-8").splitlines()))
    found = [row for row in rows if "dataset" not in row or row["dataset"] == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in found}


def methods() -> dict[str, Method]:
    """Every method by name."""
    return {name: Method(name, **row) for name, row in read(_METHODS).items()}


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    return parse(check_choice("experiment", name, names()), read(name))


def parse(name: str, content: Mapping[str, Any]) -> Experiment:
    """The experiment that the content of a TOML file describes. It may be another view of one: the same runs."""
    if "of" in content:
        return replace(experiment(content["of"]), paper=content["paper"])
    declared: dict[str, Any] = _with_tuples(content)
    if "training" in content:
        every = methods()
        declared["methods"] = tuple(every[each] for each in content["methods"])
        declared["training"] = Training(**_with_tuples(content["training"]))
        declared["grid"] = _with_tuples(content.get("grid", {}))
    return Experiment(name, **declared)


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
