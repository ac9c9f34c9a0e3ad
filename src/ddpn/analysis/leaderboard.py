"""Leaderboard: scores of the mixture and of every member on the same rows, with a verdict on the mixture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.distributions import Distribution

from ddpn.analysis.evaluation import Evaluation
from ddpn.analysis.leaderboard_table import tabulate_scores
from ddpn.analysis.row_scores import COVERAGE, RowScores, score_distribution, score_predictions, score_rows
from ddpn.analysis.verdict import Verdict, verdict
from ddpn.calibration.calibrate import CalibratedRows
from ddpn.calibration.intervals import make_interval
from ddpn.distributions import discretize
from ddpn.distributions.limits import censor_rows
from ddpn.members import format_member_label
from ddpn.members.folds import get_fold_copies
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.metrics.predictive import require_supported
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.runtime.frames import make_frame
from ddpn.storage.contents import JsonObject
from ddpn.tables.row_draw import draw_to_json, format_drawn_rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def _complexity(member: Member) -> int:
    return get_fold_copies(member)[0].complexity


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Mean scores of the mixture, of every member and of other candidates on the same rows.

    Attributes
    ----------
    entries : list of dict
        One entry per candidate, sorted by CRPS. Its keys are "name", "label", "weight" (in the mixture), the mean
        scores "crps", "nll" and "mae", and "seconds" (of the fit, without the time in which kernels were compiled).
        Three keys describe the 90% intervals: "coverage", "expected" (their mean probability by the predicted
        distributions) and "width".
    evaluation : Evaluation
        The scores and differences from which the verdict on the mixture is derived.
    rows : int
        The number of rows that were scored.
    total : int
        The number of rows from which the scored rows were drawn.
    library : {"polars", "pandas"}
        The library of the data frame that `to_frame` returns.
    """

    entries: list[JsonObject]
    evaluation: Evaluation
    rows: int
    total: int
    library: str = "polars"

    @property
    def verdict(self) -> Verdict:
        """The decision whether to use the mixture, with reasons as sentences."""
        return verdict(self.evaluation)

    @property
    def title(self) -> str:
        """A title that says which rows were scored, and how many."""
        return f"Scores on {format_drawn_rows(self.rows, self.total, self.evaluation.row_words.removesuffix('s'))}"

    def to_dict(self) -> JsonObject:
        """Return the leaderboard as a dictionary for JSON."""
        gain, decision = self.evaluation.gain, self.verdict
        return {
            "rows": self.rows,
            "draw": draw_to_json(self.rows, self.total),
            "scored_on": self.evaluation.row_words,
            "title": self.title,
            "coverage": COVERAGE,
            "entries": self.entries,
            "crps_gain": gain.mean,
            "crps_gain_error": gain.error,
            "crps_gain_interval": [gain.low, gain.high],
            "verdict": {"level": decision.level, "sentences": list(decision.sentences), "prefer": decision.prefer},
        }

    def to_frame(self) -> "pd.DataFrame | pl.DataFrame":
        """Return the entries as a data frame with one row per candidate.

        It is a pandas frame if X was one, otherwise a polars frame.
        """
        columns = dict.fromkeys(name for entry in self.entries for name in entry)
        return make_frame({name: [entry.get(name) for entry in self.entries] for name in columns}, self.library)

    def __str__(self) -> str:
        return f"{self.title}\n{tabulate_scores(self.entries, COVERAGE)}\n{self.verdict}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{self.title}</p>{tabulate_scores(self.entries, COVERAGE).to_html()}{self.verdict._repr_html_()}"


def leaderboard(
    predictor: Predictor,
    sample: CountRows,
    leaks: Sequence[str] = (),
    scores_note: str = "",
    others: Mapping[str, Distribution] | None = None,
    total: int | None = None,
) -> Leaderboard:
    """Score the mixture and every member, including members of weight 0, on the same rows.

    The verdict compares the mixture with its members and with other models. Networks that are part of the mixture are
    left out of this comparison, because an ensemble of networks is no simpler than the mixture.

    Parameters
    ----------
    predictor : Predictor
        The model.
    sample : CountRows
        The rows to score, such as test rows.
    leaks : sequence of str
        Sentences about suspected target leaks. They rule out a positive verdict.
    scores_note : str
        A sentence about the rows for which the scores hold, for example that they belong to new groups.
    others : mapping of str to Distribution, optional
        The distributions that other models predict, by name: one for each row, or a single one for all rows. A Normal
        is scored as the distribution of its rounded values.
    total : int, optional
        The number of rows from which the sample was drawn (`ddpn.tables.row_draw`), for the title.

    Returns
    -------
    Leaderboard
        One entry per candidate, sorted by CRPS, and the verdict.
    """
    rows = _score_candidates(predictor, sample)
    for name, dist in (others or {}).items():
        shape, number = tuple(require_supported(dist).batch_shape), len(sample)
        if shape not in ((), (1,), (number,)):
            raise InputError(
                f"Baseline '{name}' must have one distribution per row of X ({number}), got batch shape {shape}."
            )
        other = censor_rows(discretize(dist if shape == (number,) else dist.expand((number,))), sample.limit)
        rows[name] = score_distribution(other, sample.y, make_interval(other, COVERAGE))
    about = {"leak": " ".join(leaks), "scores_note": scores_note}
    return _rank_candidates(predictor, rows, sample, list(others or {}), total or len(sample), **about)


