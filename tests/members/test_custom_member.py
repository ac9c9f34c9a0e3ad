"""Test that a user's member, defined here and registered in one line, is treated like those of the package.

It predicts the counts of the nearest neighbours, and is a part of `members="auto"` without being named anywhere.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import numpy as np
import polars as pl
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from typer.testing import CliRunner

from ddpn import CountRegressor
from ddpn.cli import app
from ddpn.distributions import CountDistribution
from ddpn.export import export_onnx
from ddpn.members import MEMBERS, Member
from ddpn.members.folds import CrossFitted
from ddpn.predictor import MIXTURE
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.contents import arrays_from_bytes, arrays_to_bytes
from ddpn.tables.encoding import FeatureEncoder, encoder_from_bytes, encoder_to_bytes
from ddpn.workflow.model_folder import load


class Empirical(CountDistribution):
    """Equal mass on each of k counts. Shape: (..., k) -> batch (...)."""

    def __init__(self, values):
        self.values = values
        super().__init__(values.shape[:-1])

    def log_prob(self, y):
        return (torch.as_tensor(y).unsqueeze(-1) == self.values).double().mean(-1).log()

    def bracket(self, depth):
        return self.values.amin(-1), self.values.amax(-1)

    def rows(self, index):
        return Empirical(self.values[index])


class Neighbours(Member):
    """The counts of the 15 training rows that are nearest in the encoded columns."""

    label = "nearest neighbours"

    def __init__(self, encoder, inputs, rates):
        self.encoder, self.inputs, self.rates = encoder, inputs, rates

    @classmethod
    def fit(cls, train, validation, seed, clock):
        encoder = FeatureEncoder().fit(train.X, train.y, train.weight)
        return cls(encoder, encoder.transform(train.X), train.y if train.exposure is None else train.y / train.exposure)

    def distribution(self, X, exposure=None):
        search = NearestNeighbors(n_neighbors=min(15, len(self.rates))).fit(self.inputs)
        rates = self.rates[search.kneighbors(self.encoder.transform(X), return_distance=False)]
        counts = rates if exposure is None else np.rint(rates * exposure[:, None])
        return Empirical(torch.from_numpy(counts).unsqueeze(1))

    def state(self):
        arrays = arrays_to_bytes(inputs=self.inputs, rates=self.rates)
        return {"rows.safetensors": arrays, "encoder.json": encoder_to_bytes(self.encoder)}

    @classmethod
    def from_state(cls, files):
        encoder = encoder_from_bytes(files["encoder.json"], "encoder.json")
        return cls(encoder, **arrays_from_bytes(files["rows.safetensors"]))


class WithoutText(Neighbours):
    """A member that takes columns of numbers alone."""

    label = "numbers only"
    is_default = False

    @classmethod
    def fit(cls, train, validation, seed, clock):
        np.column_stack([column.cells() for column in train.X]).astype(float)
        return super().fit(train, validation, seed, clock)


class WithoutNewLevels(Neighbours):
    """A member that cannot predict rows whose level the training rows lack."""

    label = "known levels only"
    is_default = False

    def distribution(self, X, exposure=None):
        if any(
            set(column.cells().tolist()) - set(self.levels_.get(column.name, ())) for column in X if column.is_category
        ):
            raise KeyError("level")
        return super().distribution(X, exposure)

    @classmethod
    def fit(cls, train, validation, seed, clock):
        member = super().fit(train, validation, seed, clock)
        member.levels_ = {column.name: column.cells().tolist() for column in train.X if column.is_category}
        return member

    def state(self):
        return super().state() | {"levels.json": json.dumps(self.levels_).encode()}

    @classmethod
    def from_state(cls, files):
        member = super().from_state(files)
        member.levels_ = json.loads(files["levels.json"])
        return member


@pytest.fixture(scope="module", autouse=True)
def register_members() -> Iterator[None]:
    """Register the members, and undo it after these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MEMBERS, "knn", Neighbours)
        patch.setitem(MEMBERS, "numbers", WithoutText)
        patch.setitem(MEMBERS, "levels", WithoutNewLevels)
        yield


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Counts that a line does not follow, which networks of two epochs have not learned."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(400, 1))
    return X, rng.poisson(np.exp(1.5 + np.cos(2.0 * X[:, 0]))).astype(float)


@pytest.fixture(scope="module")
def default_model(data) -> CountRegressor:
    """The default model with the member: cross-fitted, weighted and calibrated."""
    X, y = data
    options = {"epochs": 2, "hidden": (8,), "training_options": {"batch_size": 100}, "random_state": 0}
    return CountRegressor(**options).fit(X[:300], y[:300])


