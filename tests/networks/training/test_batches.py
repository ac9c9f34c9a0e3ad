"""Batches of rows in memory, of rows of each member's own, and of streams; and rows that are refused."""

import pytest
import torch

from ddpn.networks.backbones.members import make_generators
from ddpn.networks.training import CountRows, PerNetworkRows, StreamedRows, TrainingConfig
from ddpn.networks.training.batches import AUGMENTED_ROWS, MemoryBatches
from ddpn.networks.training.config import WHOLE_BATCH, WorkerShard
from ddpn.runtime.errors import ConfigError, InputError


def numbered(n: int, **columns: bool) -> CountRows:
    """Every entry of row i is i."""
    number = torch.arange(float(n))
    given = {name: number.clone() if columns.get(name) else None for name in ("weight", "exposure")}
    return CountRows(number.unsqueeze(1).repeat(1, 2), number, **given)


def test_inputs_that_change_are_drawn_anew_by_a_seed_and_the_given_ones_stay():
    given = numbered(6, weight=True)
    batches = MemoryBatches(given, batch_size=3, augment=lambda x: x + torch.rand(len(x), 1))
    place = batches.sample.X.data_ptr()
    before = torch.get_rng_state()
    seen = []
    for seed in (1, 2, 1):
        batches.begin(seed)
        seen.append(batches.sample.X - given.X)
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0][:, 0], seen[0][:, 1])
    assert batches.sample.X.data_ptr() == place, "a captured step would read the old ones"
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(given.X, numbered(6).X)
    assert torch.equal(batches.sample.weight, given.weight)
    for wrong in (lambda x: x[:1], lambda x: x.double()):
        with pytest.raises(InputError, match=r"augment must return inputs of shape \(6, 2\) and torch.float32"):
            MemoryBatches(given, batch_size=3, augment=wrong).begin(1)
    unchanging = MemoryBatches(given, batch_size=3)
    unchanging.begin(1)
    assert unchanging.sample.X is given.X


def test_inputs_are_changed_some_at_a_time_without_a_further_copy():
    given, sizes = numbered(2 * AUGMENTED_ROWS + 5), []
    on_device = given.replace(X=given.X.clone())

    def change(x):
        sizes.append(len(x))
        return x + 1.0

    batches = MemoryBatches(on_device, batch_size=3, augment=change, unchanged=given.X)
    assert batches.sample.X.data_ptr() == on_device.X.data_ptr()
    for epoch in (1, 2):
        batches.begin(epoch)
        assert torch.equal(batches.sample.X, given.X + 1.0), "from the unchanged ones in every epoch"
    assert sizes == 2 * [AUGMENTED_ROWS, AUGMENTED_ROWS, 5]


@pytest.mark.parametrize("n", [7, 8, 9, 15, 16, 17])
def test_an_epoch_has_whole_batches_and_no_row_twice(n):
    batches = MemoryBatches(numbered(n), batch_size=8)
    seen = [batch.y for batch in batches.epoch(make_generators([1, 2, 3]))]
    size = min(n, 8)
    assert batches.steps == len(seen) == n // size
    assert all(y.shape == (size, 3) for y in seen)
    for member in range(3):
        rows = torch.cat(seen)[:, member].tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(range(n))


def test_the_shares_of_all_processes_are_the_batch():
    data, world = numbered(16, weight=True), 3

    def epoch(share: WorkerShard) -> list[CountRows]:
        return list(MemoryBatches(data, 8, share=share).epoch(make_generators([1, 2])))

    whole = epoch(WHOLE_BATCH)
    shares = [epoch(WorkerShard(rank, world)) for rank in range(world)]
    for number, batch in enumerate(whole):
        for member in range(2):
            from_parts = torch.cat([share[number].y[:, member] for share in shares])
            assert sorted(from_parts.tolist()) == sorted(batch.y[:, member].tolist())


