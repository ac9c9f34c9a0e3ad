"""Data sets that are tables: visits to a doctor and, as in the paper, days in hospital and bikes rented per hour."""

from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ddpn.paper.datasets.dataset import Dataset, as_counts, read_columns, split
from ddpn.paper.datasets.sources import SOURCES, data_folder, fetch
from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import format_rows, join_words

#: Numeric inputs by name.
Columns = dict[str, NDArray[np.float64]]

if TYPE_CHECKING:
    import polars

_CONDITIONS = (
    "dialysisrenalendstage", "asthma", "irondef", "pneum", "substancedependence", "psychologicaldisordermajor",
    "depress", "psychother", "fibrosisandother", "malnutrition", "hemo",
)  # fmt: skip
_LABS = (
    "hematocrit", "neutrophils", "sodium", "glucose", "bloodureanitro", "creatinine", "bmi", "pulse", "respiration",
)  # fmt: skip
_DIAGNOSES = "secondarydiagnosisnonicd9"
_READMISSIONS = ("0", "1", "2", "3", "4", "5+")
_FACILITIES = ("A", "B", "C", "D", "E")
_STAY_NUMBERS = (*_CONDITIONS, *_LABS, _DIAGNOSES, "lengthofstay")
_STAY_TEXTS = ("rcount", "gender", "facid")