def test_the_member_is_a_part_of_the_default_model(default_model, data):
    """Its distributions have no parameters of their own, so copies are mixed, and not stacked."""
    X, y = data
    predictor = default_model.predictor_
    assert set(predictor.members) == {"constant", "glm", "trees", "networks", "knn"}
    assert sum(predictor.weights.values()) == pytest.approx(1.0)
    assert predictor.weights["knn"] > 0.1
    member = predictor.members["knn"]
    assert isinstance(member, CrossFitted)
    assert [len(copy.rates) for copy in member.copies] == [240] * 5
    means = np.mean([copy.distribution(X).mean[:, 0].numpy() for copy in member.copies], axis=0)
    assert predictor.distribution(X, member="knn").mean.numpy() == pytest.approx(means)
    assert member.distribution(X).mean.numpy()[:, 0] == pytest.approx(means)
    assert set(predictor.calibration.intervals) == {MIXTURE, *predictor.members}
    constant = predictor.distribution(X[300:], member="constant").crps(torch.from_numpy(y[300:])).mean()
    assert default_model.crps(X[300:], y[300:]) < 0.9 * constant.item()


def test_copies_of_the_member_are_saved_and_loaded(default_model, data, tmp_path):
    X, _ = data
    default_model.save(tmp_path / "model")
    folder = tmp_path / "model" / "knn"
    assert len(list(folder.glob("copy-*"))) == 5
    again = CountRegressor.load(tmp_path / "model")
    assert isinstance(again.predictor_.members["knn"], CrossFitted)
    assert (again.predict(X) == default_model.predict(X)).all()
    assert (again.predict_interval(X) == default_model.predict_interval(X)).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(MEMBERS, "knn")
        with pytest.raises(
            InputError, match=r"^The model has the member 'knn', .*Register it first: ddpn\.members\.MEMBERS\['knn'\]"
        ):
            CountRegressor.load(tmp_path / "model")


@pytest.fixture
def picklable_members():
    """Send the classes of this file to other processes by value, as those of a notebook are."""
    module = sys.modules[Neighbours.__module__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("numbers", r"without numbers only, because .* ValueError: could not convert string to float: '\w+'"),
        ("levels", r"without known levels only, because .* KeyError: 'level'"),
    ],
)
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_member_that_raises_on_a_column_is_left_out_with_its_reason(data, name, reason, n_jobs, picklable_members):
    """The member raises in its fit or when it predicts held-out rows; the model is that of the other members."""
    X, y = data
    frame = pl.DataFrame({"x": X[:60, 0], "name": [f"n{row % 25}" for row in range(60)]})
    alone = CountRegressor(members=["glm"], random_state=0).fit(frame, y[:60])
    with pytest.warns(UserWarning, match=reason):
        both = CountRegressor(members=["glm", name], random_state=0, n_jobs=n_jobs).fit(frame, y[:60])
    assert list(both.left_out_) == [name]
    assert both.predictor_.weights == {"glm": 1.0}
    assert (both.predict(frame) == alone.predict(frame)).all()


def test_a_member_that_raises_and_is_the_only_one_raises_its_error(data):
    _, y = data
    frame = pl.DataFrame({"name": [f"n{row % 25}" for row in range(60)]})
    with pytest.raises(ValueError, match="could not convert string to float"):
        CountRegressor(members=["numbers"], random_state=0).fit(frame, y[:60])


class WithoutReturn(Neighbours):
    """A member whose `fit` forgets to return it."""

    @classmethod
    def fit(cls, train, validation, seed, clock):
        super().fit(train, validation, seed, clock)


class WithTextFiles(Neighbours):
    """A member whose state is text."""

    def state(self):
        return {"levels.json": json.dumps([])}


class WithListOfFiles(Neighbours):
    """A member whose state has no names."""

    def state(self):
        return [b"[]"]


class Unreadable(Neighbours):
    """A member that cannot read what it has written."""

    @classmethod
    def from_state(cls, files):
        return json.loads(files["other.json"])


class LoadedAsNothing(Neighbours):
    """A member whose `from_state` forgets to return it."""

    @classmethod
    def from_state(cls, files):
        super().from_state(files)


def fit_wrong_member(monkeypatch, kind: type[Member], data, members=("wrong",)) -> CountRegressor:
    monkeypatch.setitem(MEMBERS, "wrong", kind)
    X, y = data
    return CountRegressor(members=list(members), random_state=0).fit(X[:60], y[:60])


