"""Scores of the mixture and of every member on the same rows, and the verdict on them."""

from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.analysis.evaluation import Evaluation
from ddpn.analysis.member_names import label_of
from ddpn.analysis.verdict import verdict
from ddpn.distributions import discretized
from ddpn.metrics import absolute_error, crps, nll
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample, rows_named

#: The coverage of the intervals that are scored.
COVERAGE = 0.9
#: The scores of a leaderboard.
SCORES = ("mae", "crps", "nll", "coverage", "width")
NETWORKS = "networks"
#: What a verdict calls a part of the model that got no weight in its mixture: as an alternative, it is used alone.
_ALONE = {NETWORKS: "the ensemble of networks alone"}
#: Kinds of members by how many numbers are fitted. A user's own kinds count as simpler than mixtures only.
_SIMPLEST_FIRST = ("constant", "poisson_glm", "glm", "trees", "joint_trees", NETWORKS, "large_networks")


class RowScores(NamedTuple):
    """One value per row: distance of the median, CRPS, NLL, whether the interval covers the count, its width.

    `interior` is whether the count lies inside the interval and not at an end.
    """

    mae: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    coverage: np.ndarray
    width: np.ndarray
    interior: np.ndarray

    def means(self, weight: np.ndarray | None) -> dict[str, float | None]:
        """Means over rows, by name; None for the infinite NLL of an impossible count, which JSON cannot hold."""
        found = {name: float(np.average(getattr(self, name), weights=weight)) for name in SCORES}
        return {name: value if np.isfinite(value) else None for name, value in found.items()}


def score_rows(predictor: Predictor, sample: Sample, of: str = MIXTURE) -> RowScores:
    """Scores per row of the mixture or `of` one member, with its calibrated interval. Normals count as rounded."""
    parts = []
    with single_thread(), torch.no_grad():
        for block in sample.blocks():
            with rows_named(block.labels):
                dist: Any = discretized(next(predictor.recorded_blocks(block, of))[0])
            y = torch.from_numpy(block.y)
            low, high = predictor.interval(dist, COVERAGE, of, block.interval_groups)
            interval = (low <= y) & (y <= high), high - low, (low < y) & (y < high)
            scores = absolute_error(dist, y), crps(dist, y), nll(dist, y), *interval
            parts.append([values.double().numpy() for values in scores])
    return RowScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _is_mixture(predictor: Predictor, name: str) -> bool:
    """Whether a member has the distributions and the intervals of the mixture, so that its scores are the same."""
    if name != predictor.sole_member or predictor.groups is not None:
        return False
    return predictor.interval_level(COVERAGE, name) == predictor.interval_level(COVERAGE)


def _simpler(predictor: Predictor) -> list[str]:
    """The members that are simpler than the mixture: all if it has several members, else those of a simpler kind."""
    if len(predictor.mixed) > 1:
        return list(predictor.members)
    name = next(iter(predictor.mixed))
    return list(_SIMPLEST_FIRST[: _SIMPLEST_FIRST.index(name)]) if name in _SIMPLEST_FIRST else []


class Board(NamedTuple):
    """Mean scores of the mixture and of every member, best first, and what the verdict on the mixture is made of."""

    entries: list[dict[str, Any]]
    evaluation: Evaluation


def leaderboard(predictor: Predictor, sample: Sample, leaks: tuple[str, ...] = (), meaning: str = "") -> dict[str, Any]:
    """Mean scores of the mixture and every member, best first, and the verdict on the mixture; ready for JSON.

    Parameters
    ----------
    predictor : Predictor
        The model.
    sample : Sample
        Rows to score it on, such as test rows.
    leaks : tuple of str
        Sentences about suspected target leaks, which forbid a positive verdict.
    meaning : str
        A sentence about what the scores mean, such as that they are for new groups of rows.
    """
    entries, found = board(predictor, sample, leaks, meaning)
    decision = verdict(found)
    return {
        "rows": len(sample),
        "coverage": COVERAGE,
        "entries": entries,
        "crps_gain": found.gain.mean,
        "crps_gain_error": found.gain.error,
        "crps_gain_interval": [found.gain.low, found.gain.high],
        "verdict": {"level": decision.level, "sentences": list(decision.sentences), "prefer": decision.prefer},
    }


def board(predictor: Predictor, sample: Sample, leaks: tuple[str, ...] = (), meaning: str = "") -> Board:
    """Score the mixture and every member on the same rows.

    The mixture is compared with every simpler model used alone: all members but the networks, which count only where
    they have no weight.

    Parameters
    ----------
    predictor : Predictor
        The model.
    sample : Sample
        Rows to score it on, such as test rows.
    leaks : tuple of str
        Sentences about suspected target leaks, which forbid a positive verdict.
    meaning : str
        A sentence about what the scores mean, such as that they are for new groups of rows.
    """
    rows = {MIXTURE: score_rows(predictor, sample)}
    for name in predictor.members:
        rows[name] = rows[MIXTURE] if _is_mixture(predictor, name) else score_rows(predictor, sample, name)
    labels = {name: label_of(name, member) for name, member in predictor.members.items()}
    seconds = sum(predictor.seconds.get(name, 0.0) for name in predictor.mixed)
    entries = [
        {
            "name": name,
            "label": labels.get(name, name),
            "weight": None if name == MIXTURE else predictor.weights[name],
            **scores.means(sample.weight),
            "seconds": seconds if name == MIXTURE else predictor.seconds.get(name),
        }
        for name, scores in rows.items()
    ]
    # A member of weight 1 is the mixture; networks beside others are what the mixture is made of.
    others = [name for name, w in predictor.weights.items() if w == 0.0 or (w < 1.0 and name != NETWORKS)]
    found = Evaluation.from_rows(
        MIXTURE,
        {name: rows[name].crps for name in (MIXTURE, *others)},
        rows[MIXTURE].coverage > 0,
        sample.weight,
        y=sample.y,
        error={name: rows[name].mae for name in (MIXTURE, *others)},
        interior=rows[MIXTURE].interior > 0,
        row_labels=sample.labels,
        labels=labels | _ALONE,
        simpler=_simpler(predictor),
        leak=" ".join(leaks),
        warnings=tuple(filter(None, [meaning])),
        group=sample.group,
        target_coverage=COVERAGE,
    )
    return Board(sorted(entries, key=lambda entry: np.inf if entry["crps"] is None else entry["crps"]), found)
