"""Test `CountRegressor` and `DDPNRegressor`: what they fit, which rows they hold out, and what they refuse."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from ddpn import CountRegressor, DDPNRegressor
from ddpn.calibration.calibration import Calibration
from ddpn.distributions import Poisson
from ddpn.distributions.kernels import compiling
from ddpn.estimators.ddpn_regressor import draw_validation_mask
from ddpn.members import MEMBERS, format_member_label, network_options
from ddpn.members.folds import Folds
from ddpn.members.glm import GLM
from ddpn.metrics import crps
from ddpn.networks.training.loop import Training
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    """300 rows whose log mean is a line: nothing that networks could add."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    return X, rng.poisson(np.exp(0.5 + 0.6 * X[:, 0])).astype(float)


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_the_seconds_of_a_fit_leave_out_compiling(line, monkeypatch, n_jobs):
    timer, fit = SimpleNamespace(done=True, duration=0.0), Folds.fit

    def compile_and_fit(*arguments):
        timer.duration += 100.0
        return fit(*arguments)

    monkeypatch.setattr(compiling, "_compile_timers", [timer])
    monkeypatch.setattr(Folds, "fit", compile_and_fit)
    X, y = line
    rows = CountRows(X[200:], y[200:])
    model = CountRegressor(members=["glm"], n_jobs=n_jobs, random_state=0).fit(X[:200], y[:200], validation=rows)
    assert timer.duration >= 100.0
    seconds = {entry["name"]: entry["seconds"] for entry in model.leaderboard(X, y).entries}
    assert seconds == dict.fromkeys(seconds, pytest.approx(-100.0, abs=50.0)), "100 of the few seconds were compiling"


def test_the_default_model_says_what_it_is_fitted_without(line, monkeypatch):
    monkeypatch.setattr(GLM, "max_columns", 2)
    words = "^The mixture is fitted without GLM, because it has 3 inputs, but a GLM is fitted to at most 2"
    with pytest.warns(UserWarning, match=words) as caught:
        model = CountRegressor(members=["glm", "constant"], random_state=0).fit(*line)
    assert caught[0].filename == __file__, "the warning should point to the user's call of fit"
    assert model.predictor_.weights == {"constant": 1.0}
    assert list(model.left_out_) == ["glm"]
    assert not hasattr(model, "history_"), "it has no networks"


@pytest.mark.filterwarnings("ignore:The checks of the table were not finished", "ignore:The model is calibrated with")
@pytest.mark.parametrize("seconds", [0.2, 1.5])
def test_a_budget_that_is_too_small_names_all_that_is_left_out(line, seconds):
    with pytest.warns(UserWarning, match="The mixture is fitted without") as caught:
        model = CountRegressor(time_budget=seconds, random_state=0).fit(*line)
    sentences = [str(warning.message) for warning in caught if "fitted without" in str(warning.message)]
    assert len(sentences) == 1
    planned = {"constant", "trees", "glm", "networks", "large_networks"}
    assert set(model.left_out_) == planned - set(model.predictor_.members)
    for name in model.left_out_:
        assert format_member_label(name, MEMBERS[name]) in sentences[0]
    if list(model.predictor_.weights) == ["constant"]:
        assert sentences[0].endswith("Raise the time budget. It has only one member: constant distribution.")


@pytest.mark.parametrize(
    ("rows", "groups", "words"),
    [(1, None, "two different rows"), (20, None, "two different rows"), (20, "a", "groups must have at least two")],
    ids=["one row", "equal rows", "one group"],
)
def test_rows_that_cannot_be_divided_are_refused(rows, groups, words):
    X = np.zeros((rows, 1)) if groups is None else np.arange(rows).reshape(-1, 1)
    options = {} if groups is None else {"groups": [groups] * rows}
    with pytest.raises(InputError, match=words):
        CountRegressor(random_state=0).fit(X, np.full(rows, 3), **options)


