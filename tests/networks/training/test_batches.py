"""Test batches of rows in memory, of rows per network, and of streams; and rows that are refused."""

import pytest
import torch

from ddpn.networks.backbones.layers import make_generators
from ddpn.networks.training import CountRows, PerNetworkRows, StreamedRows, TrainingConfig
from ddpn.networks.training.batches import AUGMENTED_ROWS, MemoryBatches
from ddpn.networks.training.config import WHOLE_BATCH, WorkerShard
from ddpn.runtime.errors import ConfigError, InputError


def make_numbered_rows(n: int, **columns: bool) -> CountRows:
    """Make rows every entry of which is the row's number."""
    number = torch.arange(float(n))
    arguments = {name: number.clone() if columns.get(name) else None for name in ("weight", "exposure")}
    return CountRows(number.unsqueeze(1).repeat(1, 2), number, **arguments)


def test_inputs_that_change_are_drawn_anew_by_a_seed_and_the_given_ones_stay():
    rows = make_numbered_rows(6, weight=True)
    batches = MemoryBatches(rows, batch_size=3, augment=lambda x: x + torch.rand(len(x), 1))
    address = batches.sample.X.data_ptr()
    before = torch.get_rng_state()
    seen = []
    for seed in (1, 2, 1):
        batches.begin_epoch(seed)
        seen.append(batches.sample.X - rows.X)
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0][:, 0], seen[0][:, 1])
    assert batches.sample.X.data_ptr() == address, "a captured step would read the old ones"
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(rows.X, make_numbered_rows(6).X)
    assert torch.equal(batches.sample.weight, rows.weight)
    for wrong in (lambda x: x[:1], lambda x: x.double()):
        with pytest.raises(
            InputError, match=r"augment must return inputs of unchanged shape \(6, 2\) and torch.float32"
        ):
            MemoryBatches(rows, batch_size=3, augment=wrong).begin_epoch(1)
    unchanging = MemoryBatches(rows, batch_size=3)
    unchanging.begin_epoch(1)
    assert unchanging.sample.X is rows.X


def test_inputs_are_changed_some_at_a_time_without_a_further_copy():
    rows, sizes = make_numbered_rows(2 * AUGMENTED_ROWS + 5), []
    on_device = rows.replace(X=rows.X.clone())

    def change(x):
        sizes.append(len(x))
        return x + 1.0

    batches = MemoryBatches(on_device, batch_size=3, augment=change, original_inputs=rows.X)
    assert batches.sample.X.data_ptr() == on_device.X.data_ptr()
    for epoch in (1, 2):
        batches.begin_epoch(epoch)
        assert torch.equal(batches.sample.X, rows.X + 1.0), "from the unchanged ones in every epoch"
    assert sizes == 2 * [AUGMENTED_ROWS, AUGMENTED_ROWS, 5]


@pytest.mark.parametrize("n", [7, 8, 9, 15, 16, 17])
def test_an_epoch_has_whole_batches_and_no_row_twice(n):
    batches = MemoryBatches(make_numbered_rows(n), batch_size=8)
    seen = [batch.y for batch in batches.epoch(make_generators([1, 2, 3]))]
    size = min(n, 8)
    assert batches.steps == len(seen) == n // size
    assert all(y.shape == (size, 3) for y in seen)
    for number in range(3):
        rows = torch.cat(seen)[:, number].tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(range(n))


def test_the_shares_of_all_processes_are_the_batch():
    data, world = make_numbered_rows(16, weight=True), 3

    def epoch(shard: WorkerShard) -> list[CountRows]:
        return list(MemoryBatches(data, 8, shard=shard).epoch(make_generators([1, 2])))

    whole = epoch(WHOLE_BATCH)
    shares = [epoch(WorkerShard(rank, world)) for rank in range(world)]
    for number, batch in enumerate(whole):
        for network in range(2):
            from_parts = torch.cat([share[number].y[:, network] for share in shares])
            assert sorted(from_parts.tolist()) == sorted(batch.y[:, network].tolist())


def test_rows_in_order_are_every_row_once(monkeypatch):
    monkeypatch.setattr("ddpn.networks.training.batches._SCORED_TABLE_ROWS", 4)
    data = make_numbered_rows(11, weight=True)
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
    stream, settings = StreamedRows.plan_chunks(Rows(), lambda chunk: chunk, config)
    assert (stream.rows, stream.chunks, settings.epochs, settings.batch_size) == (16_384, 16, 77, 256)
    assert settings.patience == round(2 * 77 / 5)


# Rows per network: every network leaves out its own fold ------------------------------------------------------------

N_NETWORKS = 4
#: Folds of 14 and 29 rows.
FOLD = torch.arange(43) % 3 // 2


def leave_out_folds(sample: CountRows) -> PerNetworkRows:
    """Leave fold m modulo 2 out of the rows of network m."""
    left_out = [network % 2 == FOLD for network in range(N_NETWORKS)]
    train, validation = ([rows.nonzero().flatten() for rows in part] for part in ([~m for m in left_out], left_out))
    return PerNetworkRows(sample, train, validation)


def test_every_network_sees_its_own_rows_only_and_all_of_them_in_time(rows):
    per_network = leave_out_folds(rows(43))
    batches = MemoryBatches(per_network.sample, 8, positions=per_network.train)
    assert batches.steps == 14 // 8
    streams = [torch.Generator().manual_seed(m) for m in range(N_NETWORKS)]
    seen = torch.cat([index for _ in range(60) for index in batches.draw_positions(streams)], dim=1)
    for network in range(N_NETWORKS):
        assert set(seen[network].tolist()) == set(per_network.train[network].tolist())


