"""Test that members predict held-out rows once per row and member, whatever asks for it, in any order."""

import numpy as np
import pytest
import torch

from ddpn.members.blending import MIXTURE
from ddpn.members.constant import Constant
from ddpn.members.held_out import HeldOutPredictions, MemberPredictions
from ddpn.rows.count_rows import CountRows

ROWS = 300


class CountedConstant(Constant):
    """The constant distribution, which counts the rows that it is asked to predict."""

    n_predicted = 0

    def distribution(self, X, exposure=None):
        self.n_predicted += len(X)
        return super().distribution(X, exposure)


def draw_counts(mean: float, seed: int) -> CountRows:
    rng = np.random.default_rng(seed)
    return CountRows(rng.normal(size=(ROWS, 2)), rng.poisson(mean, ROWS).astype(float))


@pytest.fixture
def members() -> dict[str, CountedConstant]:
    """Two members that were fitted to counts of different means."""
    return {
        name: CountedConstant.fit(draw_counts(mean, seed), None, seed=0)
        for seed, (name, mean) in enumerate({"small": 2.0, "large": 9.0}.items())
    }


@pytest.fixture
def predictions(members) -> MemberPredictions:
    held_out = MemberPredictions.from_rows(draw_counts(4.0, 7))
    for name, member in members.items():
        held_out.add(name, member)
    return held_out


def mix_predictions(predictions: MemberPredictions, small: float) -> HeldOutPredictions:
    weights = [{"small": small, "large": 1.0 - small}] * predictions.n_parts
    return HeldOutPredictions(predictions, weights, np.arange(len(predictions)))


def compute_means(rows: HeldOutPredictions, of: str) -> np.ndarray:
    means = np.empty(len(rows))
    for _, positions, distribution in rows.blocks(of):
        means[positions] = distribution.mean.numpy()
    return means


def test_every_held_out_row_is_predicted_once(members, predictions):
    drawn = predictions.divide(np.arange(0, ROWS, 3))
    for block in drawn:
        predictions.predict("small", block)
    assert members["small"].n_predicted == ROWS // 3
    for small in (0.5, 0.2):
        compute_means(mix_predictions(predictions, small), MIXTURE)
    compute_means(mix_predictions(predictions, 0.5).draw(50), "small")
    assert {name: member.n_predicted for name, member in members.items()} == {"small": ROWS, "large": ROWS}


def test_the_mixture_has_the_weights_of_each_part(members, predictions):
    means = {name: float(member.distribution(np.zeros((1, 2))).mean) for name, member in members.items()}
    weights = [{"small": 0.1 * number, "large": 1.0 - 0.1 * number} for number in range(predictions.n_parts)]
    rows = HeldOutPredictions(predictions, weights, np.arange(len(predictions)))
    expected = means["large"] + 0.1 * rows.part * (means["small"] - means["large"])
    np.testing.assert_allclose(compute_means(rows, MIXTURE), expected, rtol=1e-12)
    np.testing.assert_allclose(compute_means(rows, "small"), means["small"], rtol=1e-12)


def test_rows_that_are_drawn_keep_their_predictions_and_counts(predictions):
    rows = mix_predictions(predictions, 0.3)
    some = rows.draw(40)
    assert len(some) == 40
    assert set(some.positions) <= set(rows.draw(80).positions)
    assert torch.equal(torch.from_numpy(rows.rows.y[some.positions]), torch.from_numpy(some.rows.y))
    np.testing.assert_array_equal(compute_means(some, MIXTURE), compute_means(rows, MIXTURE)[some.positions])


@pytest.mark.parametrize(("small", "sole"), [(1.0, "small"), (0.0, "large"), (0.5, None)])
def test_a_member_with_all_the_weight_is_the_mixture(predictions, small, sole):
    assert mix_predictions(predictions, small).find_sole_member() == sole