def test_the_reason_of_a_member_that_is_left_out_names_the_line_of_its_file(monkeypatch, data):
    frame = pl.DataFrame({"x": data[0][:60, 0], "name": [f"n{row % 25}" for row in range(60)]})
    with pytest.warns(UserWarning, match="numbers only"):
        model = CountRegressor(members=["glm", "numbers"], random_state=0).fit(frame, data[1][:60])
    line = WithoutText.fit.__func__.__code__.co_firstlineno + 2
    assert model.left_out_["numbers"].endswith(f" (line {line} of test_custom_member.py)")


def test_a_fit_that_does_not_return_a_member_is_named(monkeypatch, data):
    with pytest.warns(UserWarning, match=r"TypeError: WithoutReturn\.fit must return a member, got NoneType"):
        model = fit_wrong_member(monkeypatch, WithoutReturn, data, ("glm", "wrong"))
    assert list(model.left_out_) == ["wrong"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WithTextFiles, r"^WithTextFiles\.state must return a dictionary of bytes by .*, got str for 'levels\.json'"),
        (WithListOfFiles, r"^WithListOfFiles\.state must return a dictionary of bytes by file name, got list\."),
    ],
)
def test_a_state_that_is_not_bytes_by_name_is_refused(monkeypatch, data, tmp_path, kind, words):
    model = fit_wrong_member(monkeypatch, kind, data)
    with pytest.raises(TypeError, match=words):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("kind", "reason", "cause"),
    [
        (Unreadable, r"Unreadable\.from_state raised KeyError: 'other\.json'", KeyError),
        (LoadedAsNothing, r"LoadedAsNothing\.from_state must return a member, got NoneType", TypeError),
    ],
)
def test_an_error_in_from_state_names_the_member(monkeypatch, data, tmp_path, kind, reason, cause):
    fit_wrong_member(monkeypatch, kind, data).save(tmp_path / "model")
    with pytest.raises(InputError, match=rf"^The member 'wrong' of the saved model cannot be .*{reason}") as caught:
        CountRegressor.load(tmp_path / "model")
    assert type(caught.value.__cause__) is cause


def test_the_member_is_named_as_what_cannot_be_exported(default_model, tmp_path):
    with pytest.raises(ConfigError, match=r"The member 'knn' cannot be exported"):
        export_onnx(default_model, tmp_path / "model.onnx")


def test_the_command_line_fits_compares_and_reports_the_member(data, tmp_path, monkeypatch):
    X, y = data
    table = pl.DataFrame({"x": X[:, 0], "noise": np.tile([1.0, 2.0], 200), "visits": y.astype(int)})[:280]
    table.write_csv(tmp_path / "visits.csv")
    settings = 'n_networks = 2\nhidden = [8]\nnumeric = "standard"\nepochs = 2\ndevice = "cpu"\n'
    (tmp_path / "quick.toml").write_text(settings + 'target = "visits"\n[training_options]\nbatch_size = 100\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def ddpn(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    others = ("--mix-with", "knn", "--compare-with", "poisson_glm")
    assert "nearest neighbours" in ddpn("fit", "visits.csv", "--config", "quick.toml", *others, "-o", "model")
    predictor = load(Path("model")).model.predictor_
    assert predictor.weights["knn"] > 0.0 == predictor.weights["poisson_glm"]
    result = json.loads(ddpn("evaluate", "model", "visits.csv", "--json"), parse_constant=pytest.fail)
    entry, glm = (next(e for e in result["entries"] if e["name"] == name) for name in ("knn", "poisson_glm"))
    assert (entry["label"], entry["weight"]) == ("nearest neighbours", predictor.weights["knn"])
    assert 0.7 < entry["coverage"] <= 1.0
    assert entry["crps"] < glm["crps"]
    ddpn("predict", "model", "visits.csv", "-o", "predictions.csv")
    assert pl.read_csv("predictions.csv").height == 280
    ddpn("report", "model", "visits.csv", "-o", "report.html")
    assert "nearest neighbours" in Path("report.html").read_text()


def test_a_method_with_an_old_name_is_refused():
    with pytest.raises(TypeError, match=r"Old\.facts is called get_facts since ddpn 0\.4"):
        type("Old", (Member,), {"facts": lambda self: {}})


def test_a_fit_that_changes_a_member_is_refused():
    """As those of version 0.3 did."""
    with pytest.raises(TypeError, match=r"Old\.fit must be a class method"):
        type("Old", (Member,), {"fit": lambda self, train, validation, seed, clock: self})
