"""Fitting `DDPNRegressor`: tables, weights, randomness, validation rows, checkpoints, and options that are refused."""

import io
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from rich import console
from scipy import sparse

from ddpn import ConfigError, DDPNRegressor, InputError
from ddpn.estimators.ddpn_regressor import held_out
from ddpn.estimators.estimator import merge_equal_rows
from ddpn.members import network_options
from ddpn.networks.training.loop import Training
from ddpn.paper.datasets.tabular import length_of_stay
from ddpn.sample import Sample

#: Three batches per epoch of 270 rows instead of 17.
BATCHES = {"batch_size": 100}


@pytest.fixture(scope="module")
def fast(quick):
    """`quick` with the cheapest likelihood: what this file tests is the same for all, or has them as parameters."""
    return lambda **options: quick(**{"likelihood": "poisson"} | options)


# Tables ----------------------------------------------------------------------------------------------------------

TABLES = {
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"]),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
    "csr": sparse.csr_matrix,
    "csc array": sparse.csc_array,
    "float32": lambda X: X.astype(np.float32),
}


@pytest.fixture(scope="module")
def plain(fast, larger) -> np.ndarray:
    """Predictions for float32 numbers in an array of float64."""
    X = larger[0].astype(np.float32).astype(np.float64)
    return fast(epochs=1).fit(X, larger[1]).predict(X)


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_fits_and_predicts_the_same(fast, larger, plain, kind):
    table = TABLES[kind](larger[0].astype(np.float32).astype(np.float64))
    assert (fast(epochs=1).fit(table, larger[1]).predict(table) == plain).all()


@pytest.fixture(scope="module")
def of_wards(fast, wards) -> DDPNRegressor:
    return fast(epochs=60, training_options={"lr": 1e-2}).fit(*wards)


def test_text_levels_flags_and_missing_values_are_accepted(of_wards, wards):
    X, _ = wards
    assert of_wards.feature_names_in_.tolist() == ["ward", "kind", "age", "urgent"]
    means = of_wards.predict(X)
    assert means[X["ward"] == "A"].mean() > 2 * means[X["ward"] == "C"].mean()
    assert of_wards.predict(pl.from_pandas(X)) == pytest.approx(means, rel=1e-12)
    assert (of_wards.predict(X[["urgent", "age", "kind", "ward"]]) == means).all()


def test_values_that_fit_has_not_seen_are_predicted(of_wards):
    new = pd.DataFrame({"ward": ["Z", None], "kind": ["Z", None], "age": [np.nan, 1e9], "urgent": [True, False]})
    assert np.isfinite(of_wards.predict(new)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X.drop(columns="age"), "'age'"),
        (lambda X: X.assign(extra=1), "'extra'"),
        (lambda X: X.rename(columns={"age": "years"}), "'age'.*'years'"),
        (lambda X: X.assign(age="old"), "column 'age' must hold numbers as in fit, got '"),
    ],
    ids=["missing", "extra", "renamed", "text for numbers"],
)
def test_wrong_columns_are_named(of_wards, wards, change, words):
    with pytest.raises(InputError, match=words):
        of_wards.predict(change(wards[0]))


def test_another_number_of_columns_is_reported(fitted):
    with pytest.raises(ValueError, match="X has 2 features, but FeatureEncoder is expecting 3 features as input"):
        fitted.predict(np.zeros((4, 2)))


def test_names_of_an_earlier_fit_are_forgotten(fast, wards, counts):
    model = fast(epochs=1).fit(*wards)
    assert not hasattr(model.fit(*counts), "feature_names_in_")


# Weights ---------------------------------------------------------------------------------------------------------


def test_weights_equal_repeated_rows_bit_for_bit(likelihood, fast, counts, exposures):
    X, y, exposure = counts[0][:40], counts[1][:40], exposures[:40]
    weight = np.random.default_rng(1).integers(0, 4, 40)
    again = np.repeat(np.arange(40), weight)
    weighted = fast(**likelihood).fit(X, y, weight, exposure)
    repeated = fast(**likelihood).fit(X[again], y[again], exposure=exposure[again])
    assert (weighted.predict(X, exposure) == repeated.predict(X, exposure)).all()
    assert (weighted.predict(X, exposure) != fast(**likelihood).fit(X, y, None, exposure).predict(X, exposure)).any()