def test_a_network_never_sees_its_fold(train, rows):
    sample = rows(43)
    changed = sample.replace(y=torch.where(FOLD == 0, sample.y + 50.0, sample.y))
    options = {"seeds": tuple(range(N_NETWORKS)), "epochs": 1, "batch_size": 8, "head": "poisson"}
    weights = [train(leave_out_folds(data), **options)[0] for data in (sample, changed)]
    is_same = [torch.equal(weights[0][m], weights[1][m]) for m in range(N_NETWORKS)]
    assert is_same == [True, False, True, False]


def test_all_networks_have_the_epoch_of_the_lowest_mean_score(train, rows):
    options = {"seeds": tuple(range(N_NETWORKS)), "batch_size": 8, "head": "poisson"}
    _, history = train(leave_out_folds(rows(43)), epochs=30, lr=0.3, **options)
    scores = torch.tensor([record["score"] for record in history.epochs])
    assert history.best_epoch == [int(scores.mean(1).argmin()) + 1] * N_NETWORKS
    assert len(set((scores.argmin(0) + 1).tolist())) > 1


# What a training refuses before its first step -----------------------------------------------------------------------

ROWS = 24


def replace_row(row, value):
    values = torch.ones(ROWS)
    values[row] = value
    return values


X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))


def make_sample(**parts):
    ones = torch.ones(ROWS)
    return CountRows(**{"X": X, "y": ones, "weight": ones, "exposure": ones} | parts)


#: One bad part beside good ones, the argument that the error is about, and the beginning of its condition.
BAD_VALUES = {
    "negative": (make_sample(y=replace_row(3, -1.0)), "y", "hold non-negative integers"),
    "fractional": (make_sample(y=replace_row(2, 0.5)), "y", "hold non-negative integers"),
    "nan": (make_sample(y=replace_row(5, torch.nan)), "y", "be finite"),
    "weight": (make_sample(weight=replace_row(4, -2.0)), "weight", "be finite and not negative"),
    "weight nan": (make_sample(weight=replace_row(4, torch.nan)), "weight", "be finite and not negative"),
    "exposure": (make_sample(exposure=replace_row(7, 0.0)), "exposure", "be finite and positive"),
    "column": (make_sample(exposure=torch.ones(ROWS, 1)), "exposure", "have one number per row"),
}
BAD_SOURCES = {
    "no weight": (make_sample(weight=torch.zeros(ROWS)), "weight", "be positive in some row"),
    "array": (make_sample(X=X.numpy()), "X", "be a tensor"),
    "lengths": (make_sample(y=torch.ones(5)), "y", "have as many rows as X, 24"),
    "empty": (CountRows(torch.ones(0, 3), torch.ones(0)), "data", "hold at least one row"),
    "tuple": ((torch.ones(4, 3), torch.ones(4)), "train", "be a CountRows"),
    "nothing": (None, "train", "be a CountRows"),
}


@pytest.mark.parametrize("name", BAD_VALUES | BAD_SOURCES)
def test_rows_that_no_distribution_can_learn_from_are_refused(train, rows, name):
    data, argument, must = (BAD_VALUES | BAD_SOURCES)[name]
    trainings = {"train": (data,)}
    if name in BAD_VALUES:
        stream = StreamedRows(Rows(), lambda chunk: data, rows=ROWS, chunks=1)
        trainings |= {"validation": (rows(ROWS, exposure=True), data), "stream": (stream,)}
    for arguments in trainings.values():
        with pytest.raises(InputError, match=f"^{argument} must {must}"):
            train(*arguments, batch_size=ROWS)


def test_trainings_that_cannot_begin_are_refused(train, rows, fresh):
    with pytest.raises(InputError, match=r"^exposure must be in both .* or in neither, got one in validation"):
        train(rows(ROWS), rows(ROWS, exposure=True))
    with pytest.raises(ConfigError, match=r"^parameters must have the 3 networks along their first axis, got "):
        train(rows(20), model=fresh((0, 1)), seeds=(0, 1, 2))
    model = fresh((0, 1))
    with torch.no_grad():
        model.projection.weight[1].zero_()
    with pytest.raises(ConfigError, match=r"^All weights of the model are 0"):
        train(rows(ROWS), model=model, seeds=(0, 1))
    per_network = PerNetworkRows(rows(ROWS), [torch.arange(9)], [torch.arange(9, ROWS)])
    with pytest.raises(ConfigError, match=r"^validation must be None"):
        train(per_network, rows(ROWS))
    stream = StreamedRows(Rows(), lambda chunk: chunk, rows=ROWS, chunks=1)
    with pytest.raises(ConfigError, match=r"^augment must be None"):
        train(stream, fit_options={"augment": lambda x: x})
    with pytest.raises(ConfigError, match="rows to validate"):
        PerNetworkRows(rows(ROWS), [torch.arange(3)], [torch.arange(0)])


def test_a_continuous_distribution_takes_any_number(train):
    train(CountRows(X, replace_row(3, -1.5)), head="gaussian", epochs=1)
    with pytest.raises(InputError, match="y must be finite, got nan at row 3"):
        train(CountRows(X, replace_row(3, torch.nan)), head="gaussian", epochs=1)
