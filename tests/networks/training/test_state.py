"""Test that the best epoch is kept, and that a network that fails is rolled back without the others noticing."""

import multiprocessing
import runpy
import signal
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ddpn.distributions import DoublePoisson
from ddpn.networks.backbones import MLP, FineTuned, NetworkList
from ddpn.networks.backbones.fine_tuned import NetworkTail
from ddpn.networks.backbones.layers import Frozen
from ddpn.networks.heads import DoublePoissonHead, make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import CountRows, History, Runtime, TrainingConfig, fit
from ddpn.networks.training.loop import Training
from ddpn.networks.training.weights import FlatWeights
from ddpn.runtime.errors import ConfigError, InputError, TrainingError
from ddpn.storage import tensor_files

# Selection -----------------------------------------------------------------------------------------------------------

SEEDS = (1, 2, 3)


#: Twelve rows and a high, constant learning rate: validation gets worse sooner or later.
OVERFITTING = {"epochs": 30, "lr": 0.05, "weight_decay": 0.0, "schedule": "constant", "warmup": 0.0, "ema": 0.0}


@pytest.fixture(scope="module")
def train_to_overfit(train, rows):
    """Train with these settings, once for all tests, and return weights and history."""

    @cache
    def run(validate: bool = True, **settings):
        validation = rows(60, seed=2) if validate else None
        return train(rows(12, seed=1), validation, **OVERFITTING | {"seeds": SEEDS} | settings)

    return run


@pytest.fixture(scope="module")
def get_weights_after(rows, fresh):
    """Return the (averaged) weights after an epoch of a training that selects nothing."""

    @cache
    def all_epochs(ema: float):
        config = TrainingConfig(**OVERFITTING | {"seeds": SEEDS, "ema": ema, "batch_size": 16})
        training = Training(fresh(SEEDS), rows(12, seed=1), None, config, Runtime("cpu"))
        return [training.run_epoch() and training.state.optimizer.average.clone() for _ in range(config.epochs)]

    return lambda epoch, ema=0.0: all_epochs(ema)[epoch - 1]


@pytest.mark.parametrize(("score", "ema"), [("nll", 0.0), ("crps", 0.5)])
def test_each_network_keeps_its_own_best_epoch(train_to_overfit, get_weights_after, score, ema):
    best, history = train_to_overfit(score=score, ema=ema)
    scores = torch.tensor([record["score"] for record in history.epochs])
    assert history.best_epoch == (scores.argmin(0) + 1).tolist()
    assert history.best_score == pytest.approx(scores.min(0).values.tolist())
    assert len(set(history.best_epoch)) > 1, "all are best at the same time, so nothing is shown"
    for number, epoch in enumerate(history.best_epoch):
        assert torch.equal(best[number], get_weights_after(epoch, ema)[number])


def test_the_last_epoch_is_kept_where_nothing_is_validated_whatever_the_patience(train_to_overfit, get_weights_after):
    kept, history = train_to_overfit(validate=False, patience=1, epochs=4)
    assert history.best_epoch == [4, 4, 4]
    assert "score" not in history.epochs[0]
    assert len(history.epochs) == 4
    assert history.stopped == ""
    assert torch.equal(kept, get_weights_after(4))


@pytest.mark.parametrize("patience", [1, 2])
def test_a_network_has_stopped_after_so_many_epochs_without_a_better_score(
    train_to_overfit, get_weights_after, patience
):
    _, whole = train_to_overfit(score="nll", ema=0.0)
    kept, history = train_to_overfit(patience=patience)
    for number in range(len(SEEDS)):
        scores = [record["score"][number] for record in whole.epochs]
        epoch, best = 0, 0
        while epoch - best < patience:
            epoch += 1
            best = epoch if scores[epoch - 1] < min([*scores[: epoch - 1], float("inf")]) else best
        assert history.best_epoch[number] == best
        assert history.best_score[number] == scores[best - 1]
        assert torch.equal(kept[number], get_weights_after(best)[number])
    assert len(history.epochs) == max(history.best_epoch) + patience < OVERFITTING["epochs"]
    assert history.stopped == f"no network had a better nll for {patience} epochs"
    chances = zip(history.best_epoch, whole.best_epoch, strict=True)
    assert any(kept < best <= len(history.epochs) for kept, best in chances), "no better score came too late"


