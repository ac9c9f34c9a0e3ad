"""`write_report`: evaluate a fitted model, and write the result as one HTML file."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cache
from os import PathLike
from pathlib import Path

import jinja2
from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from ddpn.analysis.explanations.inputs import FittedModel
from ddpn.analysis.report import sections
from ddpn.analysis.report.evidence import gather_evidence
from ddpn.calibration.calibrate import CalibratedRows
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import as_text
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_text
from ddpn.tables.row_draw import MAX_ROWS, check_max_rows, format_drawn_rows


def write_report(
    path: str | PathLike[str],
    model: FittedModel,
    sample: CountRows,
    *,
    baselines: Mapping[str, Distribution] | None = None,
    task: JsonObject | None = None,
    warnings: Sequence[str] = (),
    leak: str = "",
    scores_note: str = "",
    ids: tuple[str, Sequence[object]] | None = None,
    progress: Callable[[str], object] | None = None,
    held_out: CalibratedRows | None = None,
    max_rows: int | None = MAX_ROWS,
    total: int | None = None,
) -> Path:
    """Evaluate a fitted model on a test set, write the result as one self-contained HTML file, and return its path.

    An existing file is replaced.

    Parameters
    ----------
    path : path
        The file to write, such as "report.html".
    model : estimator
        The fitted model.
    sample : CountRows
        The test set. Its `labels` are the names of the rows. If it has a `group`, the verdict allows for dependence
        of rows within groups.
    baselines : mapping of str to Distribution, optional
        The distributions that other models predict for the same rows, by name. A Normal is scored as the
        distribution of its rounded values.
    task : mapping, optional
        Information about the fit, such as "target", "command" and "split"; "note" says which rows are evaluated.
        All entries are shown, and none is required.
    warnings : sequence of str
        Sentences to show at the top.
    leak : str
        A sentence about a suspected target leak. It is shown at the top and rules out a positive verdict.
    scores_note : str
        A sentence about the rows for which the scores hold, for example that they belong to new groups.
    ids : tuple of str and sequence, optional
        The name and the values of a column that identifies the rows.
    progress : callable, optional
        Called with the name of each step.
    held_out : CalibratedRows, optional
        The same rows with out-of-fold predictions, if the model was cross-fitted to all of them. They are then
        scored out of fold.
    max_rows : int or None
        The largest number of rows to use. From a larger test set, rows are drawn at random, always the same ones.
        None uses all rows.
    total : int, optional
        The number of rows of the test set, if `sample` was already drawn from it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from ddpn import DDPNRegressor
    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> y = np.random.default_rng(1).poisson(np.exp(1 + X[:, 0])).astype(float)
    >>> model = DDPNRegressor(n_networks=2, hidden=(8,), epochs=2, random_state=0).fit(X[:60], y[:60])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", model, CountRows(X[60:], y[60:]), task={"target": "visits"})
    ...     path.name, "visits" in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    check_is_fitted(model)
    check_max_rows(max_rows)
    target_path = Path(path)
    if target_path.is_dir():
        raise InputError(f"path must name a file such as report.html, got the folder {target_path}.")
    fit_facts, step = dict(task or {}), progress or (lambda stage: None)
    target = str(fit_facts.get("target") or "y")
    names = {role: str(fit_facts[role]) for role in ("exposure", "upper") if fit_facts.get(role)}
    evidence = gather_evidence(model, sample, baselines, leak, scores_note, ids, names, step, held_out, max_rows, total)
    explanation = sections.explain_columns(evidence, step)
    step("Drawing figures")
    content = sections.collect_content(model, evidence, explanation, target, fit_facts)
    row_word = evidence.board.evaluation.row_words.removesuffix("s")
    fitted = [f"to {sections.describe_rows(model)}" if sections.describe_rows(model) else ""]
    fitted += [f"on {str(fit_facts['fitted'])[:10]}" if fit_facts.get("fitted") else ""]
    facts = [
        sections.describe_members(model),
        f"likelihood {sections.describe_likelihood(model)}",
        " ".join(["fitted", *filter(None, fitted)]) if any(fitted) else "",
        f"evaluated on {format_drawn_rows(len(evidence.y), evidence.total, row_word)} on {date.today().isoformat()}",
    ]
    text = _load_template().render(
        title=f"How well the model predicts {target}",
        facts=[*filter(None, facts)],
        warnings=[*filter(None, [leak]), *warnings],
        **content,
    )
    try:
        write_text(target_path, text)
    except OSError as error:
        raise InputError(f"Cannot write {target_path}: {error.strerror or error}.") from error
    return target_path


@cache
def _load_template() -> jinja2.Template:
    """Load and compile the HTML template; the result is cached.

    The template escapes all text and raises an error for undefined names.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ddpn.analysis.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["as_text"] = as_text
    return environment.get_template("template.html")
