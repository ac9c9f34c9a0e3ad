"""Test scores against sums over the support and closed forms of scipy, and detection against scikit-learn and numpy."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import auc, average_precision_score, roc_auc_score, roc_curve
from torch.distributions import Normal

from ddpn.distributions import DoublePoisson, Poisson
from ddpn.paper.experiments.scoring import evaluate_detection, score
from ddpn.runtime.errors import InputError

K = np.arange(400)
Y = torch.tensor([3.0, 0.0, 7.0])
RATES = np.array([[2.5, 4.2], [0.7, 1.6], [5.5, 9.3]])
MEANS = np.array([[2.3, 4.4], [0.2, 1.1], [6.1, 7.6]])
SCALES = np.array([[1.0, 0.5], [0.8, 2.0], [1.5, 0.9]])


def compute_crps(cdf, y):
    """Sum (F(k) - 1[k >= y])^2 over counts. cdf: (rows, K)."""
    return np.mean(((cdf - (K[None] >= y[:, None])) ** 2).sum(1))


def find_median(cdf):
    return (cdf >= 0.5).argmax(1)


def compute_normal_crps(mean, scale, y):
    z = (y - mean) / scale
    return scale * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))


def compute_double_poisson_pmf(mu, gamma):
    """Compute Efron's distribution, normalised by its sum."""
    k = K.astype(float)
    logs = gamma * (k - mu + k * np.log(mu / np.maximum(k, 1.0))) - k + k * np.log(np.maximum(k, 1.0))
    logs -= np.array([np.sum(np.log(np.arange(1, n + 1))) for n in K])
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


@pytest.fixture
def y():
    return Y.numpy().astype(float)


def test_poissons_are_scored_by_the_paper_and_by_one_rule(y):
    result = score(Poisson(torch.from_numpy(RATES)), Y.double())
    assert set(result) == {"paper", "ours"}
    pmf = stats.poisson.pmf(K, RATES[..., None])
    mixture = pmf.mean(1)
    single, whole = result["paper"]["single"], result["paper"]["ensemble"]
    # The paper takes floor(lambda), the mode; of an ensemble the mode of the mixture.
    assert single["mae"] == pytest.approx(np.abs(np.floor(RATES) - y[:, None]).mean(0))
    assert whole["mae"] == pytest.approx([np.abs(mixture.argmax(1) - y).mean()])
    assert single["crps"] == pytest.approx([compute_crps(pmf[:, m].cumsum(1), y) for m in (0, 1)])
    assert whole["crps"] == pytest.approx([compute_crps(mixture.cumsum(1), y)])
    assert single["median_precision"] == pytest.approx(np.median(1 / RATES, axis=0))
    variance = RATES.mean(1) + RATES.var(1)
    assert whole["median_precision"] == pytest.approx([np.median(1 / variance)])
    ours = result["ours"]
    assert ours["single"]["mae"] == pytest.approx(np.abs(stats.poisson.ppf(0.5, RATES) - y[:, None]).mean(0))
    assert ours["ensemble"]["mae"] == pytest.approx([np.abs(find_median(mixture.cumsum(1)) - y).mean()])
    assert ours["ensemble"]["nll"] == pytest.approx([-np.log(mixture[range(3), Y.long()]).mean()])
    assert ours["single"]["nll"] == pytest.approx(-stats.poisson.logpmf(y[:, None], RATES).mean(0))


def test_double_poissons_have_two_precisions(y):
    gammas = np.array([[3.0, 0.5], [2.0, 1.5], [0.4, 6.0]])
    result = score(DoublePoisson(torch.from_numpy(RATES), torch.from_numpy(gammas)), Y.double())
    pmf = np.array(
        [
            [compute_double_poisson_pmf(m, g) for m, g in zip(*row, strict=True)]
            for row in zip(RATES, gammas, strict=True)
        ]
    )
    mean = pmf @ K
    variance = pmf @ K**2 - mean**2
    assert result["paper"]["single"]["median_precision"] == pytest.approx(np.median(gammas / RATES, axis=0))
    assert result["ours"]["single"]["median_precision"] == pytest.approx(np.median(1 / variance, axis=0), rel=1e-6)
    total = variance.mean(1) + mean.var(1)
    for protocol in ("paper", "ours"):
        assert result[protocol]["ensemble"]["median_precision"] == pytest.approx([np.median(1 / total)], rel=1e-6)
    assert result["paper"]["single"]["mae"] == pytest.approx(np.abs(pmf.argmax(2) - y[:, None]).mean(0))
    assert result["ours"]["ensemble"]["crps"] == pytest.approx([compute_crps(pmf.mean(1).cumsum(1), y)], rel=1e-6)


def test_an_ensemble_of_gaussians_is_one_normal_in_the_paper_and_a_mixture_in_ours(y):
    result = score(Normal(torch.from_numpy(MEANS), torch.from_numpy(SCALES)), Y.double())
    single, whole = result["paper"]["single"], result["paper"]["ensemble"]
    mean, total = MEANS.mean(1), (SCALES**2).mean(1) + MEANS.var(1)
    assert single["mae"] == pytest.approx(np.abs(MEANS - y[:, None]).mean(0))
    assert single["crps"] == pytest.approx(compute_normal_crps(MEANS, SCALES, y[:, None]).mean(0))
    assert whole["mae"] == pytest.approx([np.abs(mean - y).mean()])
    assert whole["crps"] == pytest.approx([compute_normal_crps(mean, np.sqrt(total), y).mean()])
    assert whole["median_precision"] == pytest.approx([np.median(1 / total)])
    t = np.linspace(-25, 45, 500_001)
    exact = [
        np.trapezoid((stats.norm.cdf((t[:, None] - m) / s).mean(1) - (t >= at)) ** 2, t)
        for m, s, at in zip(MEANS, SCALES, y, strict=True)
    ]
    assert result["ours"]["ensemble"]["crps"] == pytest.approx([np.mean(exact)], abs=1e-4)
    assert result["ours"]["ensemble"]["crps"] != pytest.approx(whole["crps"], abs=1e-4)


