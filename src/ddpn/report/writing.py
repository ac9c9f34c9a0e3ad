"""write_report: from a fitted model and rows it has not seen to one HTML file."""

from collections.abc import Callable, Mapping
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from ddpn.errors import InputError
from ddpn.estimators import CountRegressor
from ddpn.files import write_bytes
from ddpn.report.evidence import gather
from ddpn.report.importance import importances
from ddpn.report.numbers import plural
from ddpn.report.page import page
from ddpn.report.sections import Findings, sections


def write_report(
    path: str | PathLike[str],
    *,
    model: CountRegressor,
    X: Any,
    y: Any,
    exposure: Any = None,
    weight: Any = None,
    baselines: Mapping[str, Distribution] | None = None,
    levels: Mapping[str, float] | None = None,
    task: Mapping[str, Any] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Path:
    """Judge a fitted model on rows it was not trained on, and write what was found as one self-contained HTML file.

    `X` is what the model takes, `y` its counts; `baselines` are other laws for the same rows, by name, to compare with
    (Normals are taken as the counts they round to). Their 90% intervals are taken at these `levels`, by name, where
    calibration found others than 0.9; the model knows its own from `fit_intervals`. `task` is what is known about the
    fit ("target", "command", "versions", "split", ...; "note" says which rows these are): all of it is shown, none of
    it is needed. `progress` is told what is being done.

    >>> import tempfile
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = np.random.default_rng(1).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountRegressor(members=2, hidden=(8,), epochs=5, random_state=0).fit(X[:200], y[:200])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", model=model, X=X[200:], y=y[200:], task={"target": "visits"})
    ...     path.name, "visits" in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    check_is_fitted(model)
    place = Path(path)
    if place.is_dir():
        raise InputError(f"path must name a file, got {place}, which is a folder. Add a name such as report.html.")
    known, told = dict(task or {}), progress or (lambda stage: None)
    target = str(known.get("target") or "y")
    evidence = gather(model, X, y, exposure, weight, baselines or {}, told, levels)
    found = importances(model, evidence, told, str(known.get("exposure") or "exposure"))
    told("Drawing figures")
    parts = sections(Findings(model, evidence, found, target, known))
    likelihood = str(getattr(model, "likelihood", "")).replace("_", " ")
    under = [
        f"{type(model).__name__}, {likelihood} likelihood",
        plural(evidence.members - evidence.linear, "network") + (" and a GLM" if evidence.linear else ""),
        f"judged on {plural(len(evidence.y), 'row')}",
        date.today().isoformat(),
    ]
    text = page(f"How well the model predicts {target}", under, parts)
    try:
        write_bytes(place, text.encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"path must be writable, got {place} ({reason}). Name another place.") from error
    return place