@pytest.mark.filterwarnings("ignore:The mixture is fitted without")
def test_two_rows_are_enough_to_predict():
    model = CountRegressor(random_state=0).fit([[0.0], [1.0]], [3, 5])
    assert 1.0 < model.predict([[0.0]])[0] < 10.0


@pytest.mark.parametrize("members", [5, "all", ["tree"], {"glm"}], ids=str)
def test_members_must_be_names(members):
    with pytest.raises(ConfigError, match="members"):
        CountRegressor(members=members).fit([[0.0], [1.0]], [3, 5])


def test_networks_are_not_counted_by_members():
    with pytest.raises(TypeError, match=r"DDPNRegressor\(\) has no argument 'members'. Use 'n_networks'"):
        DDPNRegressor(members=5)
    assert "n_networks" in DDPNRegressor().get_params()


def test_the_mean_of_trees_follows_monotone_constraints(line):
    X, y = line
    for sign in (1, -1):
        model = CountRegressor(members=["trees"], monotone={"x0": sign}, random_state=0).fit(X, y)
        assert not model.predictor_.calibration.is_recalibrated(), "it might bend the mean"
        steps = np.diff(np.log(model.predict(np.linspace(-3, 3, 50)[:, None] * [1.0, 0.0, 0.0])))
        assert (sign * steps >= -1e-12).all()


