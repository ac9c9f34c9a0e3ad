"""ddpn export: a model as one ONNX file; and what `ddpn show` prints about it. Arguments and printing only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import command
from ddpn.cli.console import print_json, show
from ddpn.cli.options import option
from ddpn.cli.tables import fact_table, folds_of, member_words
from ddpn.storage.model_files import refuses_strange_files
from ddpn.tables.splits import rows_words

Out = Annotated[Path, option("FILE", "The ONNX file to write, such as model.onnx.", "-o", "--out")]
Quantiles = Annotated[str, option("LEVELS", "Quantiles to add as outputs: 0.1,0.9 adds q0.1 and q0.9.")]
PmfUpTo = Annotated[
    int | None,
    option(
        "COUNT",
        "The largest count whose probability is an output. Default: the 99.9% quantile of the training counts, at "
        "least 20 and at most 1,000.",
    ),
]


@command("export")
def export(
    model: o.Model,
    out: Out,
    quantiles: Quantiles = "",
    coverage: o.Coverage = 0.9,
    pmf_up_to: PmfUpTo = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Write a model as one ONNX file, which predicts without Python.

    The file takes the raw columns of the table and returns mean, variance, aleatoric, epistemic, median, lower and
    upper (an interval that contains the count with probability --coverage), --quantiles, and pmf, the probabilities of
    0, 1, 2, ..., with their sum, pmf_mass. Needs the extra export.

    Example: ddpn export bikes.model -o bikes.onnx --quantiles 0.1,0.9
    """
    from ddpn.tables.files import check_free
    from ddpn.workflow.prediction_request import Request, parse_levels

    levels = parse_levels(quantiles)
    Request(coverage=coverage, quantiles=levels)
    check_free(out, overwrite)
    # Only now, as it imports torch: wrong options are reported at once.
    from ddpn.export import export_onnx

    about = export_onnx(model, out, quantiles=levels, coverage=coverage, pmf_up_to=pmf_up_to, overwrite=overwrite)
    if as_json:
        print_json({"file": str(out), **about})
        return
    show(fact_table(_interface(about)))
    typer.echo(f"Written to {out} ({out.stat().st_size / 1e6:,.1f} MB).")


@refuses_strange_files
def show_onnx(path: Path, as_json: bool) -> None:
    """Print the inputs and outputs of an exported file, and how the model was fitted."""
    from ddpn.export.description import describe_onnx

    about = describe_onnx(path)
    if as_json:
        print_json({"file": str(path), **about})
        return
    show(fact_table([*_interface(about), *_fit(about)]))


def _interface(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Inputs and outputs."""
    inputs = [(f"Input {each['name']}", f"{each['type']}, {each['meaning']}") for each in about["inputs"]]
    outputs = ", ".join(about["outputs"].values())
    interval = f"{about['coverage']:.0%} interval from lower to upper; pmf from 0 to {about['pmf_up_to']}"
    return [*inputs, ("Outputs", f"{outputs}; {interval}")]


def _fit(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Members, and how the model was fitted."""
    fit = about["fit"]
    facts = [(f"Member {name}", member_words(member)) for name, member in about["members"].items()]
    if about["target"] is not None:
        facts.append(("Target", about["target"]))
    if "split" in fit:
        facts.append(("Rows", rows_words(fit["split"]["rows"], folds_of(about["members"]))))
    for name in ("data", "command", "date"):
        if name in fit:
            facts.append((name.capitalize(), str(fit[name])))
    scored = next((each for each in fit.get("test", {}).get("entries", []) if each["name"] == "mixture"), None)
    if scored is not None:
        facts.append(("Test scores", f"CRPS {scored['crps']:.4g}, 90% coverage {scored['coverage']:.1%}"))
    return [*facts, ("Exported", f"by ddpn {about['ddpn']}")]
