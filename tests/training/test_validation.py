"""What a training refuses before its first step, in one sentence."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ddpn.errors import ConfigError, InputError
from ddpn.training import Augmented, Sample

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


def at(row, value, others=1.0):
    found = torch.full((ROWS,), others)
    found[row] = value
    return found


WRONG = {
    "negative": ({"y": at(3, -1.0)}, r"^y must hold non-negative integers, got -1 at 3\. Recode, round or drop"),
    "fractional": ({"y": at(2, 0.5)}, r"^y must hold non-negative integers, got 0\.5 at 2"),
    "nan": ({"y": at(5, torch.nan)}, r"^y must hold non-negative integers, got nan at .*5"),
    "infinite": ({"y": at(5, torch.inf)}, r"^y must hold non-negative integers, got inf at .*5"),
    "weight": ({"weight": at(4, -2.0)}, "^weight must be at least 0, got -2 at row 4"),
    "weight nan": ({"weight": at(4, torch.nan)}, "^weight must be finite, got nan at row 4"),
    "exposure": ({"exposure": at(7, 0.0)}, r"^exposure must be finite and positive, got 0 at 7\. Give the time or"),
}


@pytest.mark.parametrize("source", ["memory", "dataset", "changing"])
@pytest.mark.parametrize("name", WRONG)
def test_rows_that_no_law_can_learn_from(train, rows, name, source):
    columns, message = WRONG[name]
    given = {"y": torch.ones(ROWS), "weight": torch.ones(ROWS), "exposure": torch.ones(ROWS)} | columns
    data = Sample(rows(ROWS).X, **given)
    if source == "dataset":
        data = TensorDataset(data.X, data.y, data.weight, data.exposure)
    elif source == "changing":
        data = Augmented(data, lambda x: x)
    with pytest.raises(InputError, match=message):
        train(data, batch_size=ROWS)


def test_a_law_on_the_line_may_have_any_number(train, rows):
    train(Sample(rows(ROWS).X, at(3, -1.5)), head="gaussian", epochs=1)
    with pytest.raises(InputError, match=r"^y must be finite, got nan at row 3"):
        train(Sample(rows(ROWS).X, at(3, torch.nan)), head="gaussian", epochs=1)


def test_validation_rows_are_looked_at_too(train, rows):
    with pytest.raises(InputError, match=r"^y must hold non-negative integers, got -3 at 1"):
        train(rows(ROWS), Sample(rows(ROWS).X, at(1, -3.0)))


def test_weights_that_leave_no_row(train, rows):
    with pytest.raises(InputError, match=r"^weight must be above 0 in some row"):
        train(Sample(rows(ROWS).X, torch.ones(ROWS), torch.zeros(ROWS)))


@pytest.mark.parametrize("where", ["train", "validation"])
def test_exposure_of_one_side_alone(train, rows, where):
    data, validation = rows(ROWS, exposure=where == "train"), rows(ROWS, exposure=where != "train")
    with pytest.raises(InputError, match=rf"^exposure must be in both or in none, got one in {where}, none in "):
        train(data, validation)


@pytest.mark.parametrize(
    "source", [(torch.ones(4, 3), torch.ones(4)), [1, 2], None, Stream(), torch.ones(4)],
    ids=["tuple", "list", "None", "stream", "tensor"],
)  # fmt: skip
def test_what_holds_no_rows(train, source):
    with pytest.raises(InputError, match=r"^train must be a Sample, Augmented or a Dataset"):
        train(source)


@pytest.mark.parametrize(
    "item", [lambda i: (torch.ones(2 + i % 2), 1.0), lambda i: (torch.ones(3), None)], ids=["ragged", "no count"]
)
def test_items_that_do_not_go_together(train, item):
    with pytest.raises(InputError, match=r"^items of the data set must be tensors or numbers of one shape each, got "):
        train(Items(item))


def test_members_that_were_not_drawn(train, rows, fresh):
    model = fresh((0, 1))
    with torch.no_grad():
        model.projection.weight[1].zero_()
    with pytest.raises(ConfigError, match=r"^weights must be drawn before a training, got zeros\. Call model\.reset"):
        train(rows(ROWS), model=model, seeds=(0, 1))