def test_rounded_gaussians_put_a_cell_s_mass_on_its_count(y):
    result = score(Normal(torch.from_numpy(MEANS), torch.from_numpy(SCALES)), Y.double())["rounded"]
    cdf = stats.norm.cdf((K + 0.5 - MEANS[..., None]) / SCALES[..., None])
    assert result["single"]["crps"] == pytest.approx([compute_crps(cdf[:, m], y) for m in (0, 1)])
    assert result["ensemble"]["crps"] == pytest.approx([compute_crps(cdf.mean(1), y)])
    assert result["ensemble"]["mae"] == pytest.approx([np.abs(find_median(cdf.mean(1)) - y).mean()])
    pmf = np.diff(cdf.mean(1), prepend=0.0)
    assert result["ensemble"]["nll"] == pytest.approx([-np.log(pmf[range(3), Y.long()]).mean()])


def test_coverage_counts_the_rows_inside_the_central_90_percent():
    dist = Poisson(torch.full((4, 1), 10.0, dtype=torch.float64))
    low, high = stats.poisson.ppf([0.05, 0.95], 10.0)
    result = score(dist, torch.tensor([low - 1, low, high, high + 1]).double())
    assert result["ours"]["single"]["coverage"] == [0.5]


def test_a_simulation_is_compared_with_its_truth(y):
    truth = np.array([3.0, 1.0, 8.0])
    result = score(Poisson(torch.from_numpy(RATES)), Y.double(), Poisson(torch.from_numpy(truth)))["truth"]
    best = compute_crps(stats.poisson.cdf(K, truth[:, None]), y)
    ours = compute_crps(stats.poisson.cdf(K, RATES[..., None]).mean(1), y)
    assert result["crps"] == pytest.approx(best)
    assert result["crps_gap"] == pytest.approx(ours - best)
    assert result["aleatoric_relative_error"] == pytest.approx(np.median(np.abs(RATES.mean(1) - truth) / truth))
    assert result["epistemic"] == pytest.approx(np.median(RATES.var(1)))
    assert result["mae"] == pytest.approx(np.abs(stats.poisson.ppf(0.5, truth) - y).mean())


# Detection ------------------------------------------------------------------------------------------------------------


def draw_scores(n_in=400, n_out=150, digits=None):
    rng = np.random.default_rng(3)
    pair = rng.gamma(2.0, 1.0, n_in), rng.gamma(3.0, 1.3, n_out)
    return pair if digits is None else tuple(x.round(digits) for x in pair)


def draw_hold_outs(n, held):
    """Draw held-out rows and the others of every resampling."""
    random = torch.Generator().manual_seed(0)
    orders = [torch.randperm(n, generator=random).numpy() for _ in range(10)]
    return [(order[:held], order[held:]) for order in orders]


def compute_areas_at_all_thresholds(kept, outside):
    label, both = np.r_[np.zeros(len(kept)), np.ones(len(outside))], np.r_[kept, outside]
    fpr, tpr, _ = roc_curve(label, both, drop_intermediate=False)
    return roc_auc_score(label, both), average_precision_score(label, both), fpr[tpr >= 0.8 - 1e-12].min()


def compute_areas_by_the_script(held, kept, outside):
    """Compute AUROC, AUPR and FPR80 of points at thresholds, joined by straight lines."""
    tau = np.quantile(held, 1 - np.linspace(1e-3, 1, 100))
    hits, alarms = ((x[:, None] > tau).sum(0) for x in (outside, kept))
    tpr, fpr = hits / len(outside), alarms / len(kept)
    precision = np.where(hits + alarms == 0, 1.0, hits / np.maximum(hits + alarms, 1))
    return auc(fpr, tpr), auc(tpr, precision), fpr[np.abs(tpr - 0.8).argmin()]


def check_detection(ours, expected, sizes):
    for name, values in zip(("auroc", "aupr", "fpr80"), np.array(expected).T, strict=True):
        assert getattr(ours, name) == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-10)
    assert (ours.n_in_distribution, ours.n_ood) == sizes


@pytest.mark.parametrize("digits", [None, 0])
def test_areas_are_those_of_every_threshold(digits):
    inside, outside = draw_scores(digits=digits)
    expected = [compute_areas_at_all_thresholds(inside[others], outside) for _, others in draw_hold_outs(400, 80)]
    check_detection(evaluate_detection(inside, outside), expected, (320, 150))


def test_areas_as_in_the_paper_are_those_of_its_script():
    inside, outside = draw_scores()
    expected = [
        compute_areas_by_the_script(inside[rows], inside[~rows], outside) for rows, _ in draw_hold_outs(400, 80)
    ]
    check_detection(evaluate_detection(inside, outside, as_paper=True), expected, (80, 150))


def test_too_few_scores_for_a_hold_out_are_refused():
    with pytest.raises(InputError) as result:
        evaluate_detection(range(4), [1.0])
    assert result.value.argument == "score_in"
