"""Read the paper's experiments from TOML files in the folder `catalogue`. Imports no torch.

The folder `reference` has the numbers of the paper.
"""

import csv
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.table import Table

from ddpn.paper.experiments.experiment import Experiment, Method, TrainingSettings
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice
from ddpn.storage.contents import JsonObject

#: The name that selects every experiment with `in_all`.
EVERY = "all"
_CATALOGUE, _REFERENCE = (files(__package__) / folder for folder in ("catalogue", "reference"))
_METHODS = "methods"


def list_names() -> list[str]:
    """Return the names of all experiments."""
    paths = [Path(entry.name) for entry in _CATALOGUE.iterdir()]
    return sorted(path.stem for path in paths if path.suffix == ".toml" and path.stem != _METHODS)


def build_listing() -> Table:
    """Build a table of all experiments for the terminal: what each shows, which data it needs, and how long it takes.

    The title names the command `ddpn reproduce`.
    """
    table = Table(title="ddpn reproduce NAME")
    for heading in ("experiment", "what it shows", "in the paper", "needs", "network"):
        table.add_column(heading, no_wrap=heading == "experiment", overflow="fold")
    table.add_column("minutes", justify="right")
    for name in list_names():
        described = read_experiment(name)
        needs = f"data set {described.data['name']}" if described.data else "nothing"
        if described.simulation:
            needs = f"simulated ({described.simulation['name']})"
        # A file that shows the runs of another experiment has a separate title.
        table.add_row(
            name,
            read_toml(name)["title"],
            described.paper,
            needs,
            _describe_network(described),
            f"{described.minutes:g}",
        )
    table.caption = "Minutes on two CPU cores; 600 or more are estimates for experiments that need a GPU."
    return table


def _describe_network(described: Experiment) -> str:
    """Describe the network of an experiment, such as "MLP 128-128-128-64"; return "" if it has no methods."""
    if not described.methods:
        return ""
    backbone = described.backbone or {}
    head = "-".join(map(str, described.training.hidden))
    pretrained = backbone.get("pretrained", "")
    return f"{' '.join(filter(None, [backbone.get('name', ''), pretrained]))} MLP {head}".strip()


def select_experiments(
    chosen: Sequence[str],
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    **training: Any,
) -> list[Experiment]:
    """Read experiments by name, without duplicates, and change their training settings to `training`.

    In `chosen`, the name "all" stands for every experiment with `in_all=True`. If `quick` is True, the training is
    shortened to a tenth (`Experiment.quick`). `only` lists methods to run; a method that no selected experiment has
    raises a `ConfigError`.
    """
    valid_names = [*list_names(), EVERY]
    if not chosen:
        raise ConfigError(
            f"NAME must be one or more of {', '.join(valid_names)}. The list of experiments describes them."
        )
    for name in chosen:
        check_choice("NAME", name, valid_names)
    all_experiments = (
        [candidate for candidate in map(read_experiment, list_names()) if candidate.in_all] if EVERY in chosen else []
    )
    # Keyed by the experiment's own name, because several files may show the runs of one experiment.
    selected = {
        candidate.name: candidate
        for candidate in [*all_experiments, *(read_experiment(name) for name in chosen if name != EVERY)]
    }
    for method in only:
        check_choice(
            "method in `only`",
            method,
            dict.fromkeys(m.name for candidate in selected.values() for m in candidate.methods),
        )
    shorter = [candidate.quick() if quick else candidate for candidate in selected.values()]
    return [candidate.with_training(**training) for candidate in shorter]


def read_toml(name: str) -> JsonObject:
    """Read the TOML file `name`.toml of the catalogue as a dict, without checks; `name` is not validated."""
    return tomllib.loads((_CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))


def read_reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """Read one of the paper's tables from the folder `reference`, as a dict from (kind, method, metric) to a number.

    `table` is the name of a CSV file without its suffix. The kind is "single" for the mean over single networks,
    "ensemble" for an ensemble, or "" if the table does not distinguish them. If the table has several data sets,
    `dataset` selects one.
    """
    rows = list(csv.DictReader((_REFERENCE / f"{table}.csv").read_text(encoding="utf-8").splitlines()))
    selected = [row for row in rows if "dataset" not in row or row["dataset"] == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in selected}


def read_methods() -> dict[str, Method]:
    """Read all methods, as a dict by name, from the file methods.toml of the catalogue."""
    return {name: Method(name, **_with_tuples(row)) for name, row in read_toml(_METHODS).items()}


def read_experiment(name: str) -> Experiment:
    """Read an experiment by name. A name that is not in the catalogue raises a `ConfigError`."""
    return parse_experiment(check_choice("experiment", name, list_names()), read_toml(name))


def parse_experiment(name: str, content: JsonObject) -> Experiment:
    """Convert the content of a TOML file to the experiment `name`.

    If the content has the key `of`, it is the name of another experiment. That experiment is returned, but with the
    `paper` of this content: the same runs are shown as other tables and figures of the paper.
    """
    if "of" in content:
        return replace(read_experiment(content["of"]), paper=content["paper"])
    declared: JsonObject = _with_tuples(content)
    if "training" in content:
        methods_by_name = read_methods()
        declared["methods"] = tuple(methods_by_name[method_name] for method_name in content["methods"])
        declared["training"] = TrainingSettings(**_with_tuples(content["training"]))
        declared["grid"] = _with_tuples(content.get("grid", {}))
    return Experiment(name, **declared)


def _with_tuples(values: JsonObject) -> JsonObject:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