def out_of_fold_leaderboard(
    predictor: Predictor, rows: CalibratedRows, leaks: Sequence[str] = (), scores_note: str = ""
) -> Leaderboard:
    """Score the mixture and every member on cross-fitted rows, each row by models that were not fitted to it.

    Parameters
    ----------
    predictor : Predictor
        The model.
    rows : CalibratedRows
        The cross-fitted rows. Each member was fitted once per fold to the rows of all other folds, and the rows of the
        fold are predicted by this copy. They are also mixed with weights, and calibrated with levels, that were
        computed from the other folds.
    leaks, scores_note
        As for `leaderboard`.
    """
    held_out = rows.held_out
    scores = {name: score_predictions(predictor.predict_out_of_fold(rows, name)) for name in held_out.names}
    about = {"leak": " ".join(leaks), "scores_note": scores_note, "folds": held_out.n_parts}
    return _rank_candidates(predictor, scores, held_out.rows.rows(held_out.block_order), [], len(rows), **about)


def _score_candidates(predictor: Predictor, sample: CountRows) -> dict[str, RowScores]:
    """Return the scores of the rows in `sample` by the mixture and by every member of `predictor`, keyed by name."""
    rows = {MIXTURE: score_rows(predictor, sample)}
    for name in predictor.members:
        # If the mixture has a single member with the same intervals, both have the same scores.
        is_mixture = name == predictor.sole_member and predictor.calibration.groups is None
        calibration = predictor.calibration
        if is_mixture and calibration.interval_level(COVERAGE, name) == calibration.interval_level(COVERAGE):
            rows[name] = rows[MIXTURE]
        else:
            rows[name] = score_rows(predictor, sample, name)
    return rows


def _rank_candidates(
    predictor: Predictor,
    scores: Mapping[str, RowScores],
    sample: CountRows,
    baseline_names: Sequence[str],
    total: int,
    **options: Any,
) -> Leaderboard:
    """Make the leaderboard from the scores of all candidates on the same rows.

    `scores` maps the name of each candidate to its scores of the rows. `baseline_names` are the candidates that are not
    members of the mixture. `total` is the number of rows from which the sample was drawn. `options` are values of other
    fields of `Evaluation`.
    """
    labels = {name: format_member_label(name, member) for name, member in predictor.members.items()}
    seconds = sum(predictor.seconds.get(name, 0.0) for name in predictor.active_members)
    entries = [
        {
            "name": name,
            "label": labels.get(name, name),
            "weight": predictor.weights.get(name),
            **row_scores.means(sample.weight),
            "seconds": seconds if name == MIXTURE else predictor.seconds.get(name),
        }
        for name, row_scores in scores.items()
    ]
    # A member of weight 1 is the mixture itself. Networks in a mixture are not a simpler alternative.
    networks = [name for name, member in predictor.members.items() if _complexity(member) >= Networks.complexity]
    compared = [name for name, w in predictor.weights.items() if w == 0.0 or (w < 1.0 and name not in networks)]
    # All members are simpler than a mixture of several. If the model is a single member, only simpler kinds are.
    simpler = sorted(predictor.members, key=lambda name: _complexity(predictor.members[name]))
    if len(predictor.active_members) == 1:
        (member,) = predictor.active_members.values()
        simpler = [name for name in simpler if _complexity(predictor.members[name]) < _complexity(member)]
    evaluation = Evaluation.from_rows(
        MIXTURE,
        {name: scores[name] for name in (MIXTURE, *compared, *baseline_names)},
        sample.y,
        sample.weight,
        sample.group,
        labels=labels | {name: f"the ensemble of {labels[name]} alone" for name in networks},
        simpler=[*simpler, *baseline_names],
        **options,
    )
    entries.sort(key=lambda entry: np.inf if entry["crps"] is None else entry["crps"])
    return Leaderboard(entries, evaluation, len(sample), total)