@pytest.mark.parametrize("score", ["nll", "crps"])
def test_scores_are_those_of_the_distribution_whatever_the_objective(train, rows, fresh, score):
    data, validation = rows(64, exposure=True), rows(40, seed=2, exposure=True)
    model = fresh((1, 2), "double_poisson", objective="paper", beta=1.0)
    _, history = train(data, validation, model=model, seeds=(1, 2), epochs=1, score=score, ema=0.5)
    with torch.no_grad():  # the model now has what was scored, the average
        raw = model.raw(validation.X).double()
    dist = make_head("double_poisson")(raw, validation.exposure.unsqueeze(1))
    assert isinstance(dist, DoublePoisson)
    y = validation.y.double().unsqueeze(1)
    expected = -dist.log_prob(y) if score == "nll" else dist.crps(y)
    assert history.best_score == pytest.approx(expected.mean(0).tolist(), rel=1e-5)


def test_a_score_that_is_not_a_number_never_wins(train, rows, fresh, flat):
    broken = CountRows(torch.full((5, 3), torch.nan), torch.ones(5))
    got, history = train(rows(32), broken, epochs=2, head="poisson")
    assert history.best_score == [float("inf")]
    assert history.best_epoch == [0]
    assert torch.equal(got, flat(fresh((0,), "poisson")))


# Recovery ------------------------------------------------------------------------------------------------------------

#: At a constant rate a training is the beginning of a longer one.
STEADY = {"schedule": "constant", "warmup": 0.0, "seeds": (1, 2)}
SPOILED = 77.0


class FailingHead(DoublePoissonHead):
    """A head that fails for network 0 on rows whose count is SPOILED, or on all, from step `first` to `last`."""

    first, last, step, kind, everywhere = 1, 10**9, 0, "loss", False

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        self.step += torch.is_grad_enabled()  # not where rows are only evaluated
        value = super().loss(raw, y, exposure)
        if not self.first <= self.step <= self.last:
            return value
        hit = ((y == SPOILED) | self.everywhere) & (torch.arange(value.shape[1]) == 0)
        if self.kind == "loss":  # a constant has no gradient at all
            return torch.where(hit, torch.nan, value)
        if self.kind == "loss and gradient":
            return value * torch.where(hit, torch.nan, 1.0)
        # The root's slope at 0 is infinite: the loss is as it was, its gradient is not.
        return value + (torch.where(hit, (0.0 * raw[..., 0]).abs(), 1.0).sqrt() - (~hit).float())


@pytest.fixture
def spoil_rows(rows):
    """Make 48 rows, of which those at these positions are SPOILED."""

    def make(*at: int) -> CountRows:
        data = rows(48)
        data.y[list(at)] = SPOILED
        return data

    return make


@pytest.fixture
def make_failing_ensemble(fresh):
    """Make an ensemble that fails in some steps, counted from 1."""

    def make(seeds=(1, 2), **attributes):
        model = fresh(seeds)
        model.head = FailingHead()
        vars(model.head).update(attributes)
        return model

    return make


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("loss", {"ema": 0.0}), ("loss and gradient", {"ema": 0.5, "clip": 0.1}), ("gradient", {"ema": 0.5, "clip": 0.1})],
)
def test_a_failing_network_goes_back_and_the_other_does_not_notice(
    train, spoil_rows, make_failing_ensemble, kind, settings
):
    data, settings = spoil_rows(*range(48)), STEADY | settings
    one_epoch, _ = train(data, epochs=1, **settings)
    two_epochs, _ = train(data, epochs=2, **settings)
    # Three batches an epoch, so that step 6 is the last of the second.
    with pytest.warns(RuntimeWarning, match=r"^non-finite loss in epoch 2, network 0, "):
        recovered, history = train(data, epochs=2, model=make_failing_ensemble(first=6, last=6, kind=kind), **settings)
    assert torch.equal(recovered[0], one_epoch[0])
    assert torch.equal(recovered[1], two_epochs[1])
    assert len(history.rollbacks) == 1


