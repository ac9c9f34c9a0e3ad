"""What a training refuses before its first step."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ddpn.networks.training import Augmented, OwnRows, Sample
from ddpn.runtime.errors import ConfigError, InputError

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