def test_a_family_that_would_bend_a_monotone_mean_is_not_used():
    """Counts vary little, so a Double Poisson would be chosen, whose mean depends on the dispersion."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (1500, 2))
    few = X[:, 1] > 0.5
    y = rng.binomial(np.where(few, 4, 40), np.where(few, 0.5 + 0.4 * X[:, 0], 0.05 + 0.04 * X[:, 0]))
    model = CountRegressor(members=["trees"], monotone={"x0": 1}, random_state=0).fit(X, y)
    for other in (0.2, 0.8):
        assert (np.diff(model.predict(np.c_[np.linspace(0, 1, 60), np.full(60, other)])) >= -1e-9).all()
    with pytest.raises(ConfigError, match="monotone cannot be combined with a recalibration"):
        model.fit_recalibration(X, y, always=True)
    for bounds in ({"lower": 1}, {"upper": 40}):
        with pytest.raises(ConfigError, match="monotone must be None where counts have bounds"):
            CountRegressor(members=["trees"], monotone={"x0": 1}, **bounds).fit(X, np.maximum(y, 1))


@pytest.mark.parametrize("monotone", [{"ward": 1}, {"age": 2}, {"aeg": 1}, ["age"], 1], ids=str)
def test_monotone_constraints_are_directions_of_columns_of_numbers(monotone):
    X = pd.DataFrame({"age": np.arange(20.0) // 2, "ward": ["A", "B"] * 10})
    y = np.random.default_rng(0).poisson(3.0, 20)
    with pytest.raises(ConfigError, match="monotone"):
        CountRegressor(members=["trees"], monotone=monotone).fit(X, y)
    with pytest.raises(ConfigError, match="monotone"):
        CountRegressor(members=["trees"], mix_with=["glm"], monotone={"age": 1}).fit(X, y)


def test_further_members_are_fitted_beside_those_that_are_named(line):
    model = CountRegressor(members=["glm"], mix_with=["constant", "glm"], random_state=0).fit(*line)
    assert list(model.predictor_.members) == ["glm", "constant"]


def test_counts_that_no_member_can_fit_are_refused():
    with pytest.raises(InputError, match="no count above 0"):
        CountRegressor(members=["trees"]).fit(np.eye(9), np.zeros(9))


@pytest.mark.parametrize(
    ("rows", "share", "size"),
    [
        (199, "auto", 0), (200, "auto", 20), (1000, 0.25, 250), (50, None, 0), (50, 0.0, 0), (3, 0.9, 2), (1, 0.5, 0),
        (20, 0.001, 1),
    ],
)  # fmt: skip
def test_the_share_of_held_out_rows_is_as_asked(rows, share, size):
    mask = draw_validation_mask(CountRows(None, np.zeros(rows)), share, seed=0)
    assert mask.shape == (rows,)
    assert mask.sum() == size


# Further members --------------------------------------------------------------------------------------------------

#: Three batches per epoch.
QUICK = {"epochs": 2, "training_options": {"batch_size": 100}}


@pytest.fixture(scope="module")
def mixture_on_a_line(quick, line) -> DDPNRegressor:
    """Networks that hardly learn, with a GLM on a line and a constant."""
    return quick(mix_with=["glm", "constant"], n_networks=3, **QUICK).fit(*line)


def test_the_mixture_has_weights_that_sum_to_one(mixture_on_a_line, line):
    weights = mixture_on_a_line.predictor_.weights
    assert list(weights) == ["networks", "glm", "constant"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert min(weights.values()) >= 0.0
    dist = mixture_on_a_line.predict_distribution(line[0]).distribution
    # A weight of 0 means that the member has no component.
    size = {"networks": 3, "glm": 1, "constant": 1}
    assert dist.size == sum(size[name] for name, weight in weights.items() if weight > 0)
    means = {name: mixture_on_a_line.predictor_.distribution(line[0], member=name).mean.numpy() for name in weights}
    assert mixture_on_a_line.predict(line[0]) == pytest.approx(
        sum(weights[name] * means[name] for name in weights), rel=1e-9
    )
    assert set(mixture_on_a_line.predictor_.seconds) == set(weights)


def test_a_glm_on_a_line_gets_the_largest_weight_and_helps(mixture_on_a_line, quick, line):
    weights = mixture_on_a_line.predictor_.weights
    assert weights["glm"] > max(weights["networks"], weights["constant"])
    alone = quick(n_networks=3, **QUICK).fit(*line)
    networks = mixture_on_a_line.predictor_.distribution(line[0], member="networks").mean.numpy()
    assert (networks == alone.predict(line[0])).all(), "further members must not change the networks"
    rng = np.random.default_rng(9)
    X = rng.normal(size=(500, 3))
    y = rng.poisson(np.exp(0.5 + 0.6 * X[:, 0]))
    assert mixture_on_a_line.crps(X, y) < alone.crps(X, y)


@pytest.mark.parametrize(("rows", "validation"), [(90, "auto"), (300, None)])
def test_without_validation_rows_there_are_networks_only(quick, line, rows, validation):
    X, y = line
    model = quick(mix_with=["glm"], validation=validation, **QUICK).fit(X[:rows], y[:rows])
    assert model.predictor_.weights == {"networks": 1.0}
    assert model.predict(X).shape == (300,)


# Networks alone -------------------------------------------------------------------------------------------------------

#: Three batches per epoch of 270 rows instead of 17.
BATCHES = {"batch_size": 100}


@pytest.fixture(scope="module")
def make_quick_poisson(quick):
    """Make quick models with the cheapest likelihood, as these tests do not depend on it or have it as a parameter."""
    return lambda **options: quick(**{"likelihood": "poisson"} | options)


# Weights ---------------------------------------------------------------------------------------------------------


def test_a_weight_of_zero_equals_dropping_the_row(make_quick_poisson, larger, monkeypatch):
    """`epochs="auto"` follows the rows that count, too."""
    monkeypatch.setattr(network_options, "choose_epochs", lambda rows, batch_size: rows // 25)
    X, y = pd.DataFrame(larger[0][:100], columns=["a", "b"]), larger[1][:100]
    weight = (np.arange(100) % 4 > 0).astype(float)
    kept = weight > 0
    weighted = make_quick_poisson(epochs="auto").fit(X, y, weight)
    dropped = make_quick_poisson(epochs="auto").fit(X[kept], y[kept])
    assert (weighted.predict(X) == dropped.predict(X)).all()
    assert weighted.n_rows_ == dropped.n_rows_
    assert len(weighted.history_.epochs) == len(dropped.history_.epochs) < 4


# Randomness ------------------------------------------------------------------------------------------------------


def test_a_seed_determines_everything(make_quick_poisson, larger):
    X, y = larger
    options = {"epochs": 2, "training_options": BATCHES, "numeric": "auto", "likelihood": "mixed"}
    one, two, other = (make_quick_poisson(random_state=seed, **options).fit(X, y).predict(X) for seed in (3, 3, 4))
    assert (one == two).all()
    assert (one != other).any()


def test_a_random_stream_may_replace_the_seed(make_quick_poisson, counts):
    one, two = (
        make_quick_poisson(random_state=np.random.RandomState(5)).fit(*counts).predict(counts[0]) for _ in range(2)
    )
    assert (one == two).all()
    fresh = [make_quick_poisson(random_state=None).fit(*counts).predict(counts[0]) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


def test_global_streams_are_not_touched(make_quick_poisson, counts):
    np.random.seed(1)
    torch.manual_seed(1)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    make_quick_poisson().fit(*counts).predict(counts[0])
    assert (np.random.get_state()[1] == before[0]).all()
    assert (torch.get_rng_state() == before[1]).all()


# Validation rows -------------------------------------------------------------------------------------------------


def test_the_encoder_never_sees_held_out_rows(make_quick_poisson):
    """An outlier that only validation rows have leaves the encoder's mean where it was."""
    X, y = np.random.default_rng(4).normal(size=(300, 1)), np.ones(300)
    plain = make_quick_poisson(epochs=1, validation=0.5).fit(X, y)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    X[np.flatnonzero(draw_validation_mask(CountRows(X, y), 0.5, seed))[0]] = 1e9
    changed = make_quick_poisson(epochs=1, validation=0.5).fit(X, y)
    assert (changed.encoder_.transform([[0.3]]) == plain.encoder_.transform([[0.3]])).all()


