"""A training that was stopped goes on to the same weights, bit for bit."""

import errno
import os
import runpy
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from ddpn.backbones import MLP, Tuned
from ddpn.backbones.fine_tuning import Frozen, Tail
from ddpn.errors import InputError
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.training import Augmented, Runtime, Sample, TrainingConfig, checkpoint, fit
from ddpn.training.batches import named_parts

SCRIPT = Path(__file__).with_name("one_training.py")
#: Three steps and one validation an epoch.
CONFIG = TrainingConfig(epochs=4, batch_size=16, lr=0.01, clip=0.5, ema=0.5, patience=3, seeds=(3, 8))
CALLS_AN_EPOCH = 4


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


@pytest.fixture
def run(rows, fresh, flat, tmp_path):
    """Train on 50 rows with a checkpoint; gives the weights, the history and the uses of the network."""

    def trained(interrupt_at=0, model=None, data=None, validation=None, config=CONFIG, path="state", **options):
        model = model or fresh(config.seeds)
        data, validation = data or rows(50, seed=1), validation or rows(40, seed=2)
        uses = Uses(model, interrupt_at)
        file = None if path is None else tmp_path / path
        history = fit(model, data, validation, config, runtime=Runtime("cpu"), checkpoint=file, **options)
        return flat(model), history, uses.count

    return trained


def without_seconds(history):
    plain = history.as_dict()
    return plain | {"epochs": [{k: v for k, v in record.items() if k != "seconds"} for record in plain["epochs"]]}


# In the first step, amid an epoch, in its validation, in the first step of another, and in the last use of all.
@pytest.mark.parametrize("at", [1, 3, 4, 5, 10, 12, 16])
def test_an_interrupted_training_goes_on_to_the_same_bits(run, at):
    expected, history, _ = run(path="other")
    assert run(interrupt_at=at)[1].interrupted
    got, resumed, uses = run()
    assert torch.equal(got, expected)
    assert without_seconds(resumed) == without_seconds(history)
    begun = (at - 1) // CALLS_AN_EPOCH
    assert uses == (CONFIG.epochs - begun) * CALLS_AN_EPOCH, "epochs that were done are done again, or left out"


def test_twice_interrupted(run):
    expected, history, _ = run(path="other")
    for at in (6, 7):
        assert run(interrupt_at=at)[1].interrupted
    got, resumed, _ = run()
    assert torch.equal(got, expected)
    assert without_seconds(resumed) == without_seconds(history)


def test_a_data_set_resumes_too(run, rows):
    sets = {name: TensorDataset(*named_parts(rows(50, weight=True)).values()) for name in ("data", "validation")}
    expected, _, _ = run(path="other", **sets)
    assert run(interrupt_at=10, **sets)[1].interrupted
    assert torch.equal(run(**sets)[0], expected)


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + 0.1 * torch.randn_like(x)


def test_inputs_that_change_are_the_same_when_it_goes_on(run, rows):
    changing = Augmented(rows(50, seed=1), noisy)
    expected, history, _ = run(data=changing, path="other")
    assert not torch.equal(expected, run(path="unchanged")[0])
    assert run(data=changing, interrupt_at=7)[1].interrupted
    with pytest.raises(InputError, match="with another training data"):
        run()
    got, resumed, _ = run(data=changing)
    assert torch.equal(got, expected)
    assert without_seconds(resumed) == without_seconds(history)


@pytest.mark.filterwarnings("ignore:non-finite loss:RuntimeWarning")
def test_failures_of_an_interrupted_epoch_count_once(run, rows, tmp_path):
    data = rows(50, seed=1)
    data.X[7] = torch.nan
    given = {"data": data, "config": replace(CONFIG, epochs=2)}
    expected, history, uses = run(path="other", **given)
    assert sum("epoch 2" in story for story in history.rollbacks) == 2, "not both members failed in the last epoch"
    assert run(interrupt_at=uses, **given)[1].interrupted  # in the last validation, after those failures
    before = [sum(f"epoch 1, member {member}" in story for story in history.rollbacks) for member in (0, 1)]
    assert checkpoint.read(tmp_path / "state")[1]["failures"] == before
    got, resumed, _ = run(**given)
    assert torch.equal(got, expected)
    assert resumed.rollbacks == history.rollbacks


def test_a_finished_training_is_not_done_again(run):
    expected, history, _ = run(save_seconds=0.0)
    got, again, uses = run(save_seconds=0.0)
    assert uses == 0
    assert torch.equal(got, expected)
    assert again.as_dict() == history.as_dict()


