"""Scores of the mixture and of every member on the same rows, and the verdict on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.verdict import COVERAGE, Evaluation, RowScores, Verdict, verdict
from ddpn.distributions import discretized
from ddpn.distributions.limits import limited
from ddpn.members import label_of
from ddpn.members.folds import copies_of
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.metrics import absolute_error, crps, nll
from ddpn.metrics.predictive import known
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.display import html_table, text_table
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample, rows_named


def score_rows(predictor: Predictor, sample: Sample, of: str = MIXTURE) -> RowScores:
    """Scores per row of the mixture or `of` one member, with its calibrated interval. Normals count as rounded."""
    parts = []
    with single_thread(), torch.no_grad():
        for block in sample.blocks():
            with rows_named(block.labels):
                dist: Any = discretized(next(predictor.recorded_blocks(block, of))[0])
            parts.append(scored_rows(dist, block.y, predictor.interval(dist, COVERAGE, of, block.interval_groups)))
    return RowScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def scored_rows(dist: Any, y: np.ndarray, interval: tuple[Tensor, Tensor]) -> RowScores:
    """Scores per row of a count distribution with these intervals."""
    (low, high), counts = interval, torch.from_numpy(y)
    inside, interior = (low <= counts) & (counts <= high), (low < counts) & (counts < high)
    scores = absolute_error(dist, counts), crps(dist, counts), nll(dist, counts), inside, high - low, interior
    return RowScores(*(values.double().numpy() for values in scores))


def _complexity(member: Member) -> int:
    return copies_of(member)[0].complexity


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Mean scores of the mixture, of every member and of other candidates on the same rows.

    Attributes
    ----------
    entries : list of dict
        A row per candidate, the smallest CRPS first: "name", "label", "weight" in the mixture, "crps", "nll", "mae",
        "coverage" and "width" of the 90% intervals, and "seconds" of the fit.
    evaluation : Evaluation
        What the verdict on the mixture is made of.
    rows : int
        How many rows were scored.
    scores : dict of RowScores
        The scores of every row, by name.
    """

    entries: list[dict[str, Any]]
    evaluation: Evaluation
    rows: int
    scores: dict[str, RowScores] = field(repr=False)

    @property
    def verdict(self) -> Verdict:
        """Whether to use the mixture, in plain sentences."""
        return verdict(self.evaluation)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        gain, decision = self.evaluation.gain, self.verdict
        return {
            "rows": self.rows,
            "coverage": COVERAGE,
            "entries": self.entries,
            "crps_gain": gain.mean,
            "crps_gain_error": gain.error,
            "crps_gain_interval": [gain.low, gain.high],
            "verdict": {"level": decision.level, "sentences": list(decision.sentences), "prefer": decision.prefer},
        }

    def cells(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]], set[tuple[int, int]]]:
        """Headings and rows as people read them, and the place of the smallest CRPS if there are several."""
        names = ("label", "weight", "crps", "nll", "mae", "coverage", "width", "seconds")
        share = f"{COVERAGE:.0%}"
        headings = ("", "weight", "CRPS", "NLL", "MAE", f"{share} coverage", f"{share} width", "fit, s")
        rows = []
        for entry in self.entries:
            cells = entry | {"coverage": f"{entry['coverage']:.1%}"}
            if entry["weight"] is not None:
                cells["weight"] = f"{entry['weight']:.0%}"
            rows.append(tuple(cells[name] for name in names))
        return headings, rows, {(0, 2)} if len(rows) > 1 else set()

    def __str__(self) -> str:
        return f"Scores on {self.rows:,} rows\n{text_table(*self.cells()[:2])}\n{self.verdict}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>Scores on {self.rows:,} rows</p>{html_table(*self.cells())}{self.verdict._repr_html_()}"


def leaderboard(
    predictor: Predictor,
    sample: Sample,
    leaks: Sequence[str] = (),
    meaning: str = "",
    others: Mapping[str, Distribution] | None = None,
) -> Leaderboard:
    """Score the mixture and every member on the same rows.

    The mixture is compared with every simpler model used alone: all members but the networks, which count only where
    they have no weight.

    Parameters
    ----------
    predictor : Predictor
        The model.
    sample : Sample
        Rows to score it on, such as test rows.
    leaks : sequence of str
        Sentences about suspected target leaks, which forbid a positive verdict.
    meaning : str
        A sentence about what the scores mean, such as that they are for new groups of rows.
    others : mapping of str to Distribution, optional
        What other models predict for the same rows, by name; a Normal is rounded to counts.
    """
    rows = {MIXTURE: score_rows(predictor, sample)}
    for name in predictor.members:
        # A member has the scores of the mixture if it has its distributions and its intervals.
        is_mixture = name == predictor.sole_member and predictor.groups is None
        if is_mixture and predictor.interval_level(COVERAGE, name) == predictor.interval_level(COVERAGE):
            rows[name] = rows[MIXTURE]
        else:
            rows[name] = score_rows(predictor, sample, name)
    for name, dist in (others or {}).items():
        shape, number = tuple(known(dist).batch_shape), len(sample)
        if shape not in ((), (1,), (number,)):
            raise InputError(
                f"baseline '{name}' must have one distribution per row of X ({number}), got batch {shape}."
            )
        other = limited(discretized(dist if shape == (number,) else dist.expand((number,))), sample.limit)
        rows[name] = scored_rows(other, sample.y, other.interval(COVERAGE))
    labels = {name: label_of(name, member) for name, member in predictor.members.items()}
    seconds = sum(predictor.seconds.get(name, 0.0) for name in predictor.mixed)
    entries = [
        {
            "name": name,
            "label": labels.get(name, name),
            "weight": predictor.weights.get(name),
            **scores.means(sample.weight),
            "seconds": seconds if name == MIXTURE else predictor.seconds.get(name),
        }
        for name, scores in rows.items()
    ]
    # A member of weight 1 is the mixture; networks beside others are what the mixture is made of.
    networks = [name for name, member in predictor.members.items() if _complexity(member) >= Networks.complexity]
    compared = [name for name, w in predictor.weights.items() if w == 0.0 or (w < 1.0 and name not in networks)]
    compared += list(others or {})
    # All members are simpler than a mixture of several; than a single member, those of a simpler kind.
    simpler = list(predictor.members)
    if len(predictor.mixed) == 1:
        (own,) = predictor.mixed.values()
        simpler = [name for name, member in predictor.members.items() if _complexity(member) < _complexity(own)]
    found = Evaluation.from_rows(
        MIXTURE,
        {name: rows[name] for name in (MIXTURE, *compared)},
        sample.y,
        sample.weight,
        sample.group,
        labels=labels | {name: f"the ensemble of {labels[name]} alone" for name in networks},
        simpler=[*simpler, *(others or {})],
        leak=" ".join(leaks),
        meaning=meaning,
    )
    entries.sort(key=lambda entry: np.inf if entry["crps"] is None else entry["crps"])
    return Leaderboard(entries, found, len(sample), rows)