def test_validation_rows_of_the_user_choose_the_epochs(make_quick_poisson, larger):
    X, y = larger
    options = {"training_options": BATCHES}
    model = make_quick_poisson(**options).fit(X[:200], y[:200], validation=CountRows(X[200:], y[200:]))
    assert model.n_rows_ == 200
    scores = np.array([epoch["score"] for epoch in model.history_.epochs])
    assert model.history_.best_epoch == (scores.argmin(0) + 1).tolist()
    wrong = make_quick_poisson(**options).fit(X[:200], y[:200], validation=CountRows(X[200:], 100 + y[200:]))
    assert (wrong.predict(X) != model.predict(X)).any()


def test_without_validation_every_row_is_trained_on(make_quick_poisson, larger):
    model = make_quick_poisson(validation=None).fit(*larger)
    assert model.n_rows_ == 300
    assert all("score" not in epoch for epoch in model.history_.epochs)
    assert model.history_.best_epoch == [5, 5]


# Checkpoints -----------------------------------------------------------------------------------------------------


def test_an_interrupted_fit_continues_where_it_stopped(make_quick_poisson, larger, tmp_path, interrupt, monkeypatch):
    X, y = larger
    options = {"numeric": "auto", "epochs": 6, "n_networks": 1, "training_options": BATCHES, "likelihood": "mixed"}
    expected = make_quick_poisson(**options).fit(X, y)
    run_epoch = Training.run_epoch
    done = []

    def record_epoch(training: Training) -> str:
        done.append(training.state.epoch)
        return run_epoch(training)

    interrupt(at=3)
    with pytest.raises(KeyboardInterrupt):
        make_quick_poisson(checkpoint=tmp_path / "state", **options).fit(X, y)
    monkeypatch.setattr(Training, "run_epoch", record_epoch)
    resumed = make_quick_poisson(checkpoint=tmp_path / "state", **options).fit(X, y)
    assert done == [3, 4, 5]
    assert (resumed.predict(X) == expected.predict(X)).all()
    with pytest.raises(InputError, match="another training"):
        make_quick_poisson(checkpoint=tmp_path / "state", **options).fit(X, y + 1)


# What is refused -------------------------------------------------------------------------------------------------

