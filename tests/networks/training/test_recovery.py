"""A step that fails: its rows are reported, its member is rolled back, and no other member notices."""

import pytest
import torch
from torch import Tensor

from ddpn.networks.heads import DoublePoissonHead
from ddpn.networks.training import Sample
from ddpn.runtime.errors import TrainingError

#: At a constant rate a training is the beginning of a longer one.
STEADY = {"schedule": "constant", "warmup": 0.0, "seeds": (1, 2)}
SPOILED = 77.0


class Poisoned(DoublePoissonHead):
    """Fails for member 0 on rows whose count is SPOILED, or on all, in the steps from `first` to `last`."""

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
def spoiled(rows):
    """48 rows of which some are SPOILED."""

    def make(*at: int) -> Sample:
        data = rows(48)
        data.y[list(at)] = SPOILED
        return data

    return make


@pytest.fixture
def poisoned(fresh):
    """An ensemble that fails in the given steps, counted from 1."""

    def make(seeds=(1, 2), **attributes):
        model = fresh(seeds)
        model.head = Poisoned()
        vars(model.head).update(attributes)
        return model

    return make


@pytest.mark.parametrize("kind", ["loss", "loss and gradient", "gradient"])
@pytest.mark.parametrize("settings", [{"ema": 0.0}, {"ema": 0.5, "clip": 0.1}], ids=["plain", "averaged and clipped"])
def test_the_member_goes_back_and_the_other_does_not_notice(train, spoiled, poisoned, kind, settings):
    data = spoiled(*range(48))
    settings = STEADY | settings
    one_epoch, _ = train(data, epochs=1, **settings)
    two_epochs, _ = train(data, epochs=2, **settings)
    # Three batches an epoch, so that step 6 is the last of the second.
    with pytest.warns(RuntimeWarning, match=r"^non-finite loss in epoch 2, member 0, "):
        recovered, history = train(data, epochs=2, model=poisoned(first=6, last=6, kind=kind), **settings)
    assert torch.equal(recovered[0], one_epoch[0])
    assert torch.equal(recovered[1], two_epochs[1])
    assert len(history.rollbacks) == 1


@pytest.mark.parametrize(
    ("at", "where"),
    [
        ((9,), "at row 9:"),
        ((4, 30), "at rows 4, 30:"),
        (range(10, 17), "at rows 10, 11, 12, 13, 14 and 2 more:"),
    ],
)
def test_the_rows_are_named(train, spoiled, poisoned, monkeypatch, at, where):
    monkeypatch.setattr("ddpn.networks.training.batches._IN_ORDER", 7)
    with pytest.warns(RuntimeWarning, match=f"member 0, {where} the member was rolled back one epoch$"):
        train(spoiled(*at), epochs=1, batch_size=48, model=poisoned(), **STEADY)


@pytest.mark.filterwarnings("ignore:non-finite loss:RuntimeWarning")
@pytest.mark.parametrize("validate", [False, True])
def test_a_member_that_fails_again_and_again_ends_the_training(train, rows, spoiled, poisoned, flat, validate):
    model = poisoned(first=4)
    message = r"loss must stay finite, got 4 failures; the last: .* at row 5: .*\. Lower lr"
    with pytest.raises(TrainingError, match=message):
        train(spoiled(5), rows(20) if validate else None, epochs=20, model=model, **STEADY)
    assert torch.isfinite(flat(model)).all()
    assert not model.training


def test_a_member_that_is_done_may_fail_in_silence(train, rows, poisoned):
    data, validation = rows(12, seed=1), rows(60, seed=2)
    options = STEADY | {"seeds": (1, 2, 3), "epochs": 30, "lr": 0.05, "weight_decay": 0.0, "ema": 0.0, "patience": 1}
    expected, undisturbed = train(data, validation, **options)
    done = undisturbed.best_epoch[0] + 1
    assert len(undisturbed.epochs) > done + 4, "the others do not go on for long enough"
    model = poisoned(seeds=(1, 2, 3), first=done + 1, everywhere=True)
    got, history = train(data, validation, model=model, **options)
    assert torch.equal(got, expected)
    assert history.rollbacks == []
    assert history.epochs[done]["loss"][0] != history.epochs[done]["loss"][0], "it did not fail"
