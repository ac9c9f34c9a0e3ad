"""Each epoch is scored on validation rows, member by member: the best is kept, and who does not improve stops."""

from functools import cache

import pytest
import torch

from ddpn.distributions import DoublePoisson
from ddpn.networks.heads import make_head
from ddpn.networks.training import Runtime, Sample, TrainingConfig
from ddpn.networks.training.loop import Training

SEEDS = (1, 2, 3)


#: Twelve rows and a high, constant learning rate: validation gets worse sooner or later.
OVERFITTING = {"epochs": 30, "lr": 0.05, "weight_decay": 0.0, "schedule": "constant", "warmup": 0.0, "ema": 0.0}


@pytest.fixture(scope="module")
def overfitted(train, rows):
    """Weights and history of a training with the given settings, run once for all tests."""

    @cache
    def run(validate: bool = True, **settings):
        validation = rows(60, seed=2) if validate else None
        return train(rows(12, seed=1), validation, **OVERFITTING | {"seeds": SEEDS} | settings)

    return run


@pytest.fixture(scope="module")
def weights_after(rows, fresh):
    """The (averaged) weights after an epoch of a training that selects nothing."""

    @cache
    def all_epochs(ema: float):
        config = TrainingConfig(**OVERFITTING | {"seeds": SEEDS, "ema": ema, "batch_size": 16})
        training = Training(fresh(SEEDS), rows(12, seed=1), None, config, Runtime("cpu"))
        return [training.run_epoch() and training.state.optimizer.average.clone() for _ in range(config.epochs)]

    return lambda epoch, ema=0.0: all_epochs(ema)[epoch - 1]


@pytest.mark.parametrize(("score", "ema"), [("nll", 0.0), ("crps", 0.5)])
def test_each_member_keeps_its_own_best_epoch(overfitted, weights_after, score, ema):
    best, history = overfitted(score=score, ema=ema)
    scores = torch.tensor([record["score"] for record in history.epochs])
    assert history.best_epoch == (scores.argmin(0) + 1).tolist()
    assert history.best_score == pytest.approx(scores.min(0).values.tolist())
    assert len(set(history.best_epoch)) > 1, "all are best at the same time, so nothing is shown"
    for member, epoch in enumerate(history.best_epoch):
        assert torch.equal(best[member], weights_after(epoch, ema)[member])


def test_the_last_epoch_is_kept_where_nothing_is_validated_whatever_the_patience(overfitted, weights_after):
    kept, history = overfitted(validate=False, patience=1, epochs=4)
    assert history.best_epoch == [4, 4, 4]
    assert "score" not in history.epochs[0]
    assert len(history.epochs) == 4
    assert history.stopped == ""
    assert torch.equal(kept, weights_after(4))


@pytest.mark.parametrize("patience", [1, 2])
def test_a_member_has_stopped_after_so_many_epochs_without_a_better_score(overfitted, weights_after, patience):
    _, whole = overfitted(score="nll", ema=0.0)
    kept, history = overfitted(patience=patience)
    for member in range(len(SEEDS)):
        scores = [record["score"][member] for record in whole.epochs]
        epoch, best = 0, 0
        while epoch - best < patience:
            epoch += 1
            best = epoch if scores[epoch - 1] < min([*scores[: epoch - 1], float("inf")]) else best
        assert history.best_epoch[member] == best
        assert history.best_score[member] == scores[best - 1]
        assert torch.equal(kept[member], weights_after(best)[member])
    assert len(history.epochs) == max(history.best_epoch) + patience < OVERFITTING["epochs"]
    assert history.stopped == f"no member had a better nll for {patience} epochs"
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
    broken = Sample(torch.full((5, 3), torch.nan), torch.ones(5))
    got, history = train(rows(32), broken, epochs=2, head="poisson")
    assert history.best_score == [float("inf")]
    assert history.best_epoch == [0]
    assert torch.equal(got, flat(fresh((0,), "poisson")))
