"""Batches from tensors and from data sets."""

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from ddpn.networks.backbones.members import generators
from ddpn.networks.training import Augmented, Sample, Streamed, TrainingConfig
from ddpn.networks.training.batches import ALL, DatasetBatches, MemoryBatches, Share, pick
from ddpn.runtime.errors import InputError

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


class Items(Dataset):
    def __init__(self, item: object) -> None:
        self.item = item

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> object:
        return self.item


@pytest.mark.parametrize("item", [torch.zeros(2), (torch.zeros(2),), {"x": 1.0, "y": 2}, (1.0, 2, 3, 4, 5)])
def test_items_that_are_no_rows_are_refused(item):
    with pytest.raises(InputError, match=r"items of the data set must be \(x, y\["):
        next(DatasetBatches(Items(item), 2, CPU).in_order())


class Unreadable(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> object:
        if index == 4:
            raise InputError("a.jpg must be an image.")
        return torch.zeros(3), (torch.ones(()) if index != 2 else torch.ones(2))


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # on a machine of one core
@pytest.mark.parametrize("workers", [0, 2])
def test_an_item_that_cannot_be_read_raises_its_own_error(workers):
    batches = DatasetBatches(Unreadable(), 2, CPU, workers)
    with pytest.raises(InputError, match=r"^a\.jpg must be an image\.$"):
        list(batches._loads([[0, 1], [3, 4]]))
    with pytest.raises(InputError, match=r"y must have one number per row, got shape \(1, 2\)"):
        list(batches._loads([[2]]))


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