def test_rows_with_a_failing_loss_are_named(train, spoil_rows, make_failing_ensemble, monkeypatch):
    monkeypatch.setattr("ddpn.networks.training.batches._SCORED_TABLE_ROWS", 7)
    with pytest.warns(RuntimeWarning, match="network 0, at rows 4, 30: the network was rolled back one epoch$"):
        train(spoil_rows(4, 30), epochs=1, batch_size=48, model=make_failing_ensemble(), **STEADY)


@pytest.mark.filterwarnings("ignore:non-finite loss:RuntimeWarning")
def test_a_network_that_fails_again_and_again_ends_the_training(train, rows, spoil_rows, make_failing_ensemble, flat):
    model = make_failing_ensemble(first=4)
    message = r"loss must stay finite, got 4 failures; the last: .* at row 5: .*\. Lower lr"
    with pytest.raises(TrainingError, match=message):
        train(spoil_rows(5), rows(20), epochs=20, model=model, **STEADY)
    assert torch.isfinite(flat(model)).all()
    assert not model.training


def test_a_network_that_is_done_may_fail_in_silence(train, rows, make_failing_ensemble):
    data, validation = rows(12, seed=1), rows(60, seed=2)
    options = STEADY | {"seeds": (1, 2, 3), "epochs": 30, "lr": 0.05, "weight_decay": 0.0, "ema": 0.0, "patience": 1}
    expected, undisturbed = train(data, validation, **options)
    done = undisturbed.best_epoch[0] + 1
    assert len(undisturbed.epochs) > done + 4, "the others do not go on for long enough"
    model = make_failing_ensemble(seeds=(1, 2, 3), first=done + 1, everywhere=True)
    got, history = train(data, validation, model=model, **options)
    assert torch.equal(got, expected)
    assert history.rollbacks == []
    assert history.epochs[done]["loss"][0] != history.epochs[done]["loss"][0], "it did not fail"


# Checkpoints: a training that was interrupted resumes to the same weights, bit for bit -------------------------------

PROGRAM = runpy.run_path(str(Path(__file__).with_name("one_training.py")))
#: Three steps and one validation per epoch.
CHECKPOINTED = TrainingConfig(epochs=4, batch_size=16, lr=0.01, clip=0.5, ema=0.5, patience=3, seeds=(3, 8))
CALLS_PER_EPOCH = 4


@pytest.fixture(scope="module")
def run_training(rows, fresh, flat, use_counter):
    """Train on 50 rows with a checkpoint; return the weights, the history and the number of uses of the network."""

    def run(file, interrupt_at=0, model=None, data=None, validation=None, config=CHECKPOINTED, **options):
        model = model or fresh(config.seeds)
        data, validation = data or rows(50, seed=1), validation or rows(40, seed=2)
        uses = use_counter(model, interrupt_at)
        history = fit(model, data, validation, config, runtime=Runtime("cpu"), checkpoint=file, **options)
        return flat(model), history, uses.count

    return run


@pytest.fixture
def train_with_checkpoint(run_training, tmp_path):
    """Train with a checkpoint in a file of this test."""
    return lambda **options: run_training(tmp_path / "state", **options)


@pytest.fixture(scope="module")
def plain_result(run_training):
    """Weights and history of the training without a checkpoint or an interruption."""
    return run_training(None)[:2]


@pytest.fixture(scope="module")
def second_epoch_checkpoint(run_training, tmp_path_factory):
    """The checkpoint of the plain training, interrupted in its second epoch."""
    file = tmp_path_factory.mktemp("interrupted") / "state"
    assert run_training(file, interrupt_at=6)[1].interrupted
    return file


def drop_seconds(history):
    plain = history.as_dict()
    return plain | {"epochs": [{k: v for k, v in record.items() if k != "seconds"} for record in plain["epochs"]]}