#: Options that `fit` refuses, and the words of its error that name them.
REFUSED = [
    ({"likelihood": "poison"}, "likelihood must be one of .* Did you mean 'poisson'"),
    ({"likelihood": None}, "likelihood must"),
    *(
        ({"likelihood": "double_poisson", "head_options": {name: value}}, name)
        for name, value in (("beta", 1.5), ("betta", 0.5), ("objective", "exactly"))
    ),
    ({"head_options": ["beta"]}, "head_options must"),
    ({"likelihood": "poisson", "head_options": {"beta": 0.5}}, "beta is not an option"),
    *(({"n_networks": value}, "n_networks must") for value in (0, 2.5, True)),
    *(({"hidden": value}, "hidden must") for value in (8, "wide", (8.5,), (8, 0))),
    ({"numeric": "bins"}, "numeric must"),
    *(({"epochs": value}, "epochs must") for value in (0, "many")),
    *(
        ({"training_options": {name: value}}, f"{name} must")
        for name, value in (
            ("activation", "sin"), ("bins", 0), ("batch_size", 0), ("batch_size", "big"), ("lr", 0.0),
            ("lr", float("nan")), ("weight_decay", -1.0), ("warmup", 1.0), ("schedule", "linear"), ("clip", 0.0),
            ("ema", 1.0), ("score", "mae"), ("patience", 0), ("precision", "fp8"),
        )
    ),
    ({"training_options": {"lrr": 0.1}}, "'lrr' in training_options. Did you mean 'lr'"),
    ({"training_options": "lr"}, "training_options must"),
    *(({"validation": value}, "validation must") for value in (1.0, "some", [0.1])),
    *(({"mix_with": value}, "mix_with") for value in ("glm", None, ["gml"], ["networks"])),
    ({"mix_with": ["glm"], "likelihood": "faithful_gaussian"}, "has no exact GLM"),
    ({"mix_with": ["glm"], "hidden": ()}, "mix_with must"),
    ({"checkpoint": "state", "random_state": None}, "random_state must"),
    ({"fractional": "floor"}, "fractional must"),
    ({"device": "tpu9"}, "device must"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=str)
def test_a_bad_option_is_reported_before_training(make_quick_poisson, counts, monkeypatch, options, words):
    monkeypatch.setattr(Training, "run_epoch", None)
    with pytest.raises(ConfigError, match=words):
        make_quick_poisson(**options).fit(*counts)


ROW = np.zeros((1, 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.full(90, 0.5)}, "y must .* got 0.5 at rows 0, 1"),
        ({"exposure": 0.0}, "exposure must .* got 0 at rows 0, 1"),
        ({"sample_weight": np.ones(89)}, "sample_weight must"),
        ({"X": np.zeros((90, 0))}, r"0 feature\(s\)"),
        ({"X": np.full((90, 3), np.inf)}, "Input X contains infinity"),
        ({"X": 5}, "X must"),
        ({"validation": (ROW, [1])}, r"validation must be rows with counts, got tuple.*CountRows\(X_val, y_val\)"),
        ({"validation": CountRows(ROW, [1]), "exposure": 1.0}, "must both have exposures"),
        ({"validation": CountRows(ROW, [1], exposure=1.0)}, "must both have exposures"),
        ({"validation": CountRows(ROW, [1], upper=[3])}, "upper must not be given"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_data_are_reported(make_quick_poisson, counts, change, words):
    with pytest.raises(ValueError, match=words):
        make_quick_poisson().fit(**{"X": counts[0], "y": counts[1]} | change)


def test_validation_rows_are_in_the_range_of_counts(make_quick_poisson, counts):
    with pytest.raises(ValueError, match=r"validation\.y must be at most `upper=50`, got 51 at row 0"):
        make_quick_poisson(upper=50).fit(*counts, validation=CountRows(ROW, [51]))


@pytest.mark.parametrize(
    ("removed", "words"),
    [
        ({"X_val": ROW, "y_val": [1], "upper_val": [2]}, r"validation=CountRows\(X=X_val, y=y_val, upper=upper_val\)"),
        ({"X_val": ROW, "weights": [1]}, "unexpected keyword argument 'weights'"),
    ],
)
def test_arguments_of_earlier_versions_name_their_replacement(make_quick_poisson, counts, removed, words):
    with pytest.raises(TypeError, match=words):
        make_quick_poisson().fit(*counts, **removed)


# Ctrl-C leaves the best ensemble so far -------------------------------------------------------------------------


@pytest.fixture
def interrupt(monkeypatch):
    """Raise KeyboardInterrupt before epoch `at` (from 0) of training number `training` (from 1)."""

    def plan(at: int, training: int = 1) -> None:
        run_epoch, seen = Training.run_epoch, []

        def run_or_interrupt(self: Training) -> str:
            if self not in seen:
                seen.append(self)
            if self.state.epoch == at and len(seen) == training:
                raise KeyboardInterrupt
            return run_epoch(self)

        monkeypatch.setattr(Training, "run_epoch", run_or_interrupt)

    return plan


def fit_until_interrupt(model: DDPNRegressor, larger) -> None:
    X, y = larger
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:200], y[:200], validation=CountRows(X[200:], y[200:]))


