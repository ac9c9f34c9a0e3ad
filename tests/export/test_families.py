"""Test distributions in the graph against those of the package, for every likelihood that can be exported."""

import numpy as np
import pytest
import torch

from ddpn.export import export_onnx
from ddpn.export.families import MAX_GRID_COUNT
from ddpn.members.constant import Constant
from ddpn.networks.heads import HEADS
from ddpn.predictor import Predictor
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError

FAMILIES = ("poisson", "double_poisson", "negative_binomial")
EXPORTED = (*FAMILIES, *(f"{kind}_{name}" for kind in ("zero_inflated", "hurdle") for name in FAMILIES), "mixed")
LEVELS = (0.01, 0.1, 0.9, 0.99)


@pytest.mark.parametrize("likelihood", EXPORTED)
def test_random_parameters_have_the_same_distributions(likelihood, make_linear_member, draw_rows, assert_parity):
    assert_parity(Predictor({"glm": make_linear_member(likelihood, reach=1.5)}), draw_rows(8))


def test_mixtures_of_all_families_are_exported(make_linear_member, draw_rows, assert_parity):
    families = ("poisson", "zero_inflated_double_poisson", "hurdle_negative_binomial", "negative_binomial")
    members = {"glm": make_linear_member(families, 0.7), "poisson_glm": make_linear_member("poisson", 1.0, seed=4)}
    assert_parity(Predictor(members, {"glm": 0.7, "poisson_glm": 0.3}), draw_rows(5))


@pytest.mark.parametrize("likelihood", ["double_poisson", "negative_binomial"])
def test_extreme_parameters_have_exact_quantiles_or_nan(
    likelihood, make_linear_member, draw_rows, run_file, make_feeds, file
):
    """Far beyond the clamps, quantiles are equal on the grid and NaN beyond it; so are moments of a Double Poisson."""
    predictor, X = Predictor({"glm": make_linear_member(likelihood, reach=8.0, seed=3)}), draw_rows(12)
    export_onnx(predictor, file, quantiles=LEVELS, pmf_up_to=40)
    out, dist = run_file(file, make_feeds(X)), predictor.distribution(X)
    assert dist.mean.max() > 1e6
    assert dist.mean.min() < 1.0
    exact = torch.stack([dist.icdf(torch.full_like(dist.mean, level)) for level in LEVELS]).numpy()
    is_nan = np.isnan(out["mean"])
    assert is_nan.any() == (likelihood == "double_poisson")
    assert (exact[-1, is_nan] > 0.5 * MAX_GRID_COUNT).all()
    for name in ("mean", "variance"):
        np.testing.assert_allclose(out[name][~is_nan], getattr(dist, name).numpy()[~is_nan], rtol=1e-5)
    quantiles = np.stack([out[f"q{level:g}"] for level in LEVELS])
    assert (exact > MAX_GRID_COUNT).any()
    np.testing.assert_array_equal(quantiles, np.where(is_nan | (exact > MAX_GRID_COUNT), np.nan, exact))


@pytest.mark.parametrize(("scale", "is_refused"), [(1e3, False), (1e6, True)])
def test_training_counts_beyond_the_sums_are_refused(scale, is_refused, make_linear_member, file):
    sample = CountRows(np.zeros((50, 2)), np.random.default_rng(0).poisson(scale, 50).astype(float))
    members = {"glm": make_linear_member("poisson", 0.1), "constant": Constant.fit(sample, None, seed=0)}
    predictor = Predictor(members, {"glm": 1.0, "constant": 0.0})
    if is_refused:
        with pytest.raises(ConfigError, match="262,144"):
            export_onnx(predictor, file)
    else:
        export_onnx(predictor, file)
    assert file.exists() is not is_refused


def test_exposures_scale_the_location(make_linear_member, draw_rows, assert_parity, run_file, make_feeds, file):
    predictor = Predictor({"glm": make_linear_member("mixed", 0.7, unit=4.0)}, needs_exposure=True)
    assert_parity(predictor, draw_rows(12), np.random.default_rng(2).uniform(0.1, 30.0, 12))
    out = run_file(file, make_feeds(draw_rows(3), exposure=[1.0, -1.0, 0.0]))
    assert np.isnan(out["mean"]).tolist() == np.isnan(out["q0.9"]).tolist() == [False, True, True]


@pytest.mark.parametrize("counts", [{"lower": 1}, {"lower": 2, "upper": 9}], ids=str)
def test_bounds_of_counts_are_exported(counts, make_linear_member, draw_rows, assert_parity):
    members = {
        "glm": make_linear_member("mixed", 0.5),
        "poisson_glm": make_linear_member("hurdle_poisson", 0.5, seed=4),
    }
    assert_parity(Predictor(members, counts=CountRange(**counts)), draw_rows(4))


def test_an_upper_bound_per_row_is_an_input(make_linear_member, draw_rows, assert_parity):
    upper = np.random.default_rng(2).integers(1, 12, 12).astype(float)
    predictor = Predictor({"glm": make_linear_member("mixed", 0.5)}, counts=CountRange(upper_per_row=True))
    assert_parity(predictor, draw_rows(12), upper=upper)


@pytest.mark.parametrize("likelihood", sorted(set(HEADS) - set(EXPORTED)))
def test_other_likelihoods_are_refused_in_one_sentence(likelihood, make_linear_member, file):
    with pytest.raises(ConfigError, match=rf"The likelihood {likelihood} cannot be exported\."):
        export_onnx(Predictor({"glm": make_linear_member(likelihood, 1.0)}), file)
    assert not file.exists()


def test_rows_do_not_depend_on_their_batch(make_linear_member, draw_rows, run_file, make_feeds, file):
    """One row needs a far longer grid than the others, and one cannot be predicted."""
    predictor = Predictor({"glm": make_linear_member("mixed", 1.0)}, needs_exposure=True)
    export_onnx(predictor, file, quantiles=LEVELS, pmf_up_to=40)
    X, exposure = draw_rows(5), np.array([1.0, 2.0, 3000.0, np.nan, 0.5])
    together = run_file(file, make_feeds(X, exposure=exposure))
    for i in range(X.height):
        alone = run_file(file, make_feeds(X[i], exposure=exposure[i : i + 1]))
        for name, values in together.items():
            np.testing.assert_allclose(values[i], alone[name][0], rtol=1e-12, err_msg=name)
    assert np.isnan(together["mean"]).tolist() == [False, False, False, True, False]