# In the first step, in a validation, and in the last use of all.
@pytest.mark.parametrize("at", [1, 4, 16])
def test_an_interrupted_training_resumes_to_the_same_bits(train_with_checkpoint, plain_result, at):
    assert train_with_checkpoint(interrupt_at=at)[1].interrupted
    got, resumed, uses = train_with_checkpoint()
    assert torch.equal(got, plain_result[0])
    assert drop_seconds(resumed) == drop_seconds(plain_result[1])
    begun = (at - 1) // CALLS_PER_EPOCH
    assert uses == (CHECKPOINTED.epochs - begun) * CALLS_PER_EPOCH, "epochs that were done are done again, or left out"


def test_a_finished_training_is_not_done_again(train_with_checkpoint, plain_result):
    _, history, _ = train_with_checkpoint(save_seconds=0.0)
    got, again, uses = train_with_checkpoint(save_seconds=0.0)
    assert uses == 0
    assert torch.equal(got, plain_result[0])
    assert again.as_dict() == history.as_dict()


# Checkpoints of other trainings ----------------------------------------------------------------------------------


@pytest.fixture
def other_trainings(rows, fresh):
    """Trainings that differ from the plain one, by what differs."""
    y = rows(50, seed=1)
    more = CountRows(y.X, y.y + (torch.arange(50) == 49))
    moved = fresh(CHECKPOINTED.seeds)
    with torch.no_grad():
        moved.projection.bias[1] += 1e-6
    curved = CountModel(MLP(n_in=3, hidden=(8, 6), n_networks=2, activation="gelu"), make_head("double_poisson"), 2)
    curved.reset(CHECKPOINTED.seeds)
    frozen = CountModel(
        FineTuned(Frozen(nn.Linear(3, 4), 1), NetworkTail(None, width=4, n_networks=2)), make_head("poisson"), 2
    )
    frozen.reset(CHECKPOINTED.seeds)
    return {
        "lr": {"config": replace(CHECKPOINTED, lr=0.02)},
        "training data": {"data": more},
        "validation data": {"validation": rows(40, seed=3)},
        "head": {"model": fresh(CHECKPOINTED.seeds, "double_poisson", beta=0.5)},
        "initial weights": {"model": moved},
        "network": {"model": curved},
        "head, network, frozen weights, initial weights": {"model": frozen},
    }


def test_the_checkpoint_of_another_training_is_refused(
    run_training, second_epoch_checkpoint, other_trainings, tmp_path
):
    before = second_epoch_checkpoint.read_bytes()
    for changed, options in other_trainings.items():
        with pytest.raises(InputError, match=rf"state belongs to another training, which differs in: {changed}\."):
            run_training(second_epoch_checkpoint, **options)
    assert second_epoch_checkpoint.read_bytes() == before
    with pytest.raises(InputError, match="which differs in: training data, lr"):
        run_training(second_epoch_checkpoint, **other_trainings["lr"] | other_trainings["training data"])
    tensor_files.write(tmp_path / "other", {"x": torch.zeros(2)}, {"something": "else"})
    with pytest.raises(InputError, match="belongs to another training"):
        run_training(tmp_path / "other")
    (tmp_path / "state").write_bytes(before[:-5])
    with pytest.raises(InputError, match="state is damaged"):
        run_training(tmp_path / "state")


# Real signals -----------------------------------------------------------------------------------------------------