def test_the_best_epochs_so_far_are_kept_and_can_be_saved(quick, larger, interrupt, tmp_path):
    interrupt(at=4)
    model = quick(epochs=8, n_networks=1, training_options=BATCHES)
    fit_until_interrupt(model, larger)
    scores = [record["score"][0] for record in model.history_.epochs]
    assert len(scores) == 4
    assert model.interrupted_
    assert model.history_.stopped == "interrupted"
    assert model.history_.best_epoch == [1 + int(np.argmin(scores))]
    assert model.nll(larger[0][200:], larger[1][200:]) == pytest.approx(min(scores), rel=1e-4)
    model.save(tmp_path / "model")
    again = DDPNRegressor.load(tmp_path / "model")
    assert (again.predict(larger[0]) == model.predict(larger[0])).all()
    assert again.interrupted_


def test_a_fit_that_ends_before_its_first_epoch_changes_nothing(quick, counts, wards, interrupt):
    model = quick(n_networks=1, epochs=1).fit(*wards)
    before = dict(vars(model))
    interrupt(at=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*counts)
    with pytest.raises(InputError):
        model.fit(counts[0], -counts[1])
    assert vars(model) == before
    assert model.predict(wards[0]).shape == (90,)


def test_another_fit_forgets_the_names_of_columns(quick, counts, wards):
    model = quick(n_networks=1, epochs=1).fit(*wards)
    assert model.feature_kinds_ == ["category", "category", "number", "boolean"]
    model.fit(*counts)
    assert not hasattr(model, "feature_names_in_")
    assert (model.n_features_in_, model.feature_kinds_) == (3, ["number"] * 3)


# Scores without a test set


@pytest.fixture(scope="module")
def out_of_fold_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    return CountRegressor(members=["glm", "constant"], random_state=0).fit(X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])))


def test_without_a_test_set_the_rows_of_fit_are_scored_out_of_fold(out_of_fold_model):
    board = out_of_fold_model.leaderboard()
    assert (board.rows, board.title) == (300, "Scores on 300 out-of-fold rows")
    assert out_of_fold_model.verdict() == board.verdict
    assert "There are no test rows" in str(board.verdict)
    before = out_of_fold_model.predictor_.calibration.intervals
    out_of_fold_model.leaderboard()
    assert out_of_fold_model.predictor_.calibration.intervals is before, "the model stays as it is"


@pytest.mark.parametrize("kind", ["saved", "pickled", "validation rows", "networks alone"])
def test_out_of_fold_scores_need_a_model_that_was_cross_fitted_here(out_of_fold_model, tmp_path, kind):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)), rng.poisson(3.0, 60)
    if kind == "saved":
        out_of_fold_model.save(tmp_path / "m")
        model = CountRegressor.load(tmp_path / "m")
    elif kind == "pickled":
        model = pickle.loads(pickle.dumps(out_of_fold_model))
    elif kind == "validation rows":
        model = CountRegressor(members=["glm"], random_state=0).fit(
            X[:40], y[:40], validation=CountRows(X[40:], y[40:])
        )
    else:
        model = DDPNRegressor(n_networks=1, hidden=(4,), epochs=1, random_state=0).fit(X, y)
    for ask in (model.leaderboard, model.verdict):
        with pytest.raises(InputError, match="test set"):
            ask()