def test_weights_equal_repeated_rows_in_larger_data(fast, larger):
    """By other batches, hence nearly: a model without hidden layers ends where the likelihood is highest."""
    X, y = larger
    weight = np.random.default_rng(1).integers(1, 4, 300)
    again = np.repeat(np.arange(300), weight)
    training = {"weight_decay": 0.0, "lr": 1e-2, "batch_size": 10**6}
    options = {"likelihood": "poisson", "hidden": (), "epochs": 150, "validation": None, "training_options": training}
    weighted = fast(**options).fit(X, y, weight).predict(X)
    assert weighted == pytest.approx(fast(**options).fit(X[again], y[again]).predict(X), rel=1e-3)


@pytest.mark.parametrize("frame", [False, True], ids=["array", "frame"])
@pytest.mark.parametrize("rows", [100, 300])
def test_a_weight_of_zero_equals_dropping_the_row(fast, larger, monkeypatch, rows, frame):
    """`epochs="auto"` follows the rows that count, too."""
    monkeypatch.setattr(network_options, "auto_epochs", lambda rows, batch_size: rows // 25)
    X, y = larger[0][:rows], larger[1][:rows]
    weight = (np.arange(rows) % 4 > 0).astype(float)
    kept = weight > 0
    X = pd.DataFrame(X, columns=["a", "b"]) if frame else X
    options = {"epochs": "auto" if rows == 100 else 2}
    weighted = fast(**options).fit(X, y, weight)
    dropped = fast(**options).fit(X[kept], y[kept])
    assert (weighted.predict(X) == dropped.predict(X)).all()
    assert weighted.n_rows_ == dropped.n_rows_
    assert len(weighted.history_.epochs) == len(dropped.history_.epochs) < 4


def test_weights_move_the_mean(fast, counts):
    X, y = np.zeros_like(counts[0]), counts[1]
    heavy = fast(epochs=60).fit(X, y, sample_weight=np.where(y > 5, 10.0, 1.0)).predict(X[:1])
    assert heavy > 1.2 * fast(epochs=60).fit(X, y).predict(X[:1])


def test_merging_equal_rows_adds_weights_and_forgets_the_order():
    X = np.array([[2.0], [1.0], [2.0], [2.0], [3.0]])
    y, exposure = np.array([5.0, 1.0, 5.0, 6.0, 9.0]), np.ones(5)
    found = merge_equal_rows(Sample(X, y, np.array([1.0, 2.0, 3.0, 1.0, 0.0]), exposure), X)
    assert found.X.ravel().tolist() == [1.0, 2.0, 2.0]
    assert found.y.tolist() == [1.0, 5.0, 6.0]
    assert found.weight.tolist() == [2.0, 4.0, 1.0]
    again = merge_equal_rows(Sample(X[::-1], y[::-1], np.array([0.0, 1.0, 3.0, 2.0, 1.0]), exposure), X[::-1])
    assert (again.X == found.X).all()
    assert (again.weight == found.weight).all()
    apart = merge_equal_rows(Sample(np.ones((2, 1)), np.ones(2), None, np.array([1.0, 2.0])), np.ones((2, 1)))
    assert apart.exposure.tolist() == [1.0, 2.0]


# Randomness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"numeric": "auto", "members": 1}, {"likelihood": "mixed"}], ids=str)
def test_a_seed_determines_everything(fast, larger, options):
    X, y = larger
    options = {"epochs": 2, "training_options": BATCHES} | options
    one, two, other = (fast(random_state=seed, **options).fit(X, y).predict(X) for seed in (3, 3, 4))
    assert (one == two).all()
    assert (one != other).any()


def test_a_random_stream_may_replace_the_seed(fast, counts):
    one, two = (fast(random_state=np.random.RandomState(5)).fit(*counts).predict(counts[0]) for _ in range(2))
    assert (one == two).all()
    fresh = [fast(random_state=None).fit(*counts).predict(counts[0]) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


def test_global_streams_are_not_touched(fast, counts):
    np.random.seed(1)
    torch.manual_seed(1)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    fast().fit(*counts).predict(counts[0])
    assert (np.random.get_state()[1] == before[0]).all()
    assert (torch.get_rng_state() == before[1]).all()


def test_the_number_of_threads_is_restored(fast, counts):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fast(epochs=1).fit(*counts).predict(counts[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# Validation rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "share", "size"),
    [
        (199, "auto", 0), (200, "auto", 20), (1000, 0.25, 250), (50, None, 0), (50, 0.0, 0), (3, 0.9, 2), (1, 0.5, 0),
        (20, 0.001, 1),
    ],
)  # fmt: skip
def test_a_share_isheld_out(rows, share, size):
    mask = held_out(Sample(None, np.zeros(rows)), share, seed=0)
    assert mask.shape == (rows,)
    assert mask.sum() == size


def test_which_rows_are_held_out_follows_the_seed():
    one, two, other = (held_out(Sample(None, np.zeros(300)), 0.5, seed) for seed in (1, 1, 2))
    assert (one == two).all()
    assert (one != other).any()


def test_rows_of_weight_zero_are_neither_trained_on_nor_held_out(fast, larger):
    X, y = larger
    weight = np.tile([0.0, 1.0], len(y) // 2)
    model = fast(validation=0.5).fit(X, y, weight)
    assert model.n_rows_ == len(y) // 4
    assert (model.predict(X) == fast(validation=0.5).fit(X[1::2], y[1::2]).predict(X)).all()


def test_the_encoder_never_sees_held_out_rows(fast):
    """An outlier that only validation rows have leaves the encoder's mean where it was."""
    X, y = np.random.default_rng(4).normal(size=(300, 1)), np.ones(300)
    plain = fast(epochs=1, validation=0.5).fit(X, y)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    X[np.flatnonzero(held_out(Sample(X, y), 0.5, seed))[0]] = 1e9
    changed = fast(epochs=1, validation=0.5).fit(X, y)
    assert (changed.encoder_.transform([[0.3]]) == plain.encoder_.transform([[0.3]])).all()


def test_validation_rows_of_the_user_choose_the_epochs(fast, larger):
    X, y = larger
    options = {"training_options": BATCHES}
    model = fast(**options).fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert model.n_rows_ == 200
    scores = np.array([epoch["score"] for epoch in model.history_.epochs])
    assert model.history_.best_epoch == (scores.argmin(0) + 1).tolist()
    wrong = fast(**options).fit(X[:200], y[:200], X_val=X[200:], y_val=100 + y[200:])
    assert (wrong.predict(X) != model.predict(X)).any()


def test_without_validation_every_row_is_trained_on(fast, larger):
    model = fast(validation=None).fit(*larger)
    assert model.n_rows_ == 300
    assert all("score" not in epoch for epoch in model.history_.epochs)
    assert model.history_.best_epoch == [5, 5]


def test_the_score_and_patience_of_validation(fast, larger):
    by_nll, by_crps = (
        fast(epochs=1, training_options={"score": score}).fit(*larger).history_.best_score for score in ("nll", "crps")
    )
    assert by_nll != by_crps
    model = fast(epochs=200, training_options={"patience": 2, "lr": 0.05, **BATCHES}).fit(*larger)
    assert len(model.history_.epochs) < 200


def test_no_hidden_layer_is_a_linear_model(fast, counts):
    model = fast(hidden=(), members=1, likelihood="poisson").fit(*counts)
    a, b = (np.log(model.predict(np.eye(3) * scale)) for scale in (1.0, 2.0))
    base = np.log(model.predict(np.zeros((1, 3))))
    assert b - base == pytest.approx(2.0 * (a - base), rel=1e-6)


def test_validation_rows_come_with_all_that_belongs_to_them(fast, counts, exposures):
    X, y = counts
    both = {"exposure": exposures, "X_val": X, "y_val": y, "exposure_val": exposures}
    assert fast(epochs=1).fit(X, y, **both).predictor_.needs_exposure


def test_progress_is_shown_on_request(fast, counts, monkeypatch):
    out, real = io.StringIO(), console.Console
    terminal = {"file": out, "force_terminal": True, "width": 150}
    monkeypatch.setattr(console, "Console", lambda **options: real(**terminal))
    fast().fit(*counts)
    assert out.getvalue() == ""
    fast(verbose=True).fit(*counts)
    assert "Training" in out.getvalue()
    assert "5/5" in out.getvalue()


# Checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numeric", ["standard", "auto"])
def test_an_interrupted_fit_continues_where_it_stopped(fast, larger, tmp_path, monkeypatch, numeric):
    X, y = larger
    options = {"numeric": numeric, "epochs": 6, "members": 1, "training_options": BATCHES, "likelihood": "mixed"}
    wanted = fast(**options).fit(X, y)
    run_epoch = Training.run_epoch
    done = []

    def interrupted(training: Training) -> str:
        if training.config.epochs == 6 and training.epoch == 3:
            raise KeyboardInterrupt
        return run_epoch(training)

    def watched(training: Training) -> str:
        if training.config.epochs == 6:
            done.append(training.epoch)
        return run_epoch(training)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "run_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fast(checkpoint=tmp_path / "state", **options).fit(X, y)
    monkeypatch.setattr(Training, "run_epoch", watched)
    resumed = fast(checkpoint=tmp_path / "state", **options).fit(X, y)
    assert done == [3, 4, 5]
    assert (resumed.predict(X) == wanted.predict(X)).all()
    if numeric == "standard":
        with pytest.raises(InputError, match="another training"):
            fast(checkpoint=tmp_path / "state", **options).fit(X, y + 1)


# What is refused -------------------------------------------------------------------------------------------------

#: An argument, a bad value, and key words. "head." and "training." are options of those dictionaries.
OPTIONS = [
    ("likelihood", "poison", "likelihood must be one of double_poisson, .*, got 'poison'. Did you mean 'poisson'"),
    ("likelihood", None, "likelihood must be one of"),
    ("head.beta", 1.5, r"beta must .*\[0, 1\], got 1.5"),
    ("head.betta", 0.5, "betta is not an option of the likelihood double_poisson. Did you mean 'beta'"),
    ("head.objective", "exactly", "objective must be 'exact' or 'paper', got 'exactly'"),
    ("head.gamma", "row", "gamma must be 'per_row' or 'shared', got 'row'"),
    ("head.initial_gamma", -1.0, "initial_gamma must .*positive.*, got -1"),
    ("head_options", ["beta"], "head_options must be a dictionary"),
    ("members", 0, "members must be an integer of at least 1, got 0"),
    ("members", 2.5, "members must be an integer of at least 1, got 2.5"),
    ("members", True, "members must be an integer of at least 1, got True"),
    ("hidden", 8, "hidden must be .*widths of layers.*, got 8"),
    ("hidden", "wide", "hidden must be .*widths of layers.*, got 'wide'"),
    ("hidden", (8.5,), "width in hidden must be an integer of at least 1, got 8.5"),
    ("hidden", (8, 0), "width in hidden must be an integer of at least 1, got 0"),
    ("training.activation", "sin", "activation must be one of relu, .*, got .sin."),
    ("numeric", "bins", "numeric must be one of auto, standard, piecewise, steps, got 'bins'"),
    ("training.bins", 0, "bins must be .*integer.*, got 0"),
    ("epochs", 0, 'epochs must be "auto" or an integer of at least 1, got 0'),
    ("epochs", "many", 'epochs must be "auto" or an integer of at least 1, got \'many\''),
    ("training.batch_size", 0, 'batch_size must be "auto" or an integer of at least 1, got 0'),
    ("training.batch_size", "big", 'batch_size must be "auto" or an integer of at least 1, got \'big\''),
    ("training.lr", 0.0, "lr must be finite and positive, got 0.0"),
    ("training.lr", float("nan"), "lr must be finite and positive, got nan"),
    ("training.weight_decay", -1.0, "weight_decay must be finite and at least 0"),
    ("training.warmup", 1.0, r"warmup must .*in \[0, 1\), got 1.0"),
    ("training.schedule", "linear", "schedule must .*cosine.*constant.*, got 'linear'"),
    ("training.clip", 0.0, "clip must be None or .*positive.*, got 0.0"),
    ("training.ema", 1.0, r"ema must .*in \[0, 1\), got 1.0"),
    ("training.score", "mae", "score must be one of auto, nll, crps, got 'mae'"),
    ("training.patience", 0, "patience must .*at least 1, got 0"),
    ("training.precision", "fp8", "precision must .*float32.*bf16.*, got 'fp8'"),
    ("training.lrr", 0.1, "Unknown key 'lrr' in training_options. Did you mean 'lr'"),
    ("training_options", "lr", "training_options must be a dictionary"),
    ("validation", 1.0, r'validation must be "auto", None or a share in \[0, 1\), got 1.0'),
    ("validation", "some", "validation must .*got 'some'"),
    ("validation", [0.1], r"validation must .*got \[0.1\]"),
    ("mix_with", "glm", r'mix_with must be a list of names such as \["glm"\], got \'glm\''),
    ("mix_with", None, "mix_with must be a list of names"),
    ("mix_with", ["gml"], "Unknown key 'gml' in mix_with. Did you mean 'glm'"),
    ("mix_with", ["networks"], "Unknown key 'networks' in mix_with"),
    ("fractional", "floor", "fractional must be 'error' or 'round', got 'floor'"),
    ("device", "tpu9", "device must be .*got .tpu9."),
]  # fmt: skip


@pytest.mark.parametrize("size", ["auto", "set"])
@pytest.mark.parametrize(("name", "value", "words"), OPTIONS, ids=lambda value: str(value)[:20])
def test_a_bad_option_is_reported_before_training(fast, counts, monkeypatch, name, value, words, size):
    monkeypatch.setattr(Training, "run_epoch", None)
    training = {"batch_size": "auto"} if size == "auto" else {}
    options = {"epochs": "auto"} if size == "auto" else {}
    where, _, option = name.partition(".")
    if option == "":
        options |= {name: value}
    elif where == "head":
        options |= {"likelihood": "double_poisson", "head_options": {option: value}}
    else:
        training |= {option: value}
    with pytest.raises(ConfigError, match=words):
        fast(**{"training_options": training} | options).fit(*counts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"likelihood": "poisson", "head_options": {"beta": 0.5}}, "beta is not an option of the likelihood poisson"),
        ({"likelihood": "gaussian", "head_options": {"objective": "paper"}}, "objective is not an option of the like"),
        ({"mix_with": ["glm"], "likelihood": "faithful_gaussian"}, '"faithful_gaussian" has no exact GLM'),
        ({"mix_with": ["glm"], "hidden": ()}, 'mix_with must not contain "glm" without hidden layers'),
        ({"checkpoint": "state", "random_state": None}, "random_state must be an integer to use a checkpoint"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_reported(fast, counts, options, words):
    with pytest.raises(ConfigError, match=words):
        fast(**options).fit(*counts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.full(90, 0.5)}, "y must hold non-negative integers, got 0.5 at rows 0, 1"),
        ({"exposure": 0.0}, "exposure must be finite and positive, got 0 at rows 0, 1"),
        ({"sample_weight": np.ones(89)}, "sample_weight must have one value per row of X"),
        ({"X": np.zeros((90, 0))}, r"0 feature\(s\)"),
        ({"X": np.full((90, 3), np.inf)}, "Input X contains infinity"),
        ({"X": 5}, "X must be an array or a data frame, got int"),
        ({"X_val": np.zeros((90, 3))}, "X_val and y_val must be given together"),
        ({"y_val": np.zeros(90)}, "X_val and y_val must be given together"),
        ({"X_val": np.zeros((1, 3)), "y_val": [-1]}, "y_val must hold non-negative integers, got -1 at row 0"),
        ({"X_val": np.zeros((1, 3)), "y_val": [1], "exposure": 1.0}, "and exposure_val must be given together"),
        ({"X_val": np.zeros((1, 3)), "y_val": [1], "exposure_val": 1.0}, "exposure_val must be given together"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_bad_data_are_reported(fast, counts, change, words):
    with pytest.raises(ValueError, match=words):
        fast().fit(**{"X": counts[0], "y": counts[1]} | change)


def test_rows_are_called_by_the_index_of_a_frame(fast, counts):
    X, y = pd.DataFrame(counts[0], index=[f"patient {i}" for i in range(90)]), counts[1].copy()
    y[7] = -3
    with pytest.raises(InputError, match=re.escape("got -3 at row patient 7.")):
        fast().fit(X, y)


# The paper's data ------------------------------------------------------------------------------------------------


def test_halves_the_crps_of_a_constant_distribution_on_days_in_hospital(data_folder):
    data = length_of_stay(data_folder)
    X, y = data.X.to_pandas(), data.y
    options = {"epochs": 15, "training_options": {"batch_size": 100}, "random_state": 0, "device": "cpu"}
    model = DDPNRegressor(members=1, hidden=(64, 64), numeric="steps", **options)
    model.fit(X[:2000], y[:2000])
    test = y[3000:4000]
    # CRPS of the distribution that puts equal mass on every training row: E|Z - y| - E|Z - Z'| / 2.
    shares = np.bincount(y[:2000].astype(int)) / 2000
    z = np.arange(len(shares))
    to_y = np.abs(z - test[:, None]) @ shares
    constant = to_y.mean() - 0.5 * shares @ np.abs(z - z[:, None]) @ shares
    assert model.crps(X[3000:4000], test) < 0.5 * constant
