"""Areas and rates against their definitions."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from ddpn.metrics import aupr, auroc, fpr80, fpr_at
from ddpn.runtime.errors import ConfigError, InputError

METRICS = (auroc, aupr, fpr_at, fpr80)


def two_sets(n_in: int, n_out: int, digits: int | None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """OOD scores are a bit higher; rounded, they tie."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(0, 1, n_in), rng.normal(0.8, 1.3, n_out)
    return pair if digits is None else tuple(x.round(digits) for x in pair)


def average_precision(inside: np.ndarray, outside: np.ndarray) -> float:
    """Mean over the OOD scores of the precision at the threshold that each of them is."""
    return float(np.mean([(outside >= t).sum() / ((outside >= t).sum() + (inside >= t).sum()) for t in outside]))


@pytest.mark.parametrize("digits", [None, 1, 0])
@pytest.mark.parametrize("sizes", [(100, 30), (1, 1), (7, 80), (3, 2)])
def test_areas_by_their_definitions(sizes, digits):
    for seed in range(2):
        inside, outside = two_sets(*sizes, digits, seed)
        higher, equal = outside[:, None] > inside, outside[:, None] == inside
        assert auroc(inside, outside) == pytest.approx((higher + 0.5 * equal).mean(), rel=1e-12)
        assert aupr(inside, outside) == pytest.approx(average_precision(inside, outside), rel=1e-12)
        for rate in (0.05, 0.5, 0.8, 1.0):
            threshold = max(t for t in outside if (outside >= t).mean() >= rate - 1e-12)
            assert fpr_at(inside, outside, tpr=rate) == pytest.approx((inside >= threshold).mean(), abs=1e-15)
        assert fpr80(inside, outside) == fpr_at(inside, outside, tpr=0.8)


def test_known_corners():
    assert (auroc([1, 2], [3, 4]), aupr([1, 2], [3, 4]), fpr80([1, 2], [3, 4])) == (1.0, 1.0, 0.0)
    assert (auroc([3, 4], [1, 2]), fpr80([3, 4], [1, 2])) == (0.0, 1.0)
    assert (auroc([1] * 30, [1] * 10), aupr([1] * 30, [1] * 10), fpr80([1] * 30, [1] * 10)) == (0.5, 0.25, 1.0)


def test_the_order_of_rows_and_the_scale_of_scores_do_not_matter():
    inside, outside = two_sets(200, 90, 1)
    rng = np.random.default_rng(9)
    for metric in METRICS:
        shuffled = metric(rng.permutation(inside), rng.permutation(outside))
        assert shuffled == pytest.approx(metric(inside, outside), rel=1e-14)
        assert metric(np.exp(inside), np.exp(outside)) == pytest.approx(metric(inside, outside), rel=1e-14)


def test_tensors_of_any_shape_and_infinite_scores():
    inside, outside = torch.tensor([[0.1, 0.2], [0.4, -math.inf]]), torch.tensor([0.3, math.inf], requires_grad=True)
    assert auroc(inside, outside) == pytest.approx(7 / 8)
    assert isinstance(aupr(inside, outside), float)


@pytest.mark.parametrize("metric", METRICS)
def test_columns_of_data_frames_are_read_by_position(metric):
    inside, outside = pd.Series([0.1, 0.2, 0.4], index=[7, 9, 8]), pd.Series([0.3, 0.9], index=["b", "a"])
    assert metric(inside, outside) == metric([0.1, 0.2, 0.4], [0.3, 0.9])


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (([], [1.0]), "score_in must hold at least one score, got none"),
        (([1.0], torch.tensor([])), "score_out must hold at least one score, got none"),
        (([1.0, math.nan], [1.0]), "score_in must hold numbers, got nan at row 1"),
        (([1.0], [math.nan]), "score_out must hold numbers, got nan at row 0"),
        ((["a", "b"], [1.0]), "score_in must hold numbers, got list"),
        (({"a": 1}, [1.0]), "score_in must hold numbers, got dict"),
        (([[1.0], [1.0, 2.0]], [1.0]), "score_in must hold numbers, got list"),
    ],
)
def test_bad_scores_are_refused(pair, message):
    for metric in METRICS:
        with pytest.raises(InputError, match=message):
            metric(*pair)


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.01, 80, "0.8", None])
def test_rates_outside_zero_one_are_refused(tpr):
    with pytest.raises(ConfigError, match=r"tpr must be a number in \(0, 1\], got"):
        fpr_at([1.0], [2.0], tpr=tpr)