def run_until_signal(number: int, at: int, state: Path) -> None:
    torch.set_num_threads(1)  # threads of the parent are not there in a fork
    model = PROGRAM["make_self_ending"](PROGRAM["make_network"](), number, at)
    raise SystemExit(130 if PROGRAM["run_training"](model, state).interrupted else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_process_that_was_stopped_leaves_a_checkpoint_to_resume_from(tmp_path, flat, number):
    state = tmp_path / "state"
    process = multiprocessing.get_context("fork").Process(target=run_until_signal, args=(number, 17, state))
    process.start()
    process.join(60)
    assert process.exitcode == (130 if number == signal.SIGINT else -number)
    assert tensor_files.read(state)[1]["epoch"] == 2
    whole, resumed = PROGRAM["make_network"](), PROGRAM["make_network"]()
    history, again = PROGRAM["run_training"](whole), PROGRAM["run_training"](resumed, state)
    assert torch.equal(flat(resumed), flat(whole))
    assert drop_seconds(again) == drop_seconds(history)


CONFIG = TrainingConfig(epochs=6, batch_size=16, lr=0.3, ema=0.0, seeds=(0, 1))


# Weights: one tensor of which all parameters are views --------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 3), (3, 2)], ids=["of other lengths", "as long by chance"])
def test_a_layer_that_networks_share_is_refused(shape):
    with pytest.raises(ConfigError, match=r"^parameters must have the 2 networks .*, got weight of shape"):
        FlatWeights(nn.Linear(*shape), n_networks=2)
    held = nn.ParameterList([nn.Parameter(torch.zeros(2, 3))])
    assert FlatWeights(held, n_networks=2).values.shape == (2, 3)


# Networks of a user, without an axis of networks, with statistics and dropout-----------------------------------------


class PlainNetworks(NetworkList):
    output_dim = 4


def make_batch_norm() -> nn.Module:
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.ReLU())
    network.register_parameter("idle", nn.Parameter(torch.ones(3)))
    return network


def make_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))


def make_model(network, seeds=CONFIG.seeds) -> CountModel:
    model = CountModel(PlainNetworks(network, len(seeds)), make_head("poisson"), len(seeds))
    model.reset(seeds)
    return model


def train_network(network, rows, **options) -> tuple[CountModel, History]:
    model = make_model(network)
    history = fit(model, rows(80), rows(40, seed=3), CONFIG, runtime=Runtime("cpu"), **options)
    return model, history


def test_networks_in_a_loop_equal_separate_runs(rows):
    together, x = train_network(make_batch_norm, rows)[0].raw(rows(9).X), rows(9).X
    for number, seed in enumerate(CONFIG.seeds):
        alone = make_model(make_batch_norm, (seed,))
        config = TrainingConfig(epochs=6, batch_size=16, lr=0.3, ema=0.0, seeds=(seed,))
        fit(alone, rows(80), rows(40, seed=3), config, runtime=Runtime("cpu"))
        torch.testing.assert_close(together[:, number], alone.raw(x)[:, 0], rtol=1e-5, atol=1e-5)


def test_the_kept_weights_score_what_the_best_epoch_did(rows):
    model, history = train_network(make_batch_norm, rows)
    validation = rows(40, seed=3)
    with torch.no_grad():
        scores = -model(validation.X).log_prob(validation.y.unsqueeze(1)).mean(0)
    assert min(history.best_epoch) < CONFIG.epochs
    torch.testing.assert_close(scores, torch.tensor(history.best_score), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", [make_batch_norm, make_dropout])
def test_a_training_that_goes_on_ends_as_one_that_was_not_stopped(rows, tmp_path, network):
    whole, _ = train_network(network, rows)

    def stop(text):
        if text.startswith("epoch 3 "):
            raise KeyboardInterrupt

    assert train_network(network, rows, checkpoint=tmp_path / "state", on_epoch=stop)[1].interrupted
    after, _ = train_network(network, rows, checkpoint=tmp_path / "state")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(after.state_dict()[name], tensor), name


def test_draws_come_from_the_seeds_and_torchs_stream_is_put_back(rows):
    outputs = []
    for seed in (7, 8):
        model = make_model(make_dropout)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        fit(model, rows(80), None, CONFIG, runtime=Runtime("cpu"))
        assert torch.equal(torch.get_rng_state(), before)
        outputs.append(model.raw(rows(5).X))
    assert torch.equal(*outputs)


def test_a_network_that_is_rolled_back_has_its_statistics_again(rows):
    training = Training(make_model(make_batch_norm), rows(40), None, CONFIG, Runtime("cpu"))
    statistics = [network[0].running_mean for network in training.model.backbone]
    for mean in statistics:
        mean.fill_(torch.nan)
    with pytest.warns(RuntimeWarning, match="network 1"):
        training.state.roll_back(torch.tensor([True, False]), lambda number: [])
    assert statistics[0].isnan().all()
    assert torch.equal(statistics[1], torch.zeros(3))
