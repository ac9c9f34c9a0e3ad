"""The study of detection against scikit-learn and numpy; matched subsets."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from ddpn.metrics import auroc
from ddpn.paper.experiments.detection import detection, matched
from ddpn.runtime.errors import ConfigError, InputError

# The study ------------------------------------------------------------------------------------------------------


def scores(n_in: int = 400, n_out: int = 150, digits: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    pair = rng.gamma(2.0, 1.0, n_in), rng.gamma(3.0, 1.3, n_out)
    return pair if digits is None else tuple(x.round(digits) for x in pair)


def draws(n: int, held: int, times: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Held-out rows and the others of every resampling."""
    random = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(n, generator=random).numpy() for _ in range(times)]
    return [(order[:held], order[held:]) for order in orders]


def labelled(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[np.zeros(len(inside)), np.ones(len(outside))], np.r_[inside, outside]


def of_the_script(held: np.ndarray, kept: np.ndarray, outside: np.ndarray, alphas: np.ndarray) -> tuple[float, ...]:
    """AUROC, AUPR and FPR80 of points at thresholds, joined by straight lines."""
    tau = np.quantile(held, 1 - alphas)
    hits, alarms = ((x[:, None] > tau).sum(0) for x in (outside, kept))
    tpr, fpr = hits / len(outside), alarms / len(kept)
    precision = np.where(hits + alarms == 0, 1.0, hits / np.maximum(hits + alarms, 1))
    return auc(fpr, tpr), auc(tpr, precision), fpr[np.abs(tpr - 0.8).argmin()]


@pytest.mark.parametrize("digits", [None, 0])
@pytest.mark.parametrize("complement", ["right", "paper"])
def test_areas_are_those_of_every_threshold(digits, complement):
    inside, outside = scores(digits=digits)
    wanted = []
    for rows, others in draws(400, 80, 4):
        kept = inside[others] if complement == "right" else inside[~rows]
        label, both = labelled(kept, outside)
        fpr, tpr, _ = roc_curve(label, both, drop_intermediate=False)
        found = roc_auc_score(label, both), average_precision_score(label, both), fpr[tpr >= 0.8 - 1e-12].min()
        wanted.append(found)
    ours = detection(inside, outside, resamplings=4, complement=complement)
    for name, values in zip(("auroc", "aupr", "fpr80"), np.array(wanted).T, strict=True):
        assert getattr(ours, name) == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-10)
    assert (ours.n_in, ours.n_out) == (80 if complement == "paper" else 320, 150)


@pytest.mark.parametrize("complement", ["right", "paper"])
def test_areas_of_the_papers_script(complement):
    inside, outside = scores()
    alphas = np.linspace(1e-3, 1, 100)
    wanted = [
        of_the_script(inside[rows], inside[others] if complement == "right" else inside[~rows], outside, alphas)
        for rows, others in draws(400, 80, 3, seed=7)
    ]
    options = {"resamplings": 3, "seed": 7, "alphas": alphas, "complement": complement, "thresholds": "alphas"}
    ours = detection(inside, outside, **options)
    for name, values in zip(("auroc", "aupr", "fpr80"), np.array(wanted).T, strict=True):
        assert getattr(ours, name) == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-10)


def test_thresholds_are_quantiles_of_the_hold_out():
    inside, outside = scores()
    alphas = [0.5, 0.05, 0.0, 1.0]
    ours = detection(inside, outside, alphas=alphas, resamplings=3)
    assert ours.alpha.tolist() == sorted(alphas)
    tau = np.array([np.quantile(inside[rows], 1 - np.sort(alphas)) for rows, _ in draws(400, 80, 3)])
    fpr = [(inside[others][:, None] > t).mean(0) for t, (_, others) in zip(tau, draws(400, 80, 3), strict=True)]
    assert ours.threshold.numpy() == pytest.approx(tau.mean(0), rel=1e-12)
    assert ours.tpr.numpy() == pytest.approx(np.mean([(outside[:, None] > t).mean(0) for t in tau], axis=0), rel=1e-12)
    assert ours.fpr.numpy() == pytest.approx(np.mean(fpr, axis=0), rel=1e-12)


def test_about_alpha_of_the_other_in_distribution_rows_is_flagged():
    inside, outside = scores(20_000, 100)
    ours = detection(inside, outside)
    assert len(ours.alpha) == 101
    assert ours.fpr.numpy() == pytest.approx(ours.alpha.numpy(), abs=0.015)
    assert (ours.tpr.diff() >= 0).all()
    assert 0.05 in ours.alpha.tolist()


@pytest.mark.parametrize("digits", [None, 1, 0])
def test_curves_have_the_areas_and_the_points(digits):
    inside, outside = scores(60, 25, digits)
    ours = detection(inside, outside, resamplings=5)
    assert np.trapezoid(ours.roc.y, ours.roc.x) == pytest.approx(ours.auroc.mean, rel=1e-12)
    assert (ours.pr.x.diff() * ours.pr.y[1:]).sum().item() == pytest.approx(ours.aupr.mean, rel=1e-12)
    one = detection(inside, outside, resamplings=1)
    ((_, others),) = draws(60, 12, 1)
    label, both = labelled(inside[others], outside)
    fpr, tpr, _ = roc_curve(label, both, drop_intermediate=False)
    x, y = (part.numpy() for part in one.roc)
    assert np.interp(fpr + tpr, x + y, x) == pytest.approx(fpr, abs=1e-12)  # x + y only ever grows along the curve
    precision, recall, at = precision_recall_curve(label, both)
    kept = np.isin(at, outside)
    assert one.pr.x[1:].flip(0).numpy() == pytest.approx(recall[:-1][kept], rel=1e-12)
    assert one.pr.y[1:].flip(0).numpy() == pytest.approx(precision[:-1][kept], rel=1e-12)


