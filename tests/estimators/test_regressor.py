"""Fitting: what may come in, who judges, and that the same goes in and comes out."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse

from ddpn import ConfigError, CountRegressor, InputError
from ddpn.datasets.tabular import length_of_stay
from ddpn.training.loop import Training


@pytest.fixture(scope="module")
def larger() -> tuple[np.ndarray, np.ndarray]:
    """300 rows: more than one batch, and enough for rows of validation."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 2)) * (rng.uniform(size=(300, 2)) > 0.3)
    return X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float)


# Tables --------------------------------------------------------------------------------------------------------

TABLES = {
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"]),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
    "csr": sparse.csr_matrix,
    "csc array": sparse.csc_array,
    "float32": lambda X: X.astype(np.float32),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_fits_and_predicts_the_same(quick, larger, kind):
    X, y = larger
    X = X.astype(np.float32).astype(np.float64)
    table = TABLES[kind](X)
    wanted = quick().fit(X, y).predict(X)
    assert (quick().fit(table, y).predict(table) == wanted).all()


@pytest.fixture
def wards() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(9)
    ward = np.array(["A", "B", "C"])[rng.integers(0, 3, 90)]
    age = np.where(rng.uniform(size=90) < 0.2, np.nan, rng.uniform(20, 80, 90))
    frame = pd.DataFrame({"ward": ward, "kind": pd.Categorical(ward), "age": age, "urgent": rng.uniform(size=90) < 0.5})
    return frame, rng.poisson(np.where(ward == "A", 9.0, 2.0)).astype(float)


def test_text_levels_flags_and_missing_values_are_taken(quick, wards):
    X, y = wards
    model = quick(epochs=60, lr=1e-2).fit(X, y)
    assert model.feature_names_in_.tolist() == ["ward", "kind", "age", "urgent"]
    means = model.predict(X)
    assert means[X["ward"] == "A"].mean() > 2 * means[X["ward"] == "C"].mean()
    same = pl.from_pandas(X)
    assert model.predict(same) == pytest.approx(means, rel=1e-12)


def test_what_was_never_seen_is_predicted_too(quick, wards):
    X, y = wards
    model = quick().fit(X, y)
    new = pd.DataFrame({"ward": ["Z", None], "kind": ["Z", None], "age": [np.nan, 1e9], "urgent": [True, False]})
    assert np.isfinite(model.predict(new)).all()


def test_columns_are_found_by_name(quick, wards):
    X, y = wards
    model = quick().fit(X, y)
    assert (model.predict(X[["urgent", "age", "kind", "ward"]]) == model.predict(X)).all()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda X: X.drop(columns="age"), "got no 'age'"),
        (lambda X: X.assign(extra=1), "got also 'extra'"),
        (lambda X: X.rename(columns={"age": "years"}), "got no 'age' and also 'years'"),
        (lambda X: X.assign(age="old"), "column 'age' must hold numbers as in fit, got text"),
    ],
    ids=["missing", "extra", "renamed", "text for numbers"],
)
def test_wrong_columns_are_named(quick, wards, change, told):
    X, y = wards
    model = quick(epochs=1).fit(X, y)
    with pytest.raises(InputError, match=told):
        model.predict(change(X))


def test_another_number_of_columns_is_told(fitted):
    with pytest.raises(ValueError, match="X has 2 features, but FeatureEncoder is expecting 3 features as input"):
        fitted.predict(np.zeros((4, 2)))


def test_names_of_an_earlier_fit_are_forgotten(quick, wards, counts):
    model = quick(epochs=1).fit(*wards)
    assert not hasattr(model.fit(*counts), "feature_names_in_")


# Weights -------------------------------------------------------------------------------------------------------


def test_weights_equal_repeated_rows_bit_for_bit(likelihood, quick, counts, exposures):
    X, y, exposure = counts[0][:40], counts[1][:40], exposures[:40]
    weight = np.random.default_rng(1).integers(0, 4, 40)
    again = np.repeat(np.arange(40), weight)
    weighted = quick(**likelihood).fit(X, y, weight, exposure)
    repeated = quick(**likelihood).fit(X[again], y[again], exposure=exposure[again])
    assert (weighted.predict(X, exposure) == repeated.predict(X, exposure)).all()
    assert (weighted.predict(X, exposure) != quick(**likelihood).fit(X, y, None, exposure).predict(X, exposure)).any()


