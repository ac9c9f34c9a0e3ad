"""Cross-fitting: each member of an ensemble leaves out its own fold of the rows."""

import pytest
import torch

from ddpn.backbones import MLP
from ddpn.deadlines import Clock, TimeLimitError
from ddpn.errors import ConfigError
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.training import Folded, Sample, TrainingConfig, fit, fold_numbers

ROWS, MEMBERS = 43, 4


def rows(seed: int = 0) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(ROWS, 2, generator=generator)
    return Sample(X, torch.poisson(X[:, 0].exp(), generator=generator))


def trained(source, epochs: int = 1, **options):
    model = CountModel(MLP(n_in=2, hidden=(8,), members=MEMBERS), make_head("poisson"), MEMBERS)
    model.reset(range(MEMBERS))
    config = TrainingConfig(epochs=epochs, batch_size=8, seeds=tuple(range(MEMBERS)), lr=1e-2)
    return model, fit(model, source, None, config, **options)


def test_folds_have_one_size_and_hold_every_row_once():
    fold = fold_numbers(ROWS, 5, seed=1)
    assert torch.bincount(fold).tolist() == [9, 9, 9, 8, 8]
    assert not torch.equal(fold, fold_numbers(ROWS, 5, seed=2))
    own, left_out = Folded(rows(), fold).positions(6)
    assert own.shape == (6, 34)
    assert left_out.shape == (6, 8)
    for member in range(6):
        assert set(fold[left_out[member]].tolist()) == {member % 5}
        assert member % 5 not in fold[own[member]]
        assert len(set(own[member].tolist())) == 34


def test_a_member_never_sees_its_fold():
    sample, fold = rows(), fold_numbers(ROWS, 2, seed=0)
    changed = sample.replace(y=torch.where(fold == 0, sample.y + 50.0, sample.y))
    raws = [trained(Folded(each, fold))[0].raw(sample.X) for each in (sample, changed)]
    is_same = [torch.equal(raws[0][:, m], raws[1][:, m]) for m in range(MEMBERS)]
    assert is_same == [True, False, True, False]


def test_a_fold_chooses_the_best_epoch_of_its_members():
    sample, fold = rows(), fold_numbers(ROWS, 2, seed=0)
    _, history = trained(Folded(sample, fold), epochs=4)
    changed = sample.replace(y=torch.where(fold == 0, sample.y + 50.0, sample.y))
    _, other = trained(Folded(changed, fold), epochs=1)
    first = history.epochs[0]["score"]
    assert first[0] != other.epochs[0]["score"][0]
    assert len(set(first)) == MEMBERS


def test_validation_rows_beside_folds_are_refused():
    model = CountModel(MLP(n_in=2, hidden=(8,), members=2), make_head("poisson"), 2)
    model.reset((0, 1))
    with pytest.raises(ConfigError, match="validation must be None"):
        fit(model, Folded(rows(), fold_numbers(ROWS, 2, 0)), rows(), TrainingConfig(seeds=(0, 1)))


def test_one_fold_is_refused():
    with pytest.raises(ConfigError, match="two or more folds"):
        Folded(rows(), torch.zeros(ROWS, dtype=torch.long)).positions(2)


def test_a_training_ends_with_its_time():
    _, history = trained(rows(), epochs=100_000, clock=Clock(0.5))
    assert history.stopped == "the time was up"
    assert 0 < len(history.epochs) < 100_000
    assert not history.interrupted
    assert history.epochs[-1]["lr"] < 0.2 * 1e-2


def test_without_a_complete_epoch_there_is_nothing():
    with pytest.raises(TimeLimitError):
        trained(rows(), epochs=10, clock=Clock(0.0))


def test_enough_time_changes_nothing():
    plain, timed = (trained(rows(), epochs=3, clock=clock)[0] for clock in (None, Clock(1000.0)))
    assert torch.equal(plain.raw(rows().X), timed.raw(rows().X))
