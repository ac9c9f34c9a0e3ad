"""Cross-fitting: each member of an ensemble leaves out its own fold of the rows."""

import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import OwnRows, Sample, TrainingConfig, fit
from ddpn.networks.training.batches import MemoryBatches

ROWS, MEMBERS = 43, 4


def rows(seed: int = 0) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(ROWS, 2, generator=generator)
    return Sample(X, torch.poisson(X[:, 0].exp(), generator=generator))


def trained(source, epochs: int = 1, lr: float = 1e-2, **options):
    model = CountModel(MLP(n_in=2, hidden=(8,), members=MEMBERS), make_head("poisson"), MEMBERS)
    model.reset(range(MEMBERS))
    config = TrainingConfig(epochs=epochs, batch_size=8, seeds=tuple(range(MEMBERS)), lr=lr)
    return model, fit(model, source, None, config, **options)


def folded(sample: Sample, fold: torch.Tensor) -> OwnRows:
    """Member m leaves out fold m modulo the number of folds."""
    left_out = [fold == member % int(fold.max() + 1) for member in range(MEMBERS)]
    train, validation = ([rows.nonzero().flatten() for rows in part] for part in ([~m for m in left_out], left_out))
    return OwnRows(sample, train, validation)


#: Folds of 14 and 29 rows.
FOLD = torch.arange(ROWS) % 3 // 2


def test_every_member_sees_its_own_rows_only_and_all_of_them_in_time():
    own = folded(rows(), FOLD)
    batches = MemoryBatches(own, 8, positions=own.train)
    assert batches.steps == 14 // 8
    streams = [torch.Generator().manual_seed(m) for m in range(MEMBERS)]
    seen = torch.cat([index for _ in range(60) for index in batches.indices(streams)], dim=1)
    for member in range(MEMBERS):
        assert set(seen[member].tolist()) == set(own.train[member].tolist())


def test_members_with_fewer_rows_repeat_them_in_validation():
    own = folded(rows(), FOLD)
    (part,) = MemoryBatches(own, 8, positions=own.validation).in_order()
    assert part.y.shape == (29, MEMBERS)
    for member in range(MEMBERS):
        assert set(part.y[:, member].tolist()) == set(own.sample.y[own.validation[member]].tolist())


def test_a_member_never_sees_its_fold():
    sample = rows()
    changed = sample.replace(y=torch.where(FOLD == 0, sample.y + 50.0, sample.y))
    raws = [trained(folded(each, FOLD))[0].raw(sample.X) for each in (sample, changed)]
    is_same = [torch.equal(raws[0][:, m], raws[1][:, m]) for m in range(MEMBERS)]
    assert is_same == [True, False, True, False]


def test_all_members_have_the_epoch_of_the_lowest_mean_score():
    _, history = trained(folded(rows(), FOLD), epochs=30, lr=0.3)
    scores = torch.tensor([record["score"] for record in history.epochs])
    assert history.best_epoch == [int(scores.mean(1).argmin()) + 1] * MEMBERS
    assert len(set((scores.argmin(0) + 1).tolist())) > 1