def test_weights_equal_repeated_rows_in_larger_data(quick, larger):
    """By other batches, hence nearly: a model without hidden layers ends where the likelihood is highest."""
    X, y = larger
    weight = np.random.default_rng(1).integers(1, 4, 300)
    again = np.repeat(np.arange(300), weight)
    options = {
        "likelihood": "poisson",
        "hidden": (),
        "weight_decay": 0.0,
        "epochs": 150,
        "lr": 1e-2,
        "batch_size": 10**6,
    }
    weighted = quick(validation=None, **options).fit(X, y, weight).predict(X)
    repeated = quick(validation=None, **options).fit(X[again], y[again]).predict(X)
    assert weighted == pytest.approx(repeated, rel=1e-3)


@pytest.mark.parametrize("frame", [False, True], ids=["array", "frame"])
@pytest.mark.parametrize("rows", [100, 300])
def test_a_weight_of_zero_equals_dropping_the_row(quick, larger, rows, frame):
    X, y = larger[0][:rows], larger[1][:rows]
    weight = (np.arange(rows) % 4 > 0).astype(float)
    kept = weight > 0
    X = pd.DataFrame(X, columns=["a", "b"]) if frame else X
    options = {"epochs": "auto", "members": 1, "hidden": ()} if rows == 100 else {"epochs": 3}
    weighted = quick(**options).fit(X, y, weight)
    dropped = quick(**options).fit(X[kept], y[kept])
    assert (weighted.predict(X) == dropped.predict(X)).all()
    assert weighted.n_rows_ == dropped.n_rows_


def test_weights_move_the_mean(quick, counts):
    X, y = np.zeros_like(counts[0]), counts[1]
    heavy = quick(epochs=60).fit(X, y, sample_weight=np.where(y > 5, 10.0, 1.0)).predict(X[:1])
    assert heavy > 1.2 * quick(epochs=60).fit(X, y).predict(X[:1])


# Randomness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"numeric": "auto"}, {"likelihood": "negative_binomial"}])
def test_a_seed_settles_everything(quick, larger, options):
    X, y = larger
    one, two = (quick(random_state=3, **options).fit(X, y).predict(X) for _ in range(2))
    assert (one == two).all()
    assert (quick(random_state=4, **options).fit(X, y).predict(X) != one).any()


