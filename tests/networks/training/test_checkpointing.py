"""A training that was interrupted resumes to the same weights, bit for bit."""

import errno
import multiprocessing
import os
import runpy
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import MLP, Tuned
from ddpn.networks.backbones.fine_tuning import Frozen, Tail
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, Sample, TrainingConfig, fit
from ddpn.runtime.errors import InputError
from ddpn.storage import tensor_files

PROGRAM = runpy.run_path(str(Path(__file__).with_name("one_training.py")))
#: Three steps and one validation per epoch.
CONFIG = TrainingConfig(epochs=4, batch_size=16, lr=0.01, clip=0.5, ema=0.5, patience=3, seeds=(3, 8))
CALLS_PER_EPOCH = 4


class Uses:
    """Counts how often a model is used, and interrupts at one of them."""

    def __init__(self, model: CountModel, interrupt_at: int = 0) -> None:
        self.count, self._at, self._compute = 0, interrupt_at, model.raw
        model.raw = self

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if self.count == self._at:
            raise KeyboardInterrupt
        return self._compute(x)


@pytest.fixture(scope="module")
def training(rows, fresh, flat):
    """Train on 50 rows with a checkpoint; returns the weights, the history and the uses of the network."""

    def run(file, interrupt_at=0, model=None, data=None, validation=None, config=CONFIG, **options):
        model = model or fresh(config.seeds)
        data, validation = data or rows(50, seed=1), validation or rows(40, seed=2)
        uses = Uses(model, interrupt_at)
        history = fit(model, data, validation, config, runtime=Runtime("cpu"), checkpoint=file, **options)
        return flat(model), history, uses.count

    return run


@pytest.fixture
def run(training, tmp_path):
    """A training with its checkpoint in a file of this test."""
    return lambda **options: training(tmp_path / "state", **options)


@pytest.fixture(scope="module")
def whole(training):
    """Weights and history of the plain training, without a checkpoint or an interruption."""
    return training(None)[:2]


@pytest.fixture(scope="module")
def interrupted(training, tmp_path_factory):
    """The checkpoint of the plain training, interrupted in its second epoch."""
    file = tmp_path_factory.mktemp("interrupted") / "state"
    assert training(file, interrupt_at=6)[1].interrupted
    return file


def without_seconds(history):
    plain = history.as_dict()
    return plain | {"epochs": [{k: v for k, v in record.items() if k != "seconds"} for record in plain["epochs"]]}


# In the first step, in a validation, and in the last use of all.
@pytest.mark.parametrize("at", [1, 4, 16])
def test_an_interrupted_training_resumes_to_the_same_bits(run, whole, at):
    assert run(interrupt_at=at)[1].interrupted
    got, resumed, uses = run()
    assert torch.equal(got, whole[0])
    assert without_seconds(resumed) == without_seconds(whole[1])
    begun = (at - 1) // CALLS_PER_EPOCH
    assert uses == (CONFIG.epochs - begun) * CALLS_PER_EPOCH, "epochs that were done are done again, or left out"


def test_a_finished_training_is_not_done_again(run, whole):
    _, history, _ = run(save_seconds=0.0)
    got, again, uses = run(save_seconds=0.0)
    assert uses == 0
    assert torch.equal(got, whole[0])
    assert again.as_dict() == history.as_dict()


def test_a_full_disk_keeps_the_old_checkpoint(run, whole, monkeypatch):
    assert run(interrupt_at=6)[1].interrupted

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            run(save_seconds=0.0)
    got, _, uses = run()
    assert uses == 3 * CALLS_PER_EPOCH
    assert torch.equal(got, whole[0])


# Checkpoints of other trainings ----------------------------------------------------------------------------------


@pytest.fixture
def others(rows, fresh):
    """Trainings that differ from the plain one, by what differs."""
    y = rows(50, seed=1)
    more = Sample(y.X, y.y + (torch.arange(50) == 49))
    moved = fresh(CONFIG.seeds)
    with torch.no_grad():
        moved.projection.bias[1] += 1e-6
    curved = CountModel(MLP(n_in=3, hidden=(8, 6), members=2, activation="gelu"), make_head("double_poisson"), 2)
    curved.reset(CONFIG.seeds)
    return {
        "lr": {"config": replace(CONFIG, lr=0.02)},
        "training data": {"data": more},
        "validation data": {"validation": rows(40, seed=3)},
        "head": {"model": fresh(CONFIG.seeds, "double_poisson", beta=0.5)},
        "initial weights": {"model": moved},
        "network": {"model": curved},
    }


def test_the_checkpoint_of_another_training_is_refused(training, interrupted, others, tmp_path):
    before = interrupted.read_bytes()
    for changed, options in others.items():
        with pytest.raises(InputError, match=rf"state comes from a training with another {changed}\."):
            training(interrupted, **options)
    assert interrupted.read_bytes() == before
    with pytest.raises(InputError, match="with another training data, lr"):
        training(interrupted, **others["lr"] | others["training data"])
    tensor_files.write(tmp_path / "other", {"x": torch.zeros(2)}, {"something": "else"})
    with pytest.raises(InputError, match="comes from a training with another"):
        training(tmp_path / "other")
    (tmp_path / "state").write_bytes(before[:-5])
    with pytest.raises(InputError, match="state is damaged"):
        training(tmp_path / "state")


# Real signals -----------------------------------------------------------------------------------------------------


def _end_itself(number: int, at: int, state: Path) -> None:
    torch.set_num_threads(1)  # threads of the parent are not there in a fork
    model = PROGRAM["ending_itself"](PROGRAM["network"](), number, at)
    raise SystemExit(130 if PROGRAM["trained"](model, state).interrupted else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_process_that_was_stopped_leaves_a_checkpoint_to_resume_from(tmp_path, flat, number):
    state = tmp_path / "state"
    process = multiprocessing.get_context("fork").Process(target=_end_itself, args=(number, 17, state))
    process.start()
    process.join(60)
    assert process.exitcode == (130 if number == signal.SIGINT else -number)
    assert tensor_files.read(state)[1]["epoch"] == 2
    whole, resumed = PROGRAM["network"](), PROGRAM["network"]()
    history, again = PROGRAM["trained"](whole), PROGRAM["trained"](resumed, state)
    assert torch.equal(flat(resumed), flat(whole))
    assert without_seconds(again) == without_seconds(history)


def test_a_checkpoint_beside_other_frozen_weights_is_refused(rows, tmp_path):
    def model(shift):
        torch.manual_seed(0)
        trunk = nn.Linear(3, 4)
        with torch.no_grad():
            trunk.weight += shift
        found = CountModel(Tuned(Frozen(trunk, 1), Tail(None, width=4, members=2)), make_head("poisson"), 2)
        found.reset(CONFIG.seeds)
        return found

    path = str(tmp_path / "state")
    stopped = model(0.0)
    Uses(stopped, interrupt_at=6)
    assert fit(stopped, rows(50), None, CONFIG, runtime=Runtime("cpu"), checkpoint=path).interrupted
    with pytest.raises(InputError, match="with another frozen weights"):
        fit(model(0.5), rows(50), None, CONFIG, runtime=Runtime("cpu"), checkpoint=path)
    assert len(fit(model(0.0), rows(50), None, CONFIG, runtime=Runtime("cpu"), checkpoint=path).epochs) == CONFIG.epochs
