"""monitor: compare the rows of a table with the training rows of a model folder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ddpn.analysis.monitoring import LEAST_ROWS, Monitoring, compare
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_column
from ddpn.sample import Sample
from ddpn.tables.cells import cleaned, is_text
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.prediction import rows_to_score


def monitor(
    folder: ModelFolder,
    frame: Any,
    alpha: float = 0.01,
    effect: float = 0.1,
    ignore: Sequence[str] = (),
    progress: Callable[[str], object] = lambda step: None,
) -> Monitoring:
    """Compare new rows with the training rows of a model.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        New rows; their counts may be known for some, all or none of them.
    alpha, effect, progress
        As for `ddpn.analysis.monitoring.compare`.
    ignore : sequence of str
        Columns of the table that are compared but never count as drift, such as dates.

    Returns
    -------
    Monitoring
    """
    roles = folder.roles
    for name in ignore:
        check_column(name, [column.name for column in roles.columns], "ignore", InputError)
    ignored = {part for column in roles.columns if column.name in ignore for part in column.inputs}
    sample, notes = _with_counts(folder, frame)
    found = compare(
        folder.model.predictor_,
        roles.features(frame),
        sample,
        alpha=alpha,
        effect=effect,
        ignored=ignored,
        days=roles.days,
        progress=progress,
    )
    scores = {**found.scores, "test": _test_scores(folder)} if found.scores else {}
    return replace(found, not_compared=(*found.not_compared, *notes), scores=scores)


def _with_counts(folder: ModelFolder, frame: Any) -> tuple[Sample | None, list[str]]:
    """The rows whose counts are known and that the model was not fitted to; None, with a note, if they are too few."""
    target = folder.roles.target
    if target is None or target not in frame.columns:
        what = "the model does not know its target" if target is None else f"the table has no column {target!r}"
        return None, [f"Coverage and PIT: {what}."]
    series = frame[target]
    missing = cleaned(series, folder.roles.missing).is_null() if is_text(series) else series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(True)
    frame = frame.filter(~missing)
    if frame.height < LEAST_ROWS:
        return None, [f"Coverage and PIT: {frame.height:,} rows have a count so far, {LEAST_ROWS} are needed."]
    sample, note, _ = rows_to_score(folder, frame)
    notes = [note] if note else []
    if len(sample) < LEAST_ROWS:
        few = f"{len(sample):,} rows with counts were not trained on, {LEAST_ROWS} are needed"
        return None, [*notes, f"Coverage and PIT: {few}."]
    return sample, notes


def _test_scores(folder: ModelFolder) -> dict[str, Any] | None:
    """The scores of the test rows of the fit."""
    entries = folder.task.get("test", {}).get("entries", [])
    found = next((entry for entry in entries if entry["name"] == "mixture"), None)
    return None if found is None else {name: found[name] for name in ("crps", "mae", "nll", "coverage")}
