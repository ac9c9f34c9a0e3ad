"""Members some at a time: the same as all together, kept as they finish, one group in memory."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from ddpn.networks.backbones import MLP, Members, Tuned
from ddpn.networks.backbones.fine_tuning import Frozen, Tail
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TrainingConfig, fit, fit_ensemble
from ddpn.networks.training.loop import Training
from ddpn.runtime.errors import ConfigError, InputError

CONFIG = TrainingConfig(epochs=2, batch_size=16, lr=1e-2, seeds=(3, 8, 5))
OPTIONS = {"runtime": Runtime("cpu")}


def make(members: int) -> CountModel:
    return CountModel(MLP(n_in=3, hidden=(8,), members=members), make_head("double_poisson"), members)


@pytest.mark.parametrize("at_once", [2, 7])
def test_they_are_those_of_all_together(rows, tmp_path, at_once):
    found = fit_ensemble(make, rows(40), rows(20), CONFIG, tmp_path, at_once=at_once, **OPTIONS)
    together = make(3)
    together.reset(CONFIG.seeds)
    history = fit(together, rows(40), rows(20), CONFIG, **OPTIONS)
    x = rows(9).X
    torch.testing.assert_close(found.raw(x, batch=4), together.raw(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.mixture(x).mean, together.mixture(x).mean, rtol=1e-5, atol=1e-6)
    assert [epoch for each in found.histories() for epoch in each.best_epoch] == history.best_epoch


def test_what_is_finished_is_not_trained_again(rows, tmp_path, monkeypatch):
    usual, trained, stops = Training.run_epoch, [], [(8,)]

    def stopped(self):
        if self.config.seeds in stops and self.epoch == 1:
            stops.clear()
            raise KeyboardInterrupt
        trained.append((self.config.seeds, self.epoch))
        return usual(self)

    monkeypatch.setattr(Training, "run_epoch", stopped)
    part = fit_ensemble(make, rows(40), None, CONFIG, tmp_path, **OPTIONS)
    assert part.interrupted
    assert part.groups == [(3,)], "the interrupted group is not finished, and the last was not to be begun"
    assert part.raw(rows(3).X).shape == (3, 1, 2)
    whole = fit_ensemble(make, rows(40), None, CONFIG, tmp_path, **OPTIONS)
    assert not whole.interrupted
    assert trained == [((seed,), epoch) for seed in CONFIG.seeds for epoch in (0, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"members-{i}.safetensors" for i in range(3)]


@pytest.fixture(scope="module")
def finished(rows, tmp_path_factory):
    """A folder with all members of a training."""
    folder = tmp_path_factory.mktemp("finished")
    fit_ensemble(make, rows(40), rows(20), CONFIG, folder, **OPTIONS)
    return folder


@pytest.mark.parametrize("what", ["lr", "head", "network", "training data", "validation data", "start"])
def test_files_of_another_training_are_not_mixed_in(rows, finished, what):
    head = "gaussian" if what == "head" else "double_poisson"
    activation = "tanh" if what == "network" else "relu"
    other = lambda m: CountModel(MLP(n_in=3, hidden=(8,), members=m, activation=activation), make_head(head), m)
    train, validation = rows(40, seed=int(what == "training data")), rows(20, seed=int(what == "validation data"))
    config = replace(CONFIG, lr=0.5) if what == "lr" else CONFIG
    start = torch.zeros(2) if what == "start" else None
    with pytest.raises(InputError, match=rf"members-0\.safetensors comes from a training with another {what}\."):
        fit_ensemble(other, train, validation, config, finished, start=start, **OPTIONS)


def test_frozen_weights_must_be_those_of_the_training(rows, tmp_path):
    def frozen_at(seed: int):
        def own(members: int) -> CountModel:
            torch.manual_seed(seed)
            return CountModel(Tuned(Frozen(nn.Linear(3, 4), 1), Tail(None, width=4, members=members)), head, members)

        return own

    head = make_head("poisson")
    found = fit_ensemble(frozen_at(1), rows(40), None, CONFIG, tmp_path, **OPTIONS)
    assert found.raw(rows(3).X).shape == (3, 3, 1)
    found.make = frozen_at(2)
    with pytest.raises(InputError, match="trained with other frozen weights"):
        found.raw(rows(3).X)


def test_exposure_multiplies_the_mean(rows, tmp_path):
    poisson = lambda members: CountModel(MLP(n_in=3, hidden=(8,), members=members), make_head("poisson"), members)
    found, x = fit_ensemble(poisson, rows(40), None, CONFIG, tmp_path, **OPTIONS), rows(5).X
    exposed = found.mixture(x, exposure=torch.full((5,), 3.0))
    torch.testing.assert_close(exposed.mean, 3.0 * found.mixture(x).mean)


def test_exposure_is_asked_for_where_members_were_trained_with_it(rows, tmp_path):
    found, x = fit_ensemble(make, rows(40, exposure=True), None, CONFIG, tmp_path, **OPTIONS), rows(5).X
    torch.testing.assert_close(
        found.mixture(x, exposure=2.0).mean, found.mixture(x, exposure=torch.full((5,), 2.0)).mean
    )
    for exposure, message in {
        None: "exposure is missing",
        (1.0, 2.0): "exposure must have one value per row",
        -1.0: "exposure must be finite and positive, got -1",
    }.items():
        with pytest.raises(InputError, match=message):
            found.mixture(x, exposure=exposure)


class Named(TensorDataset):
    """A data set with an identity."""

    identity = "one"


@pytest.mark.parametrize("kind", [TensorDataset, Named])
def test_another_data_set_is_not_mixed_in(rows, tmp_path, kind):
    data = rows(40)
    fit_ensemble(make, kind(data.X, data.y), None, CONFIG, tmp_path, **OPTIONS)
    other = kind(data.X, data.y.flip(0))
    other.identity = "another"
    with pytest.raises(InputError, match="another training data"):
        fit_ensemble(make, other, None, CONFIG, tmp_path, **OPTIONS)


def test_a_wrong_source_is_refused_before_anything_is_written(rows, tmp_path):
    with pytest.raises(
        InputError, match=r"^validation must be a Sample, Augmented or a Dataset with a length, got tuple"
    ):
        fit_ensemble(make, rows(40), (rows(20).X, rows(20).y), CONFIG, tmp_path / "new", **OPTIONS)
    assert not (tmp_path / "new").exists()


def test_another_network_is_refused(rows, tmp_path):
    found = fit_ensemble(make, rows(40), None, CONFIG, tmp_path, **OPTIONS)
    found.make = lambda members: CountModel(MLP(n_in=3, hidden=(4,), members=members), make_head("poisson"), members)
    with pytest.raises(InputError, match="does not fit the network"):
        found.raw(rows(3).X)


def test_statistics_of_a_users_norms_are_kept(rows, tmp_path):
    class Normed(Members):
        output_dim = 4

    def own(members: int) -> CountModel:
        backbone = Normed(lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4)), members)
        return CountModel(backbone, make_head("poisson"), members)

    found = fit_ensemble(own, rows(40), None, CONFIG, tmp_path, **OPTIONS)
    first = next(found.models())
    assert int(first.backbone[0][0].num_batches_tracked) == 2 * (40 // 16)
    assert not torch.equal(first.backbone[0][0].running_mean, torch.zeros(3))


def test_at_once_is_validated(rows, tmp_path):
    with pytest.raises(ConfigError, match="at_once must be an integer of at least 1, got 0"):
        fit_ensemble(make, rows(40), None, CONFIG, tmp_path, at_once=0)
