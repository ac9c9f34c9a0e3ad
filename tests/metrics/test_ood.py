"""Telling inputs of another kind, against scikit-learn."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch.distributions import Laplace, Normal

from ddpn.distributions import Mixture, Poisson
from ddpn.errors import ConfigError, InputError
from ddpn.metrics import OOD_SCORES, aupr, auroc, fpr80, fpr_at, ood_score
from ddpn.metrics.ood import quantiles

METRICS = (auroc, aupr, fpr_at, fpr80)


def scores(n_in: int, n_out: int, digits: int | None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Outside ones a bit higher; rounded, they tie."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(0, 1, n_in), rng.normal(0.8, 1.3, n_out)
    return pair if digits is None else tuple(x.round(digits) for x in pair)


@pytest.mark.parametrize("digits", [None, 1, 0])
@pytest.mark.parametrize("sizes", [(500, 120), (1, 1), (7, 400), (3, 2)])
def test_against_scikit_learn(sizes, digits):
    for seed in range(5):
        inside, outside = scores(*sizes, digits, seed)
        label = np.r_[np.zeros(sizes[0]), np.ones(sizes[1])]
        both = np.r_[inside, outside]
        assert auroc(inside, outside) == pytest.approx(roc_auc_score(label, both), rel=1e-12)
        assert aupr(inside, outside) == pytest.approx(average_precision_score(label, both), rel=1e-12)
        fpr, tpr, _ = roc_curve(label, both, drop_intermediate=False)
        for rate in (0.05, 0.5, 0.8, 1.0):
            assert fpr_at(inside, outside, tpr=rate) == pytest.approx(fpr[tpr >= rate - 1e-12].min(), abs=1e-15)
        assert fpr80(inside, outside) == fpr_at(inside, outside, tpr=0.8)


def test_known_corners():
    assert (auroc([1, 2], [3, 4]), aupr([1, 2], [3, 4]), fpr80([1, 2], [3, 4])) == (1.0, 1.0, 0.0)
    assert (auroc([3, 4], [1, 2]), fpr80([3, 4], [1, 2])) == (0.0, 1.0)
    assert (auroc([1] * 30, [1] * 10), aupr([1] * 30, [1] * 10), fpr80([1] * 30, [1] * 10)) == (0.5, 0.25, 1.0)


def test_the_order_of_rows_and_the_scale_of_scores_do_not_matter():
    inside, outside = scores(200, 90, 1)
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
def test_what_is_refused(metric):
    with pytest.raises(InputError, match="score_in must hold at least one score, got none"):
        metric([], [1.0])
    with pytest.raises(InputError, match="score_out must hold at least one score, got none"):
        metric([1.0], torch.tensor([]))
    with pytest.raises(InputError, match="score_in must hold numbers, got nan at 1"):
        metric([1.0, math.nan], [1.0])
    with pytest.raises(InputError, match="score_out must hold numbers, got nan at 0"):
        metric([1.0], [math.nan])


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.01, 80])
def test_rates_outside_zero_one_are_refused(tpr):
    with pytest.raises(ConfigError, match=r"tpr must lie in \(0, 1\]"):
        fpr_at([1.0], [2.0], tpr=tpr)


# What is read off a law -----------------------------------------------------------------------------------------


MEANS = torch.tensor([[4.0, 4.0, 4.0], [1.0, 4.0, 7.0]], dtype=torch.float64)


def test_scores_of_an_ensemble_against_sums_over_its_pmf():
    ensemble, y = Mixture(Poisson(MEANS)), np.arange(200)
    each = stats.poisson.pmf(y, MEANS.numpy()[..., None])
    mixed = each.mean(1)
    mean = mixed @ y
    entropy, inner = (stats.entropy(p, axis=-1) for p in (mixed, each))
    wanted = {
        "variance": mixed @ y**2 - mean**2,
        "epistemic": MEANS.numpy().var(1),
        "entropy": entropy,
        "mutual_information": entropy - inner.mean(1),
    }
    assert set(wanted) == set(OOD_SCORES)
    for kind, values in wanted.items():
        assert ood_score(ensemble, kind).numpy() == pytest.approx(values, rel=1e-9, abs=1e-12), kind


def test_scores_of_single_laws_and_of_normals():
    assert ood_score(Poisson(torch.tensor([2.0, 5.0]))).tolist() == [2.0, 5.0]
    normal = Normal(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 2.0]))
    assert ood_score(normal, "entropy").numpy() == pytest.approx(stats.norm(0, [1.0, 2.0]).entropy(), rel=1e-6)
    assert ood_score(Mixture(normal), "epistemic").item() == pytest.approx(2.25)


@pytest.mark.parametrize("kind", ["epistemic", "mutual_information"])
def test_one_law_cannot_disagree(kind):
    remedy = r'nothing can disagree\. Use kind="variance" or "entropy", or train more members\.'
    with pytest.raises(InputError, match=f'2 members for kind="{kind}", got a single Poisson: {remedy}'):
        ood_score(Poisson(torch.tensor([2.0])), kind)
    with pytest.raises(InputError, match=f'2 members for kind="{kind}", got one of a single member: {remedy}'):
        ood_score(Mixture(Poisson(torch.tensor([[2.0]]))), kind)


def test_unknown_kinds_and_laws_are_refused():
    with pytest.raises(ConfigError, match="kind must be one of variance, epistemic, entropy, mutual_information, got"):
        ood_score(Poisson(torch.tensor([2.0])), "surprise")
    with pytest.raises(InputError, match=r"dist must be a count law .*, got Laplace"):
        ood_score(Laplace(0.0, 1.0))


def test_quantiles_against_numpy():
    x = np.random.default_rng(1).normal(size=101)
    q = np.r_[0.0, 1.0, 0.5, np.random.default_rng(2).random(20)]
    assert quantiles(torch.from_numpy(x), torch.from_numpy(q)).numpy() == pytest.approx(np.quantile(x, q), rel=1e-12)


@pytest.mark.parametrize("measure", [auroc, aupr, fpr80])
def test_columns_of_data_frames_are_read_by_place(measure):
    inside, outside = pd.Series([0.1, 0.2, 0.4], index=[7, 9, 8]), pd.Series([0.3, 0.9], index=["b", "a"])
    assert measure(inside, outside) == measure([0.1, 0.2, 0.4], [0.3, 0.9])


@pytest.mark.parametrize("scores", [["a", "b"], {"a": 1}, [[1.0], [1.0, 2.0]]], ids=["words", "dict", "ragged"])
def test_scores_that_are_no_numbers_are_told(scores):
    with pytest.raises(InputError, match=r"^score_in must hold numbers, got (list|dict)\. Give one score an input\.$"):
        auroc(scores, [1.0])


@pytest.mark.parametrize("tpr", ["0.8", None])
def test_a_rate_that_is_no_number_is_told(tpr):
    with pytest.raises(ConfigError, match=r"^tpr must lie in \(0, 1\], got "):
        fpr_at([0.1], [0.2], tpr=tpr)