def test_nothing_is_written_before_it_is_due(run, tmp_path):
    run(save_seconds=1e9)
    assert os.listdir(tmp_path) == []


def test_without_a_checkpoint_the_best_so_far_is_kept(run, fresh, flat):
    model = fresh(CONFIG.seeds)
    config = replace(CONFIG, schedule="constant", warmup=0.0)
    assert run(interrupt_at=7, model=model, config=config, path=None)[1].interrupted
    expected, history, _ = run(config=replace(config, epochs=1), path=None)
    assert history.best_epoch == [1, 1]
    assert torch.equal(flat(model), expected)
    assert not model.training


def test_a_full_disk_keeps_the_old_checkpoint(run, monkeypatch):
    expected, _, _ = run(path="other")
    assert run(interrupt_at=6)[1].interrupted

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            run(save_seconds=0.0)
    got, _, uses = run()
    assert uses == 3 * CALLS_AN_EPOCH
    assert torch.equal(got, expected)


# What is not one's own --------------------------------------------------------------------------------------------


@pytest.fixture
def others(rows, fresh):
    """Trainings that differ from the plain one, and the word for it."""
    y = rows(50, seed=1)
    more = Sample(y.X, y.y + (torch.arange(50) == 49))
    moved = fresh(CONFIG.seeds)
    with torch.no_grad():
        moved.projection.bias[1] += 1e-6
    curved = CountModel(MLP(n_in=3, hidden=(8, 6), members=2, activation="gelu"), make_head("double_poisson"), 2)
    curved.reset(CONFIG.seeds)
    return {
        "config": {"config": replace(CONFIG, lr=0.02)},
        "training data": {"data": more},
        "validation data": {"validation": rows(40, seed=3)},
        "head": {"model": fresh(CONFIG.seeds, "double_poisson", beta=0.5)},
        "initial weights": {"model": moved},
        "network": {"model": curved},
    }


@pytest.mark.parametrize(
    "changed", ["config", "training data", "validation data", "head", "initial weights", "network"]
)
def test_the_checkpoint_of_another_training_is_refused(run, others, changed, tmp_path):
    assert run(interrupt_at=6)[1].interrupted
    before = (tmp_path / "state").read_bytes()
    message = rf"^checkpoint must come from this training, got .*state with another {changed}\. Delete it"
    with pytest.raises(InputError, match=message):
        run(**others[changed])
    assert (tmp_path / "state").read_bytes() == before


def test_all_that_changed_is_listed(run, others):
    assert run(interrupt_at=6)[1].interrupted
    with pytest.raises(InputError, match="with another config and training data"):
        run(**others["config"] | others["training data"])


def test_a_file_that_is_no_checkpoint_is_refused(run, tmp_path):
    checkpoint.write(tmp_path / "state", {"x": torch.zeros(2)}, {"something": "else"})
    with pytest.raises(InputError, match=r"^checkpoint must come from this training, got .* with another config and"):
        run()


def test_a_truncated_checkpoint_is_refused(run, tmp_path):
    assert run(interrupt_at=6)[1].interrupted
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[:-5])
    with pytest.raises(InputError, match="state must be a whole file, got a damaged one"):
        run()


# Real signals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_process_that_was_stopped_leaves_a_checkpoint_to_go_on_from(tmp_path, flat, number):
    state = tmp_path / "state"
    at = 2 * CALLS_AN_EPOCH * 2 + 3  # accumulate=2 uses the network twice a step; in the third epoch
    command = [sys.executable, str(SCRIPT), str(tmp_path / "weights"), str(state), str(int(number)), str(at)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == (130 if number == signal.SIGINT else -number), ended.stderr
    assert not (tmp_path / "weights").exists()
    assert 1 <= checkpoint.read(state)[1]["epoch"] < 4
    program = runpy.run_path(str(SCRIPT))
    whole, resumed = program["network"](), program["network"]()
    history, again = program["trained"](whole), program["trained"](resumed, state)
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
    with pytest.raises(InputError, match=r"^checkpoint must come from this training, got .* another frozen weights\."):
        fit(model(0.5), rows(50), None, CONFIG, runtime=Runtime("cpu"), checkpoint=path)
    assert len(fit(model(0.0), rows(50), None, CONFIG, runtime=Runtime("cpu"), checkpoint=path).epochs) == CONFIG.epochs