def test_the_papers_model_is_the_default_of_ddpn_regressor():
    """800 counts of Poisson(exp(x / 2)), a simulation of the paper, with fewer networks and epochs."""
    rng = np.random.default_rng(3)
    x, new = (rng.uniform(-5.0, 5.0, size=(rows, 1)) for rows in (800, 4000))
    y, seen = (rng.poisson(np.exp(0.5 * part[:, 0])) for part in (x, new))
    model = DDPNRegressor(n_networks=1, epochs=30, random_state=0, device="cpu").fit(x, y)
    networks = model.predictor_.members["networks"]
    assert (model.head_.options["objective"], networks.get_facts()["numeric"]) == ("paper", "standard")
    assert networks.options.widths == (128, 128, 128, 64)
    truth = Poisson(torch.from_numpy(np.exp(0.5 * new[:, 0])))
    best = crps(truth, torch.from_numpy(seen)).mean().item()
    assert best < model.crps(new, seen) < 1.06 * best


def test_the_preset_is_checked_and_bounds_need_the_exact_objective(counts):
    with pytest.raises(ConfigError, match="preset must be 'paper' or 'default', got 'paperlike'"):
        DDPNRegressor(preset="paperlike").fit(*counts)
    with pytest.raises(ConfigError, match='Use objective="exact"'):
        DDPNRegressor(upper=50).fit(*counts)
    assert DDPNRegressor(head_options={"objective": "exact"}).build_options()[0].loss_is_likelihood
    assert DDPNRegressor(preset="default").build_options()[0].loss_is_likelihood


def test_the_weights_of_a_fold_are_chosen_by_the_others_and_saved(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(250, 2))
    model = CountRegressor(members=["glm", "trees"], random_state=0).fit(X, rng.poisson(np.exp(1.0 + np.abs(X[:, 0]))))
    weights = model.predictor_.fold_weights
    assert len(weights) == 5
    assert all(sum(fold_weights.values()) == pytest.approx(1.0) for fold_weights in weights)
    assert len({fold_weights["trees"] for fold_weights in weights}) > 1
    assert model.predictor_.for_fold(3, Calibration()).weights == weights[3]
    model.save(tmp_path / "m")
    assert CountRegressor.load(tmp_path / "m").predictor_.fold_weights == weights


def test_small_arrays_of_few_values_are_scored_like_data_frames():
    """Equal rows are equal by chance: they are in any fold, and a fold does not hold all rows with a certain count."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (120, 1)).astype(float)
    y = rng.poisson(np.exp(0.5 + 0.8 * X[:, 0]))
    boards = []
    for table in (X, pd.DataFrame(X, columns=["x0"])):
        model = CountRegressor(members=["constant", "glm"], random_state=0).fit(table, y)
        boards.append(model.leaderboard())
        assert model.leaderboard().rows == 120
    assert [entry["crps"] for entry in boards[0].entries] == [entry["crps"] for entry in boards[1].entries]


def test_repeated_rows_of_a_small_array_are_like_a_weight():
    rng = np.random.default_rng(1)
    X, weight = rng.normal(size=(40, 2)), rng.integers(1, 4, 40)
    y = rng.poisson(np.exp(0.5 + 0.8 * X[:, 0]))
    model = CountRegressor(members=["constant", "trees", "glm"], random_state=0)
    weighted = model.fit(X, y, sample_weight=weight).predict_interval(X)
    often = np.repeat(np.arange(40), weight)
    np.testing.assert_array_equal(weighted, model.fit(X[often], y[often]).predict_interval(X))
