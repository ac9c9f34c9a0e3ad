"""Test the formula of the warning of heavy tails; tests/soundness/test_heavy_tails.py tests whole tables."""

import numpy as np
import pytest

from ddpn.members.constant import Constant
from ddpn.members.folds import Folds
from ddpn.members.glm import PoissonGLM
from ddpn.pipeline import find_heavy_tail
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows


def find_warning(sample: CountRows, member=Constant) -> str:
    """Find the warning of a member that is fitted to all rows."""
    predictor, folds = Predictor({"member": member.fit(sample, None, seed=0)}), Folds(sample)
    return find_heavy_tail(predictor, folds, predictor.predict_held_out(folds))


def make_counts_with_tail(largest: float, others: float = 1.0, rows: int = 100) -> CountRows:
    """Make counts of 10, of which nine are larger by `others` and one is `largest`."""
    y = np.full(rows, 10.0)
    y[: rows // 10] += others
    y[0] = largest
    return CountRows(np.zeros((rows, 1)), y)


def compute_fisher_probability(largest: float, others: float, number: int) -> float:
    """Return the probability that the largest of so many exponential excesses has as large a share of their sum."""
    share = largest / (largest + (number - 1) * others)
    return number * (1.0 - share) ** (number - 1)


@pytest.mark.parametrize("largest", [100, 200, 280, 300, 318, 324, 340, 400])
def test_a_warning_is_given_where_an_exponential_tail_has_one_of_a_thousand(largest):
    """Ten of 100 rows lie above the others: a share of 64% of their excesses is one of a thousand."""
    is_rare = compute_fisher_probability(largest, 20.0, 10) < 1e-3
    assert is_rare == (largest > 321)
    assert bool(find_warning(make_counts_with_tail(10.0 + largest, 20.0))) == is_rare


@pytest.mark.parametrize("rows", [1000, 2000])
def test_a_tenth_of_the_rows_is_the_tail_and_100_rows_at_most(rows):
    """With the same share of the largest, more rows in the tail make it less probable."""
    y = np.full(rows, 1.0)
    y[:100] = 11.0
    y[0] = 176.0
    expected = compute_fisher_probability(y[0] - 1.0, 10.0, 100) < 1e-3
    assert bool(find_warning(CountRows(np.zeros((rows, 1)), y))) == (expected and y[0] > 0.05 * y.sum())


def test_a_few_counts_above_a_common_one_are_no_tail():
    y = np.zeros(100)
    y[:5], y[0] = 1.0, 1000.0
    assert find_warning(CountRows(np.zeros((100, 1)), y)) == ""
    y[:10], y[0] = 1.0, 1000.0
    assert find_warning(CountRows(np.zeros((100, 1)), y)) != ""
    assert find_warning(CountRows(np.zeros((10, 1)), y[:10])) == ""


def test_a_large_count_that_the_columns_explain_is_no_tail():
    sample = make_counts_with_tail(500.0)
    told = sample.replace(X=(np.arange(100) == 0).astype(float)[:, None])
    assert find_warning(told, Constant) != ""
    assert find_warning(told, PoissonGLM) == ""


@pytest.mark.parametrize(("share", "is_said"), [(0.04, False), (0.06, True)])
def test_a_count_matters_from_five_percent_of_the_sum_on(share, is_said):
    y = np.full(2000, 5.0)
    y[:100] = 6.0
    y[0] = np.rint(share / (1.0 - share) * y[1:].sum())
    assert bool(find_warning(CountRows(np.zeros((2000, 1)), y))) == is_said


def test_weights_count_in_the_sum_of_all_counts():
    sample = make_counts_with_tail(300.0)
    assert find_warning(sample) != ""
    weight = np.where(np.arange(100) == 0, 0.01, 1.0)
    assert find_warning(sample.replace(weight=weight)) == ""


def test_the_warning_names_the_count_its_prediction_and_its_share():
    words = find_warning(make_counts_with_tail(1011.0))
    total = 1011.0 + 9 * 11.0 + 90 * 10.0
    assert words.startswith(
        f"One of 100 training rows has a count of 1,011, but its predicted mean is {total / 100:.3g}"
    )
    assert f"{1011.0 / total:.0%} of the sum" in words
