"""Ctrl-C ends a training, not the program: a flag is set, and the model has what the complete epochs gave."""

import pytest
import torch

from ddpn.networks.training import loop

STEADY = {"seeds": (3, 8), "schedule": "constant", "warmup": 0.0}


@pytest.fixture
def interrupted(train, fresh):
    """Train on 48 rows, three steps an epoch, with Ctrl-C in the `at`-th use of the network."""

    def run(data, at, validation=None, **options):
        model = fresh(STEADY["seeds"])
        compute, uses = model.raw, []

        def raw(x):
            uses.append(x)
            if len(uses) == at:
                raise KeyboardInterrupt
            return compute(x)

        model.raw = raw
        return train(data, validation, model=model, fit_options=options, **STEADY)

    return run


def test_without_validation_the_last_complete_epoch_is_kept(interrupted, train, rows):
    got, history = interrupted(rows(48), at=8)
    expected, whole = train(rows(48), epochs=2, **STEADY)
    assert torch.equal(got, expected)
    assert (history.interrupted, history.stopped, history.best_epoch) == (True, "interrupted", [2, 2])
    assert len(history.epochs) == 2
    assert not whole.interrupted


def test_the_callback_may_interrupt(train, rows):
    def stop(text):
        assert text.startswith("epoch 1 of 3, loss ")
        raise KeyboardInterrupt

    _, history = train(rows(48), fit_options={"on_epoch": stop})
    assert history.interrupted
    assert len(history.epochs) == 1


def test_a_second_one_while_the_first_is_handled_is_raised(interrupted, rows, monkeypatch, tmp_path):
    def again(self, snapshot):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Checkpoint, "save", again)
    with pytest.raises(KeyboardInterrupt):
        interrupted(rows(48), at=8, checkpoint=tmp_path / "state")