def test_in_order_is_every_row_once(monkeypatch):
    monkeypatch.setattr("ddpn.networks.training.batches._SCORED_TABLE_ROWS", 4)
    data = numbered(11, weight=True)
    parts = list(MemoryBatches(data, 3).in_order())
    assert [len(part) for part in parts] == [4, 4, 3]
    assert torch.equal(torch.cat([part.y for part in parts]), data.y.unsqueeze(1))
    assert torch.equal(torch.cat([part.weight for part in parts]), data.y.unsqueeze(1))
    assert torch.equal(torch.cat([part.X for part in parts]), data.X)


@pytest.mark.parametrize("x", [torch.ones(11, 5, dtype=torch.int32), torch.ones(11, 5, 2)], ids=["texts", "clouds"])
def test_texts_and_clouds_are_evaluated_in_as_many_rows_as_a_training_has_room_for(x):
    """Thousands at once, as of a table, would not fit the memory."""
    batches = MemoryBatches(CountRows(x, torch.ones(11)), 2, accumulate=2)
    assert [len(part) for part in batches.in_order()] == [4, 4, 3]


class Rows:
    """Twenty million rows that nobody reads."""

    identity, max_passes = "rows", 1.0

    def chunks(self, rows: int, seed: int):
        while True:
            yield None

    def __len__(self) -> int:
        return 20_000_000


def test_epochs_of_a_long_stream_are_parts_of_a_pass():
    config = TrainingConfig(epochs=5, batch_size=256, patience=2)
    stream, found = StreamedRows.plan_chunks(Rows(), lambda chunk: chunk, config)
    assert (stream.rows, stream.chunks, found.epochs, found.batch_size) == (16_384, 16, 77, 256)
    assert found.patience == round(2 * 77 / 5)


# Rows of each member's own: every member leaves out its own fold -----------------------------------------------------

MEMBERS = 4
#: Folds of 14 and 29 rows.
FOLD = torch.arange(43) % 3 // 2


def folded(sample: CountRows) -> PerNetworkRows:
    """Member m leaves out fold m modulo 2."""
    left_out = [member % 2 == FOLD for member in range(MEMBERS)]
    train, validation = ([rows.nonzero().flatten() for rows in part] for part in ([~m for m in left_out], left_out))
    return PerNetworkRows(sample, train, validation)


def test_every_member_sees_its_own_rows_only_and_all_of_them_in_time(rows):
    own = folded(rows(43))
    batches = MemoryBatches(own.sample, 8, positions=own.train)
    assert batches.steps == 14 // 8
    streams = [torch.Generator().manual_seed(m) for m in range(MEMBERS)]
    seen = torch.cat([index for _ in range(60) for index in batches.indices(streams)], dim=1)
    for member in range(MEMBERS):
        assert set(seen[member].tolist()) == set(own.train[member].tolist())


def test_a_member_never_sees_its_fold(train, rows):
    sample = rows(43)
    changed = sample.replace(y=torch.where(FOLD == 0, sample.y + 50.0, sample.y))
    options = {"seeds": tuple(range(MEMBERS)), "epochs": 1, "batch_size": 8, "head": "poisson"}
    weights = [train(folded(each), **options)[0] for each in (sample, changed)]
    is_same = [torch.equal(weights[0][m], weights[1][m]) for m in range(MEMBERS)]
    assert is_same == [True, False, True, False]


def test_all_members_have_the_epoch_of_the_lowest_mean_score(train, rows):
    options = {"seeds": tuple(range(MEMBERS)), "batch_size": 8, "head": "poisson"}
    _, history = train(folded(rows(43)), epochs=30, lr=0.3, **options)
    scores = torch.tensor([record["score"] for record in history.epochs])
    assert history.best_epoch == [int(scores.mean(1).argmin()) + 1] * MEMBERS
    assert len(set((scores.argmin(0) + 1).tolist())) > 1


# What a training refuses before its first step -----------------------------------------------------------------------

ROWS = 24


