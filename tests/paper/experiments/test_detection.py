"""The study of detection against scikit-learn and numpy; matched subsets."""

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, average_precision_score, roc_auc_score, roc_curve

from ddpn.metrics import auroc
from ddpn.paper.experiments.detection import detection, matched
from ddpn.runtime.errors import InputError


def scores(n_in=400, n_out=150, digits=None):
    rng = np.random.default_rng(3)
    pair = rng.gamma(2.0, 1.0, n_in), rng.gamma(3.0, 1.3, n_out)
    return pair if digits is None else tuple(x.round(digits) for x in pair)


def draws(n, held):
    """Held-out rows and the others of every resampling."""
    random = torch.Generator().manual_seed(0)
    orders = [torch.randperm(n, generator=random).numpy() for _ in range(10)]
    return [(order[:held], order[held:]) for order in orders]


def of_every_threshold(kept, outside):
    label, both = np.r_[np.zeros(len(kept)), np.ones(len(outside))], np.r_[kept, outside]
    fpr, tpr, _ = roc_curve(label, both, drop_intermediate=False)
    return roc_auc_score(label, both), average_precision_score(label, both), fpr[tpr >= 0.8 - 1e-12].min()


def of_the_script(held, kept, outside):
    """AUROC, AUPR and FPR80 of points at thresholds, joined by straight lines."""
    tau = np.quantile(held, 1 - np.linspace(1e-3, 1, 100))
    hits, alarms = ((x[:, None] > tau).sum(0) for x in (outside, kept))
    tpr, fpr = hits / len(outside), alarms / len(kept)
    precision = np.where(hits + alarms == 0, 1.0, hits / np.maximum(hits + alarms, 1))
    return auc(fpr, tpr), auc(tpr, precision), fpr[np.abs(tpr - 0.8).argmin()]


def check(ours, wanted, sizes):
    for name, values in zip(("auroc", "aupr", "fpr80"), np.array(wanted).T, strict=True):
        assert getattr(ours, name) == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-10)
    assert (ours.n_in, ours.n_out) == sizes


@pytest.mark.parametrize("digits", [None, 0])
def test_areas_are_those_of_every_threshold(digits):
    inside, outside = scores(digits=digits)
    wanted = [of_every_threshold(inside[others], outside) for _, others in draws(400, 80)]
    check(detection(inside, outside), wanted, (320, 150))


def test_areas_of_the_papers_script():
    inside, outside = scores()
    wanted = [of_the_script(inside[rows], inside[~rows], outside) for rows, _ in draws(400, 80)]
    check(detection(inside, outside, as_paper=True), wanted, (80, 150))


def test_the_papers_rows_flatter_precision_and_leave_the_rest():
    right, paper = (detection(*scores(4000, 1000), as_paper=which) for which in (False, True))
    assert paper.auroc.mean == pytest.approx(right.auroc.mean, abs=0.01)
    assert paper.aupr.mean > right.aupr.mean + 0.15  # a quarter as many inside rows to be mistaken for outside ones


def test_too_few_scores_for_a_hold_out_are_refused():
    with pytest.raises(InputError) as found:
        detection(range(4), [1.0])
    assert found.value.argument == "score_in"


# Matched subsets ------------------------------------------------------------------------------------------------


def lengths(seed=0):
    """Words of long and of short texts."""
    rng = np.random.default_rng(seed)
    return rng.negative_binomial(2, 0.02, 6000) + 5, rng.negative_binomial(4, 0.12, 3000) + 3


@pytest.mark.parametrize("seed", range(3))
def test_length_separates_nothing_any_more(seed):
    inside, outside = lengths(seed)
    assert auroc(-inside, -outside) > 0.8
    rows_in, rows_out = matched(inside, outside)
    assert len(rows_in) == len(rows_out) > 1000
    assert auroc(-inside[rows_in], -outside[rows_out]) == pytest.approx(0.5, abs=0.01)
    levels = np.linspace(0.05, 0.95, 19)
    ours, theirs = np.quantile(inside[rows_in], levels), np.quantile(outside[rows_out], levels)
    assert ours == pytest.approx(theirs, rel=0.05, abs=1.0)


def test_rows_are_rows_of_either_side_each_once_drawn_at_random():
    inside, outside = lengths()
    for rows, n in zip(matched(inside, outside), (len(inside), len(outside)), strict=True):
        assert (rows.diff() > 0).all()
        assert rows[0] >= 0
        assert rows[-1] < n
    assert max(matched([1.0] * 1000, [1.0] * 10)[0].tolist()) > 500


def test_few_lengths_are_matched_exactly():
    inside, outside = np.repeat([1, 2, 3], [50, 5, 7]), np.repeat([1, 2, 4], [9, 30, 8])
    rows_in, rows_out = matched(inside, outside)
    assert np.bincount(inside[rows_in]).tolist() == np.bincount(outside[rows_out]).tolist() == [0, 9, 5]


@pytest.mark.parametrize(("sides", "message"), [(([1, 2], [7, 8]), "must overlap"), (([1, 2], []), "at least one")])
def test_bad_matching_is_refused(sides, message):
    with pytest.raises(InputError, match=message):
        matched(*sides)
