"""What a training refuses before its first step."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ddpn.networks.training import Augmented, Sample
from ddpn.runtime.errors import ConfigError, InputError

ROWS = 24


class Items(Dataset):
    """Items of anything."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return ROWS

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
#: One bad part beside good ones, and the key words of the message. Those of the first kind are values.
BAD_VALUES = {
    "negative": ({"y": at(3, -1.0)}, "^y must hold non-negative integers, got -1 at"),
    "fractional": ({"y": at(2, 0.5)}, r"^y must hold non-negative integers, got 0\.5 at"),
    "nan": ({"y": at(5, torch.nan)}, "^y must hold non-negative integers, got nan at"),
    "infinite": ({"y": at(5, torch.inf)}, "^y must hold non-negative integers, got inf at"),
    "weight": ({"weight": at(4, -2.0)}, "^weight must be at least 0, got -2 at row 4"),
    "weight nan": ({"weight": at(4, torch.nan)}, "^weight must be finite, got nan at row 4"),
    "exposure": ({"exposure": at(7, 0.0)}, "^exposure must be finite and positive, got 0 at"),
}
BAD_PARTS = {
    "no weight": ({"weight": torch.zeros(ROWS)}, "weight must be above 0 in some row"),
    "array": ({"X": X.numpy()}, "X must be a tensor, got ndarray"),
    "lengths": ({"y": torch.ones(5)}, "same number of rows, got X of 24, y of 5, weight of 24"),
    "column": ({"exposure": torch.ones(ROWS, 1)}, r"exposure must have one number per row, got shape \(24, 1\)"),
    "empty": (dict.fromkeys(("X", "y", "weight", "exposure"), torch.ones(0)), "at least one row"),
}


def sample_with(parts):
    ones = torch.ones(ROWS)
    return Sample(**{"X": X, "y": ones, "weight": ones, "exposure": ones} | parts)


@pytest.mark.parametrize("name", BAD_VALUES | BAD_PARTS)
def test_rows_that_no_distribution_can_learn_from(train, name):
    parts, message = (BAD_VALUES | BAD_PARTS)[name]
    with pytest.raises(InputError, match=message):
        train(sample_with(parts))


@pytest.mark.parametrize("name", BAD_VALUES)
def test_values_of_a_data_set_and_of_augmented_rows(train, name):
    parts, message = BAD_VALUES[name]
    data = sample_with(parts)
    for source in (TensorDataset(data.X, data.y, data.weight, data.exposure), Augmented(data, lambda x: x)):
        with pytest.raises(InputError, match=message):
            train(source, batch_size=ROWS)


def test_a_continuous_distribution_takes_any_number(train):
    train(Sample(X, at(3, -1.5)), head="gaussian", epochs=1)
    with pytest.raises(InputError, match="y must be finite, got nan at row 3"):
        train(Sample(X, at(3, torch.nan)), head="gaussian", epochs=1)


def test_validation_rows_are_checked_too(train, rows):
    with pytest.raises(InputError, match="y must hold non-negative integers, got -3 at"):
        train(rows(ROWS), Sample(X, at(1, -3.0)))


@pytest.mark.parametrize("where", ["train", "validation"])
def test_exposure_on_one_side_only(train, rows, where):
    data, validation = rows(ROWS, exposure=where == "train"), rows(ROWS, exposure=where != "train")
    with pytest.raises(InputError, match=f"exposure must be in both or in none, got one in {where}"):
        train(data, validation)


@pytest.mark.parametrize(
    "source", [(torch.ones(4, 3), torch.ones(4)), [1, 2], None, Stream(), torch.ones(4)],
    ids=["tuple", "list", "None", "stream", "tensor"],
)  # fmt: skip
def test_sources_without_rows(train, source):
    with pytest.raises(InputError, match="train must be a Sample, Augmented or a Dataset"):
        train(source)


@pytest.mark.parametrize(
    "item", [lambda i: (torch.ones(2 + i % 2), 1.0), lambda i: (torch.ones(3), None)], ids=["ragged", "no count"]
)
def test_items_that_cannot_be_stacked(train, item):
    with pytest.raises(InputError, match="items of the data set must be tensors or numbers of one shape each"):
        train(Items(item))


def test_members_whose_weights_were_not_drawn(train, rows, fresh):
    model = fresh((0, 1))
    with torch.no_grad():
        model.projection.weight[1].zero_()
    with pytest.raises(ConfigError, match=r"weights must be drawn before a training, got zeros\. Call model\.reset"):
        train(rows(ROWS), model=model, seeds=(0, 1))
