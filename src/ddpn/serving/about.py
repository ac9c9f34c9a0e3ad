"""What a model is, what it was fitted to, how it scored, how it is calibrated, and its limits."""

from typing import Any

from ddpn.serving.model import ServedModel

#: Facts of the fit that are shown; paths and commands of the machine that fitted the model are not.
_SPLIT = ("how", "rows")


def about(served: ServedModel) -> dict[str, Any]:
    """Facts about a model and its columns, ready for JSON.

    Parameters
    ----------
    served : ServedModel
        The model.
    """
    saved, predictor, roles = served.saved, served.predictor, served.folder.roles
    task = saved["task"]
    members = [
        {"name": name, "weight": known["weight"], "facts": known["facts"]} for name, known in saved["members"].items()
    ]
    return {
        "name": served.name,
        "version": served.version,
        "ddpn": saved["ddpn"],
        "fitted": task.get("date"),
        "target": roles.target,
        "exposure": roles.exposure,
        "rows": None if predictor.profile is None else predictor.profile.rows,
        "split": {key: task["split"][key] for key in _SPLIT} if "split" in task else None,
        "members": members,
        "scores": task.get("test"),
        "calibration": _calibration(served),
        "limits": _limits(served),
        "warnings": [*task["leaks"], *task["warnings"]],
        "columns": [_column(column) for column in served.columns if column.is_required],
        "example": served.example,
    }


def _column(column: Any) -> dict[str, Any]:
    known = {"levels": list(column.levels)} | {name: getattr(column, name) for name in ("range", "days", "integers")}
    about = {"name": column.name, "kind": column.kind, "typical": column.example}
    return about | {name: value for name, value in known.items() if value}


def _calibration(served: ServedModel) -> list[str]:
    """Sentences about what is calibrated."""
    predictor = served.predictor
    levels = predictor.intervals.get("mixture")
    found = []
    if levels is None:
        found.append("Intervals are not calibrated: they are those of the predicted distributions.")
    else:
        found.append(f"Intervals are calibrated on {int(levels.rows[0]):,} rows that were not trained on.")
    if predictor.groups is not None:
        by = predictor.groups.by or "ranges of the predicted mean"
        found.append(f"Intervals are calibrated within groups: {by}.")
    if predictor.is_recalibrated():
        found.append("The predicted distributions are recalibrated.")
    if predictor.ood is not None:
        share = f"{100 * predictor.ood.alpha:.3g}%"
        found.append(f"Out-of-distribution flags are set for {share} of rows like the training data.")
    else:
        found.append("Out-of-distribution flags are not calibrated.")
    return found


def _limits(served: ServedModel) -> list[str]:
    """Sentences about where predictions do not hold."""
    found = ["Predictions hold for rows like those of the training. Rows that are flagged may be wrong by any amount."]
    ignored = () if served.predictor.profile is None else served.predictor.profile.ignored
    if ignored:
        found.append(f"The out-of-distribution flag ignores {', '.join(ignored)}, which follow time.")
    counts = served.predictor.counts
    if counts.is_bounded:
        upper = "the upper bound of each row" if counts.upper_per_row else counts.upper
        found.append(f"Counts lie between {counts.lower} and {'any number' if upper is None else upper}.")
    if served.folder.roles.exposure is not None:
        found.append(f"Counts are those of each row's exposure, {served.folder.roles.exposure!r}.")
    return found