def test_a_stream_may_take_the_seeds_place(quick, counts):
    one, two = (quick(random_state=np.random.RandomState(5)).fit(*counts).predict(counts[0]) for _ in range(2))
    assert (one == two).all()
    fresh = [quick(random_state=None).fit(*counts).predict(counts[0]) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


def test_global_streams_are_left_alone(quick, counts):
    np.random.seed(1)
    torch.manual_seed(1)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    quick().fit(*counts).predict(counts[0])
    assert (np.random.get_state()[1] == before[0]).all()
    assert (torch.get_rng_state() == before[1]).all()


# Validation, shapes, progress -----------------------------------------------------------------------------------


def test_rows_of_ones_own_judge_the_epochs(quick, larger):
    X, y = larger
    model = quick().fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert model.n_rows_ == 200
    assert all("score" in epoch for epoch in model.history_.epochs)
    scores = np.array([epoch["score"] for epoch in model.history_.epochs])
    assert model.history_.best_epoch == (scores.argmin(0) + 1).tolist()
    wrong = quick().fit(X[:200], y[:200], X_val=X[200:], y_val=100 + y[200:])
    assert (wrong.predict(X) != model.predict(X)).any()


def test_without_validation_every_row_is_trained_on(quick, larger):
    model = quick(validation=None).fit(*larger)
    assert model.n_rows_ == 300
    assert all("score" not in epoch for epoch in model.history_.epochs)
    assert model.history_.best_epoch == [5, 5]


def test_the_score_may_be_the_crps(quick, larger):
    by_nll, by_crps = (quick(score_on=score).fit(*larger).history_.best_score for score in ("nll", "crps"))
    assert by_nll != by_crps


def test_patience_ends_the_training(quick, larger):
    model = quick(epochs=200, patience=2, lr=0.05).fit(*larger)
    assert len(model.history_.epochs) < 200


def test_validation_comes_in_pairs(quick, counts, exposures):
    X, y = counts
    with pytest.raises(InputError, match="X_val and y_val must be given together, got only one of them"):
        quick().fit(X, y, X_val=X)
    with pytest.raises(InputError, match="exposure_val must be given if exposure is, got only one of them"):
        quick().fit(X, y, exposure=exposures, X_val=X, y_val=y)
    with pytest.raises(InputError, match="y_val must hold non-negative integers, got -1 at row 0"):
        quick().fit(X, y, X_val=X, y_val=np.full(90, -1))
    assert quick().fit(X, y, exposure=exposures, X_val=X, y_val=y, exposure_val=exposures).needs_exposure_


def test_no_hidden_layer_is_a_linear_model(quick, counts):
    model = quick(hidden=(), members=1, likelihood="poisson").fit(*counts)
    a, b = (np.log(model.predict(np.eye(3) * scale)) for scale in (1.0, 2.0))
    base = np.log(model.predict(np.zeros((1, 3))))
    assert b - base == pytest.approx(2.0 * (a - base), rel=1e-6)


def test_progress_is_shown_on_request(quick, counts, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    monkeypatch.setenv("NO_COLOR", "1")
    quick(verbose=True).fit(*counts)
    shown = capsys.readouterr().err
    assert "Training" in shown
    assert "5/5" in shown
    quick().fit(*counts)
    assert capsys.readouterr() == ("", "")


# Going on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numeric", ["standard", "auto"])
def test_an_interrupted_fit_goes_on_where_it_stopped(quick, larger, tmp_path, monkeypatch, numeric):
    X, y = larger
    options = {"numeric": numeric, "epochs": 8}
    wanted = quick(**options).fit(X, y)
    run_epoch = Training.run_epoch
    done = []

    def interrupted(training: Training) -> str:
        if training.config.epochs == 8 and training.epoch == 4:
            raise KeyboardInterrupt
        return run_epoch(training)

    def watched(training: Training) -> str:
        if training.config.epochs == 8:
            done.append(training.epoch)
        return run_epoch(training)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "run_epoch", interrupted)
        assert quick(checkpoint=tmp_path / "state", **options).fit(X, y).interrupted_
    monkeypatch.setattr(Training, "run_epoch", watched)
    resumed = quick(checkpoint=tmp_path / "state", **options).fit(X, y)
    assert done == [4, 5, 6, 7]
    assert (resumed.predict(X) == wanted.predict(X)).all()
    with pytest.raises(InputError, match="comes from a training with another training data"):
        quick(checkpoint=tmp_path / "state", **options).fit(X, y + 1)


def test_a_checkpoint_wants_a_seed(quick, counts, tmp_path):
    with pytest.raises(ConfigError, match="random_state must be a number where there is a checkpoint, got None"):
        quick(checkpoint=tmp_path / "state", random_state=None).fit(*counts)


# The paper's data ----------------------------------------------------------------------------------------------


def test_halves_the_crps_of_a_constant_law_on_days_in_hospital(data_folder):
    data = length_of_stay(data_folder, may_download=False)
    X, y = data.X.to_pandas(), data.y
    model = CountRegressor(members=2, hidden=(64, 64), epochs=20, numeric="steps", random_state=0, device="cpu")
    model.fit(X[:3000], y[:3000])
    test, seen = y[3000:4000], np.sort(y[:3000])
    # CRPS of the law that puts equal mass on every training row: E|Z - y| - E|Z - Z'| / 2.
    shares = np.bincount(seen.astype(int)) / 3000
    z = np.arange(len(shares))
    to_y = np.abs(z - test[:, None]) @ shares
    constant = to_y.mean() - 0.5 * shares @ np.abs(z - z[:, None]) @ shares
    assert model.crps(X[3000:4000], test) < 0.5 * constant