def test_the_papers_rows_flatter_precision_and_leave_the_rest():
    inside, outside = scores(4000, 1000)
    right, paper = (detection(inside, outside, complement=which) for which in ("right", "paper"))
    assert paper.auroc.mean == pytest.approx(right.auroc.mean, abs=0.01)
    assert paper.aupr.mean > right.aupr.mean + 0.15  # a quarter as many inside rows to be mistaken for outside ones


def test_a_seed_repeats_and_another_does_not():
    inside, outside = scores()
    one, again, other = (detection(inside, outside, seed=seed) for seed in (1, 1, 2))
    assert one.auroc == again.auroc != other.auroc
    assert detection(inside, outside, resamplings=1).auroc.std == 0.0
    assert str(one) == f"AUROC {one.auroc.mean:.3f} ({one.auroc.std:.3f}), " + str(one).split(", ", 1)[1]


def test_infinite_scores_have_thresholds():
    ours = detection([0.0] + [math.inf] * 40, [math.inf, 3.0], alphas=[0.0, 0.05, 0.5], resamplings=3)
    assert ours.threshold.tolist() == [math.inf] * 3
    assert ours.fpr.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"holdout": 1.0}, "holdout must be a number between 0 and 1, got 1.0"),
        ({"holdout": None}, "holdout must be a number"),
        ({"holdout": "0.2"}, "holdout must be a number"),
        ({"resamplings": 0}, "resamplings must be an integer of at least 1, got 0"),
        ({"resamplings": True}, "resamplings must be an integer"),
        ({"resamplings": 2.0}, "resamplings must be an integer"),
        ({"seed": None}, "seed must be an integer"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"alphas": [5.0, 0.1]}, r"alphas must be numbers in \[0, 1\], got \[0.1, 5.0\]"),
        ({"alphas": [math.nan]}, "alphas must be numbers .*nan"),
        ({"alphas": []}, "alphas must be numbers"),
        ({"alphas": None}, "alphas must be numbers"),
        ({"alphas": "all"}, "alphas must be numbers .*'all'"),
        ({"complement": "left"}, "complement must be 'right' or 'paper', got 'left'"),
        ({"thresholds": "some"}, "thresholds must be 'all' or 'alphas', got 'some'"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        detection(range(20), [1.0], **options)


def test_too_few_scores_for_a_hold_out_are_refused():
    with pytest.raises(InputError, match=r"score_in must have enough scores to hold out 0\.2 of them .*, got 4"):
        detection(range(4), [1.0])


def test_integers_of_numpy_are_integers():
    scores = torch.arange(20.0), torch.arange(5.0, 30.0)
    one = detection(*scores, resamplings=np.int64(3), seed=np.int64(1))
    assert one.auroc == detection(*scores, resamplings=3, seed=1).auroc


# Matched subsets ------------------------------------------------------------------------------------------------


def lengths(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Words of long and of short texts."""
    rng = np.random.default_rng(seed)
    return rng.negative_binomial(2, 0.02, 6000) + 5, rng.negative_binomial(4, 0.12, 3000) + 3


@pytest.mark.parametrize("seed", range(3))
def test_length_separates_nothing_any_more(seed):
    inside, outside = lengths(seed)
    assert auroc(-inside, -outside) > 0.8
    rows_in, rows_out = matched(inside, outside, seed=seed)
    assert len(rows_in) == len(rows_out) > 1000
    assert auroc(-inside[rows_in], -outside[rows_out]) == pytest.approx(0.5, abs=0.01)
    levels = np.linspace(0.05, 0.95, 19)
    ours, theirs = np.quantile(inside[rows_in], levels), np.quantile(outside[rows_out], levels)
    assert ours == pytest.approx(theirs, rel=0.05, abs=1.0)


def test_rows_are_rows_of_either_side_each_once():
    inside, outside = lengths()
    for rows, n in zip(matched(inside, outside), (len(inside), len(outside)), strict=True):
        assert (rows.diff() > 0).all()
        assert rows[0] >= 0
        assert rows[-1] < n


def test_few_lengths_are_matched_exactly():
    inside, outside = np.repeat([1, 2, 3], [50, 5, 7]), np.repeat([1, 2, 4], [9, 30, 8])
    rows_in, rows_out = matched(inside, outside)
    assert np.bincount(inside[rows_in]).tolist() == np.bincount(outside[rows_out]).tolist() == [0, 9, 5]


def test_rows_are_drawn_at_random_and_a_seed_repeats_them():
    inside, outside = lengths()
    one, again, other = (matched(inside, outside, seed=seed)[0].tolist() for seed in (1, 1, 2))
    assert one == again != other
    assert max(matched([1.0] * 1000, [1.0] * 10, seed=0)[0].tolist()) > 500


def test_one_bin_matches_numbers_of_rows_only():
    assert [len(rows) for rows in matched([1, 2, 3], [7, 8], bins=1)] == [2, 2]
    assert [rows.tolist() for rows in matched([1], [1], bins=np.int64(5))] == [[0], [0]]


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        (([1, 2, 3], [7, 8, 9]), {}, "length_in and length_out must overlap, got no bin with rows of both"),
        (([1, 2, 3], []), {}, "length_out must hold at least one score, got none"),
        (([1], [1]), {"bins": True}, "bins must be an integer"),
        (([1, 2], [1, 2]), {"bins": 0}, "bins must be an integer of at least 1, got 0"),
        (([1], [1]), {"seed": None}, "seed must be an integer"),
    ],
)
def test_bad_matching_is_refused(lengths, options, message):
    with pytest.raises((InputError, ConfigError), match=message):
        matched(*lengths, **options)
