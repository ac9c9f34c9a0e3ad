"""How rows are split, how long is trained, and which encoding wins."""

import numpy as np
import pytest
from ddpn.estimators.fitting import auto_batch_size, auto_epochs, held_out, rows_of, used_rows
from ddpn.estimators.inputs import Targets


def targets(rows: int, weight: np.ndarray | None = None) -> Targets:
    return Targets(np.zeros(rows), weight, None)


@pytest.mark.parametrize(
    ("rows", "share", "size"),
    [(199, "auto", 0), (200, "auto", 20), (1000, 0.25, 250), (50, None, 0), (50, 0.0, 0), (3, 0.9, 2), (1, 0.5, 0)],
)
def test_a_share_is_held_out(rows, share, size):
    mask = held_out(targets(rows), share, seed=0)
    assert mask.shape == (rows,)
    assert mask.sum() == size


def test_a_tiny_share_is_one_row():
    assert held_out(targets(20), 0.001, seed=0).sum() == 1


def test_rows_of_no_weight_are_never_held_out():
    weight = np.tile([0.0, 1.0], 150)
    mask = held_out(targets(300, weight), 0.5, seed=0)
    assert mask.sum() == 75
    assert not mask[::2].any()
    assert (used_rows(targets(300, weight)) == weight.astype(bool)).all()


def test_which_rows_are_held_out_is_the_seeds_business():
    one, two, other = (held_out(targets(300), 0.5, seed) for seed in (1, 1, 2))
    assert (one == two).all()
    assert (one != other).any()


@pytest.mark.parametrize(("rows", "batch"), [(1, 1), (128, 128), (129, 8), (1000, 32), (16_000, 256), (10**6, 256)])
def test_batches_grow_with_the_rows(rows, batch):
    assert auto_batch_size(rows) == batch
    assert rows == batch or rows / batch >= 15


@pytest.mark.parametrize(
    ("rows", "batch", "epochs"), [(5, 5, 300), (16_000, 256, 48), (10**6, 256, 40), (1000, 32, 96)]
)
def test_epochs_shrink_with_the_rows(rows, batch, epochs):
    assert auto_epochs(rows, batch) == epochs


def test_weights_have_mean_one():
    rows = rows_of(np.zeros((3, 2), dtype=np.float32), Targets(np.arange(3.0), np.array([1.0, 2.0, 3.0]), None))
    assert rows.weight.tolist() == [0.5, 1.0, 1.5]


def test_counts_that_float32_cannot_tell_apart_are_kept_in_float64():
    x = np.zeros((1, 1), dtype=np.float32)
    assert rows_of(x, Targets(np.array([2.0**24 + 1]), None, None)).y.item() == 2**24 + 1


# Through the estimator -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps() -> tuple[np.ndarray, np.ndarray]:
    """Counts that jump where a number passes a threshold: nothing a line can follow."""
    X = np.random.default_rng(3).uniform(size=(600, 2))
    return X, 1.0 + 12.0 * ((X[:, 0] * 10) % 2 < 1)


def test_auto_takes_the_encoding_with_the_least_crps(quick, steps):
    model = quick(numeric="auto", epochs=20, lr=1e-2).fit(*steps)
    assert set(model.trials_) == {"standard", "piecewise", "steps"}
    assert model.numeric_ == min(model.trials_, key=model.trials_.get)
    assert model.numeric_ != "standard"
    assert model.n_rows_ == 540


@pytest.mark.parametrize("numeric", ["standard", "piecewise", "steps"])
def test_a_named_encoding_is_taken_without_trials(quick, steps, numeric):
    model = quick(numeric=numeric, epochs=1).fit(*steps)
    assert (model.numeric_, model.trials_) == (numeric, {})
    inputs = model.encoder_.get_feature_names_out()
    assert len(inputs) == 2 if numeric == "standard" else len(inputs) > 4


def test_bins_are_passed_on(quick, steps):
    few, many = (len(quick(numeric="steps", bins=b, epochs=1).fit(*steps).encoder_.columns_[0].steps) for b in (2, 9))
    assert (few, many) == (2, 9)


def test_auto_without_validation_rows_is_standard(quick, counts):
    model = quick(numeric="auto").fit(*counts)
    assert (model.numeric_, model.trials_) == ("standard", {})


def test_the_encoder_never_sees_held_out_rows(quick):
    """An outlier that only validation rows hold leaves the encoder's mean where it was."""
    X, y = np.random.default_rng(4).normal(size=(300, 1)), np.ones(300)
    plain = quick(epochs=1, validation=0.5).fit(X, y)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    X[np.flatnonzero(held_out(targets(300), 0.5, seed))[0]] = 1e9
    assert (
        quick(epochs=1, validation=0.5).fit(X, y).encoder_.transform([[0.3]]) == plain.encoder_.transform([[0.3]])
    ).all()
