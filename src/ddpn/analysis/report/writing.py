"""write_report: from a fitted model and a test set to one HTML file."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from ddpn.analysis.numbers import plural
from ddpn.analysis.report import page
from ddpn.analysis.report.evidence import Evidence, gather
from ddpn.analysis.report.sections import explanation_of, fitted_rows, likelihood_text, members_text, sections
from ddpn.runtime.errors import InputError


def write_report(
    path: str | PathLike[str],
    *,
    model: Any,
    X: Any,
    y: Any,
    exposure: Any = None,
    upper: Any = None,
    censored: Any = None,
    weight: Any = None,
    baselines: Mapping[str, Distribution] | None = None,
    task: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    leak: str = "",
    meaning: str = "",
    labels: Sequence[Any] | None = None,
    ids: tuple[str, Sequence[Any]] | None = None,
    groups: Sequence[Any] | None = None,
    interval_groups: Sequence[Any] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Path:
    """Evaluate a fitted model on a test set, write the result as one self-contained HTML file and return its path.

    Parameters
    ----------
    path : path
        The file to write, such as "report.html".
    model : estimator
        The fitted model.
    X, y, exposure, upper, censored, weight : array-like
        The test set, as for `fit`.
    baselines : mapping of str to Distribution, optional
        What other models predict for the same rows, by name; a Normal is rounded to counts.
    task : mapping, optional
        What is known about the fit ("target", "command", "split", ...; "note" says which rows are evaluated): all of it
        is shown, none of it is required.
    warnings : sequence of str
        Sentences shown at the top.
    leak : str
        A sentence about a suspected target leak: it is shown there, too, and forbids a positive verdict.
    meaning : str
        A sentence about what the scores mean, such as that they are for new groups of rows.
    labels : sequence, optional
        What the rows are called. Default: the index of a data frame, or positions.
    ids : tuple of str and sequence, optional
        The name and the values of a column that identifies the rows.
    groups : sequence, optional
        What each row belongs to, such as a person: the verdict then knows that rows of one group are alike.
    interval_groups : sequence, optional
        The labels of the groups that intervals are calibrated by, if these are no column of X.
    progress : callable, optional
        Called with the name of each step.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from ddpn import DDPNRegressor
    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> y = np.random.default_rng(1).poisson(np.exp(1 + X[:, 0]))
    >>> model = DDPNRegressor(members=2, hidden=(8,), epochs=2, random_state=0).fit(X[:60], y[:60])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", model=model, X=X[60:], y=y[60:], task={"target": "visits"})
    ...     path.name, "visits" in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    check_is_fitted(model)
    place = Path(path)
    if place.is_dir():
        raise InputError(f"path must name a file such as report.html, got the folder {place}.")
    known, step = dict(task or {}), progress or (lambda stage: None)
    target = str(known.get("target") or "y")
    evidence = gather(
        model,
        X,
        y,
        exposure,
        weight,
        upper,
        censored,
        baselines=baselines,
        leak=leak,
        meaning=meaning,
        labels=labels,
        ids=ids,
        groups=groups,
        interval_groups=interval_groups,
        names={role: str(known[role]) for role in ("exposure", "upper") if known.get(role)},
        progress=step,
    )
    found = explanation_of(evidence, step)
    step("Drawing figures")
    parts = sections(model, evidence, found, target, known)
    above = [*filter(None, [leak]), *warnings]
    text = page.page(f"How well the model predicts {target}", _summary(model, evidence, known), parts, above)
    return page.write_page(place, text)


def _summary(model: Any, evidence: Evidence, task: Mapping[str, Any]) -> list[str]:
    """What the model is, what it was fitted to and evaluated on, and when."""
    rows = fitted_rows(model)
    when = f"on {str(task['fitted'])[:10]}" if task.get("fitted") else ""
    fitted = [" ".join(filter(None, ["fitted", f"to {rows}" if rows else "", when]))] if rows or when else []
    return [
        members_text(model),
        f"likelihood {likelihood_text(model)}",
        *fitted,
        f"evaluated on {plural(len(evidence.y), 'row')} on {date.today().isoformat()}",
    ]
