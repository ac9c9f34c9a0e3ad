"""Batches from tensors and from data sets."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ddpn.networks.backbones.members import generators
from ddpn.networks.training import Augmented, OwnRows, Sample, Streamed, TrainingConfig
from ddpn.networks.training.batches import ALL, DatasetBatches, MemoryBatches, Share, pick
from ddpn.runtime.errors import ConfigError, InputError

CPU = torch.device("cpu")


def numbered(n: int, **columns: bool) -> Sample:
    """Every entry of row i is i."""
    number = torch.arange(float(n))
    given = {name: number.clone() if columns.get(name) else None for name in ("weight", "exposure")}
    return Sample(number.unsqueeze(1).repeat(1, 2), number, **given)


def test_pick_gives_each_member_its_rows():
    index = torch.tensor([[3, 1, 4], [0, 0, 2]])
    picked = pick(numbered(5, weight=True), index)
    assert picked.X.shape == (3, 2, 2)
    assert torch.equal(picked.y, index.T.float())
    assert torch.equal(picked.weight, picked.y)
    assert torch.equal(picked.X[..., 1], picked.y)
    assert picked.exposure is None


def test_inputs_that_change_are_drawn_anew_by_a_seed_and_the_given_ones_stay():
    given = numbered(6, weight=True)
    batches = MemoryBatches(Augmented(given, lambda x: x + torch.rand(len(x), 1)), batch_size=3)
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
            MemoryBatches(Augmented(given, wrong), batch_size=3).begin(1)
    unchanging = MemoryBatches(given, batch_size=3)
    unchanging.begin(1)
    assert unchanging.sample.X is given.X


@pytest.mark.parametrize("n", [7, 8, 9, 15, 16, 17])
def test_an_epoch_has_whole_batches_and_no_row_twice(n):
    batches = MemoryBatches(numbered(n), batch_size=8)
    seen = [batch.y for batch in batches.epoch(generators([1, 2, 3]))]
    size = min(n, 8)
    assert batches.steps == len(seen) == n // size
    assert all(y.shape == (size, 3) for y in seen)
    for member in range(3):
        rows = torch.cat(seen)[:, member].tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(range(n))


@pytest.mark.parametrize("source", ["memory", "dataset"])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_the_shares_of_all_processes_are_the_batch(source, world):
    data = numbered(16, weight=True)

    def epoch(share: Share) -> list[Sample]:
        if source == "memory":
            return list(MemoryBatches(data, 8, share=share).epoch(generators([1, 2])))
        dataset = TensorDataset(data.X, data.y, data.weight)
        return list(DatasetBatches(dataset, 8, CPU, share=share).epoch(generators([1, 2])))

    whole = epoch(ALL)
    shares = [epoch(Share(rank, world)) for rank in range(world)]
    for number, batch in enumerate(whole):
        for member in range(2):
            joined = torch.cat([share[number].y[:, member] for share in shares])
            assert sorted(joined.tolist()) == sorted(batch.y[:, member].tolist())


@pytest.mark.parametrize("source", ["memory", "dataset"])
def test_in_order_is_every_row_once(source, monkeypatch):
    monkeypatch.setattr("ddpn.networks.training.batches._IN_ORDER", 4)
    data = numbered(11, weight=True)
    dataset = TensorDataset(data.X, data.y, data.weight)
    batches = MemoryBatches(data, 3) if source == "memory" else DatasetBatches(dataset, 3, CPU)
    parts = list(batches.in_order())
    assert [len(part) for part in parts] == [4, 4, 3]
    assert torch.equal(torch.cat([part.y for part in parts]), data.y.unsqueeze(1))
    assert torch.equal(torch.cat([part.weight for part in parts]), data.y.unsqueeze(1))
    assert torch.equal(torch.cat([part.X for part in parts]), data.X)


@pytest.mark.parametrize("source", ["memory", "dataset"])
@pytest.mark.parametrize("x", [torch.ones(11, 5, dtype=torch.int32), torch.ones(11, 5, 2)], ids=["texts", "clouds"])
def test_texts_and_clouds_are_evaluated_in_as_many_rows_as_a_training_has_room_for(source, x):
    """Thousands at once, as of a table, would not fit the memory."""
    if source == "memory":
        batches = MemoryBatches(Sample(x, torch.ones(11)), 2, accumulate=2)
    else:
        batches = DatasetBatches(TensorDataset(x, torch.ones(11)), 2, CPU, accumulate=2)
    assert [len(part) for part in batches.in_order()] == [4, 4, 3]


class Rows:
    """Twenty million rows that nobody reads."""

    identity, most_passes = "rows", 1.0

    def __len__(self) -> int:
        return 20_000_000


def test_epochs_of_a_long_stream_are_parts_of_a_pass():
    config = TrainingConfig(epochs=5, batch_size=256, patience=2)
    stream, found = Streamed.scheduled(Rows(), lambda chunk: chunk, config)
    assert (stream.rows, stream.chunks, found.epochs, found.batch_size) == (16_384, 16, 77, 256)
    assert found.patience == round(2 * 77 / 5)


# What a training refuses before its first step -----------------------------------------------------------------------

ROWS = 24


class Items(Dataset):
    """Items of anything."""

    def __init__(self, item, number=ROWS):
        self.item, self.number = item, number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return self.item(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


def at(row, value):
    found = torch.ones(ROWS)
    found[row] = value
    return found


X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))


def sample_with(**parts):
    ones = torch.ones(ROWS)
    return Sample(**{"X": X, "y": ones, "weight": ones, "exposure": ones} | parts)


#: One bad part beside good ones, and the beginning of the message.
BAD_VALUES = {
    "negative": (sample_with(y=at(3, -1.0)), "y must hold non-negative integers, got -1 at"),
    "fractional": (sample_with(y=at(2, 0.5)), r"y must hold non-negative integers, got 0\.5 at"),
    "nan": (sample_with(y=at(5, torch.nan)), "y must hold non-negative integers, got nan at"),
    "weight": (sample_with(weight=at(4, -2.0)), "weight must be at least 0, got -2 at row 4"),
    "weight nan": (sample_with(weight=at(4, torch.nan)), "weight must be finite, got nan at row 4"),
    "exposure": (sample_with(exposure=at(7, 0.0)), "exposure must be finite and positive, got 0 at"),
}
BAD_SOURCES = {
    "no weight": (sample_with(weight=torch.zeros(ROWS)), "weight must be above 0 in some row"),
    "array": (sample_with(X=X.numpy()), "X must be a tensor, got ndarray"),
    "lengths": (sample_with(y=torch.ones(5)), "X, y, weight and exposure must have the same number of rows"),
    "column": (sample_with(exposure=torch.ones(ROWS, 1)), "exposure must have one number per row"),
    "empty": (Sample(torch.ones(0, 3), torch.ones(0)), "data must hold at least one row"),
    "no data set": (Items(lambda index: None, 0), "data must hold at least one row"),
    "tuple": ((torch.ones(4, 3), torch.ones(4)), "train must be a Sample"),
    "nothing": (None, "train must be a Sample"),
    "stream": (Stream(), "train must be a Sample"),
    "ragged": (Items(lambda i: (torch.ones(2 + i % 2), 1.0)), "items of the data set must be tensors"),
    "no count": (Items(lambda i: (torch.ones(3), None)), "items of the data set must be tensors"),
    "an item alone": (Items(lambda i: torch.zeros(2)), r"items of the data set must be \(x, y\["),
    "an item by names": (Items(lambda i: {"x": 1.0, "y": 2}), r"items of the data set must be \(x, y\["),
    "an item of five": (Items(lambda i: (1.0, 2, 3, 4, 5)), r"items of the data set must be \(x, y\["),
    "two numbers": (Items(lambda i: (torch.ones(3), torch.ones(2))), "y must have one number per row"),
}


@pytest.mark.parametrize("name", BAD_VALUES | BAD_SOURCES)
def test_rows_that_no_distribution_can_learn_from(train, rows, name):
    data, message = (BAD_VALUES | BAD_SOURCES)[name]
    with pytest.raises(InputError, match=f"^{message}"):
        train(data)
    if name in BAD_VALUES:
        for source in (TensorDataset(*data.parts.values()), Augmented(data, lambda x: x)):
            with pytest.raises(InputError, match=f"^{message}"):
                train(source, batch_size=ROWS)
        with pytest.raises(InputError, match=f"^{message}"):
            train(rows(ROWS, exposure=True), data)


def test_trainings_that_cannot_begin(train, rows, fresh):
    with pytest.raises(InputError, match=r"^exposure must be in both or in none, got one in validation"):
        train(rows(ROWS), rows(ROWS, exposure=True))
    with pytest.raises(ConfigError, match=r"^parameters must have the 3 members along their first axis, got "):
        train(rows(20), model=fresh((0, 1)), seeds=(0, 1, 2))
    model = fresh((0, 1))
    with torch.no_grad():
        model.projection.weight[1].zero_()
    with pytest.raises(ConfigError, match=r"^weights must be drawn before a training"):
        train(rows(ROWS), model=model, seeds=(0, 1))
    own = OwnRows(rows(ROWS), [torch.arange(9)], [torch.arange(9, ROWS)])
    with pytest.raises(ConfigError, match=r"^validation must be None"):
        train(own, rows(ROWS))
    with pytest.raises(ConfigError, match="rows to validate"):
        OwnRows(rows(ROWS), [torch.arange(3)], [torch.arange(0)])


def test_a_continuous_distribution_takes_any_number(train):
    train(Sample(X, at(3, -1.5)), head="gaussian", epochs=1)
    with pytest.raises(InputError, match="y must be finite, got nan at row 3"):
        train(Sample(X, at(3, torch.nan)), head="gaussian", epochs=1)


def unreadable(index):
    raise InputError("a.jpg must be an image.")


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # on a machine of one core
@pytest.mark.parametrize("workers", [0, 2])
def test_an_item_that_cannot_be_read_raises_its_own_error(train, workers):
    with pytest.raises(InputError, match=r"^a\.jpg must be an image\.$"):
        train(Items(unreadable), fit_options={"workers": workers})