def at(row, value):
    found = torch.ones(ROWS)
    found[row] = value
    return found


X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))


def sample_with(**parts):
    ones = torch.ones(ROWS)
    return CountRows(**{"X": X, "y": ones, "weight": ones, "exposure": ones} | parts)


#: One bad part beside good ones, the argument that the error is about, and the beginning of its condition.
BAD_VALUES = {
    "negative": (sample_with(y=at(3, -1.0)), "y", "hold non-negative integers"),
    "fractional": (sample_with(y=at(2, 0.5)), "y", "hold non-negative integers"),
    "nan": (sample_with(y=at(5, torch.nan)), "y", "be finite"),
    "weight": (sample_with(weight=at(4, -2.0)), "weight", "be finite and not negative"),
    "weight nan": (sample_with(weight=at(4, torch.nan)), "weight", "be finite and not negative"),
    "exposure": (sample_with(exposure=at(7, 0.0)), "exposure", "be finite and positive"),
    "column": (sample_with(exposure=torch.ones(ROWS, 1)), "exposure", "have one number per row"),
}
BAD_SOURCES = {
    "no weight": (sample_with(weight=torch.zeros(ROWS)), "weight", "be positive in some row"),
    "array": (sample_with(X=X.numpy()), "X", "be a tensor"),
    "lengths": (sample_with(y=torch.ones(5)), "y", "have as many rows as X, 24"),
    "empty": (CountRows(torch.ones(0, 3), torch.ones(0)), "data", "hold at least one row"),
    "tuple": ((torch.ones(4, 3), torch.ones(4)), "train", "be a CountRows"),
    "nothing": (None, "train", "be a CountRows"),
}


@pytest.mark.parametrize("name", BAD_VALUES | BAD_SOURCES)
def test_rows_that_no_distribution_can_learn_from(train, rows, name):
    data, argument, must = (BAD_VALUES | BAD_SOURCES)[name]
    trainings = {"train": (data,)}
    if name in BAD_VALUES:
        stream = StreamedRows(Rows(), lambda chunk: data, rows=ROWS, chunks=1)
        trainings |= {"validation": (rows(ROWS, exposure=True), data), "stream": (stream,)}
    for given in trainings.values():
        with pytest.raises(InputError, match=f"^{argument} must {must}"):
            train(*given, batch_size=ROWS)


def test_trainings_that_cannot_begin(train, rows, fresh):
    with pytest.raises(InputError, match=r"^exposure must be in both or in none, got one in validation"):
        train(rows(ROWS), rows(ROWS, exposure=True))
    with pytest.raises(ConfigError, match=r"^parameters must have the 3 networks along their first axis, got "):
        train(rows(20), model=fresh((0, 1)), seeds=(0, 1, 2))
    model = fresh((0, 1))
    with torch.no_grad():
        model.projection.weight[1].zero_()
    with pytest.raises(ConfigError, match=r"^weights must be drawn before a training"):
        train(rows(ROWS), model=model, seeds=(0, 1))
    own = PerNetworkRows(rows(ROWS), [torch.arange(9)], [torch.arange(9, ROWS)])
    with pytest.raises(ConfigError, match=r"^validation must be None"):
        train(own, rows(ROWS))
    stream = StreamedRows(Rows(), lambda chunk: chunk, rows=ROWS, chunks=1)
    with pytest.raises(ConfigError, match=r"^augment must be None"):
        train(stream, fit_options={"augment": lambda x: x})
    with pytest.raises(ConfigError, match="rows to validate"):
        PerNetworkRows(rows(ROWS), [torch.arange(3)], [torch.arange(0)])


def test_a_continuous_distribution_takes_any_number(train):
    train(CountRows(X, at(3, -1.5)), head="gaussian", epochs=1)
    with pytest.raises(InputError, match="y must be finite, got nan at row 3"):
        train(CountRows(X, at(3, torch.nan)), head="gaussian", epochs=1)