_WEATHER = ("temp", "atemp", "hum", "windspeed")
_RENTAL = ("season", "yr", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit", *_WEATHER)
_FLAGS = ("yr", "holiday", "workingday")


def rand_health() -> Dataset:
    """Load outpatient visits per person and year (0 to 77, mean 2.86), with insurance plan and health; 20,190 rows.

    The data come with statsmodels, which the extra `data` installs.

    Examples
    --------
    >>> data = rand_health()
    >>> data.X.shape, round(float(data.y.mean()), 2)
    ((20190, 9), 2.86)
    """
    import polars  # slow to import

    randhie = import_extra("statsmodels.datasets.randhie", "data")
    frame = randhie.load_pandas().data
    table = polars.DataFrame({str(name): frame[name].to_numpy(dtype=float) for name in frame.columns})
    note = "rows are person-years: the years of one person may fall into different parts of the split"
    return _make_dataset("rand_health", table, "mdvis", note=note)


def _make_dataset(name: str, table: "polars.DataFrame", target: str, **fields: Any) -> Dataset:
    """Make a `Dataset` from a table: `target` is the column of counts, and the other columns are the inputs.

    `fields` are further fields of the `Dataset`.
    """
    y, source = as_counts(table[target], target), SOURCES[name]
    return Dataset(name, table.drop(target), y, split(len(y)), source.license, source.citation, **fields)


def length_of_stay() -> Dataset:
    """Load lengths of hospital stays in days (1 to 17), with tests and diagnoses on admission; 100,000 rows.

    The row number and the day of discharge, which reveals the target, are left out. The day of admission is replaced by
    its weekday. If the folder has only a sample of 20,000 rows, the sample is loaded.

    Feature sets are "raw" (25 columns, some of them text) and "standard" (35 numeric inputs, standardised by the
    training rows).
    """
    source = SOURCES["length_of_stay"]
    full, sampled = (data_folder() / file for file in source.files)
    sample = sampled.is_file() and not full.is_file()
    # The files differ in the day of admission and in what leaks.
    if sample:
        table = read_columns(sampled, numbers=_STAY_NUMBERS, texts=(*_STAY_TEXTS, "vdate_weekday"))
    else:
        table = read_columns(fetch(source), numbers=_STAY_NUMBERS, texts=(*_STAY_TEXTS, "vdate"))
        weekdays = type(table["vdate"])("vdate_weekday", [_parse_weekday(text) for text in table["vdate"]])
        table = table.drop("vdate").with_columns(weekdays)
    note = f"a random sample of {len(table):,} of the 100,000 rows of the paper's file" if sample else ""
    encodings = {"standard": _encode_stays}
    return _make_dataset("length_of_stay", table, "lengthofstay", note=note, sample=sample, encodings=encodings)


@cache
def _parse_weekday(text: str) -> str:
    """Return the weekday of a date written month/day/year, where the year has two or four digits."""
    try:
        month, day, year = map(int, text.split("/"))
        return f"{date(year + 2000 if year < 100 else year, month, day):%A}"
    except ValueError:
        raise InputError(f"vdate must hold dates written month/day/year, got {text!r}.") from None


def _encode_stays(table: "polars.DataFrame", train: NDArray[np.int64]) -> Columns:
    """Encode the table of hospital stays as 35 numeric inputs, standardised by the rows `train`."""
    numbers = select_numbers(table, (*_LABS, _DIAGNOSES)) | {
        "number_of_issues": table.select(_CONDITIONS).sum_horizontal().to_numpy()
    }
    return (
        one_hot(table, "rcount", _READMISSIONS)
        | one_hot(table, "gender", ("F", "M"))
        | one_hot(table, "facid", _FACILITIES)
        | select_numbers(table, _CONDITIONS)
        | standardize(numbers, train)
    )


def bike_sharing() -> Dataset:
    """Load bikes rented per hour (1 to 977) in Washington, D.C., with calendar and weather; 17,379 rows.

    The columns casual and registered, which sum to the target, the row number and the date are left out.

    Feature sets are "raw" (12 columns) and "authors": the 15 inputs of the paper's code, standardised by all rows. In
    these inputs, the smallest and the largest value of a cyclic column have the same encoding: hours 0 and 23, months 1
    and 12, seasons 1 and 4.
    """
    table = read_columns(fetch(SOURCES["bike_sharing"]), numbers=(*_RENTAL, "cnt"))
    return _make_dataset("bike_sharing", table, "cnt", encodings={"authors": _encode_rentals_as_authors})


def _encode_rentals_as_authors(table: "polars.DataFrame", train: NDArray[np.int64]) -> Columns:
    """Encode bike rentals like the authors' code, which standardises by all rows instead of the training rows.

    The training rows `train` are therefore ignored.
    """
    scaled = standardize(select_numbers(table, ("weekday", "weathersit", *_WEATHER)), ddof=1)
    unordered = select_numbers(table, _FLAGS) | scaled
    columns = {name: unordered[name] for name in ("yr", "holiday", "weekday", "workingday", "weathersit", *_WEATHER)}
    for name in ("season", "mnth", "hr"):
        columns |= cyclic(table, name)
    return columns


# Encodings -----------------------------------------------------------------------------------------------------------


def one_hot(table: "polars.DataFrame", name: str, levels: Sequence[str]) -> Columns:
    """One-hot encode a column: return an indicator (0 or 1) for each level, under the name "{name}_{level}".

    A value that is not in `levels` raises an `InputError`.
    """
    column = table[name].to_numpy()
    unknown = np.flatnonzero(~np.isin(column, np.array(levels, dtype=column.dtype)))
    if len(unknown):
        raise InputError(
            f"{name} must be one of {join_words(levels, 40)}, got {column[unknown[0]]} "
            f"{format_rows((unknown + 1).tolist())}."
        )
    return {f"{name}_{level}": (column == level).astype(float) for level in levels}


def select_numbers(table: "polars.DataFrame", names: Iterable[str]) -> Columns:
    """Return numeric columns of a table as float64 arrays, by name."""
    return {name: table[name].to_numpy() for name in names}


def standardize(columns: Columns, rows: NDArray[np.int64] | slice = slice(None), ddof: int = 0) -> Columns:
    """Standardise columns by their means and standard deviations over the rows `rows`, by default all.

    `rows` has row numbers or is a slice. The standard deviations divide by the number of rows minus `ddof`, as in
    NumPy. If a column is constant over these rows, it is only centred.
    """
    deviations = {name: column[rows].std(ddof=ddof) or 1.0 for name, column in columns.items()}
    return {name: (column - column[rows].mean()) / deviations[name] for name, column in columns.items()}


def cyclic(table: "polars.DataFrame", name: str) -> Columns:
    """Encode a cyclic column, such as "hr", as the sine and cosine of an angle: "hr_sin" and "hr_cos".

    The angle makes a full turn from the smallest to the largest value, so these two values get the same encoding.
    """
    column = table[name].to_numpy()
    angle = 2 * np.pi * (column - column.min()) / max(np.ptp(column), 1e-300)
    return {f"{name}_sin": np.sin(angle), f"{name}_cos": np.cos(angle)}
