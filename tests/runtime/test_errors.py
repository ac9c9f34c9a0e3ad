"""Test that errors carry data: the argument, the condition, what was got, the rows, the remedy."""

import pickle

import numpy as np
import pytest

from ddpn.members.member import NotApplicableError
from ddpn.rows.checks import RowError, label_row_errors
from ddpn.runtime.deadlines import TimeLimitError
from ddpn.runtime.errors import Argument, ConfigError, InputError, TrainingError

ERRORS = [
    InputError("File not found: x.csv"),
    InputError(argument="weight", must="be positive", got="-1", rows=[3, 8], remedy="Drop these rows."),
    ConfigError(argument=Argument("time", "my day"), must="hold dates"),
    ConfigError("is missing", argument=Argument("time", "my day"), rows=[4], remedy="Fill or drop these rows."),
    TrainingError("The loss is not finite."),
    TimeLimitError("the time is up"),
    NotApplicableError("it has no count above 0 to fit"),
    RowError("X must be finite, got NaN", np.array([False, True]), labels=np.array([7, 9])),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_survive_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert [again.argument, again.got, again.rows, again.remedy] == [
        error.argument, error.got, error.rows, error.remedy
    ]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_repr_shows_the_sentence(error):
    assert repr(error) == f"{type(error).__name__}({str(error)!r})"


def test_rows_are_named_after_another_process():
    error = pickle.loads(pickle.dumps(RowError("X must be finite, got NaN", np.array([False, True]))))
    with pytest.raises(RowError, match="at row 9"), label_row_errors([7, 9]):
        raise error
