"""The tabular data sets of the paper: days in hospital, and bikes rented in an hour."""

from datetime import date
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets import encodings as enc
from ddpn.datasets.csv_file import read_csv
from ddpn.datasets.dataset import Dataset, as_counts
from ddpn.datasets.source import Source, data_folder, fetch
from ddpn.datasets.split import SEED, split
from ddpn.datasets.table import Table
from ddpn.errors import InputError

LENGTH_OF_STAY = Source(
    path="length_of_stay/LengthOfStay.csv",
    url="https://raw.githubusercontent.com/microsoft/r-server-hospital-length-of-stay/refs/heads/master/Data/LengthOfStay.csv",
    size=12_418_298,
    sha256="6c688ccbadf1d74250047ad6d4160886055ccab5edf07d1e014c40f185b9ddcd",
    licence="MIT",
    citation="Microsoft (2016). Hospital length of stay. github.com/microsoft/r-server-hospital-length-of-stay",
)
#: A random 20,000 of the file's rows, which may lie in its place.
LENGTH_OF_STAY_SAMPLE = "length_of_stay/los_20k.csv"
BIKE_SHARING = Source(
    path="bike_sharing/hour.csv",
    url="https://archive.ics.uci.edu/static/public/275/bike+sharing+dataset.zip",
    size=1_156_736,
    sha256="e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
    archive=(279_992, "b70182d0d0508e9abbb79306ce5c0cec34869000f8220175ac83d11dbe845401"),
    licence="CC BY 4.0",
    citation=(
        "Fanaee-T, H. and Gama, J. (2013). Event labeling combining ensemble detectors and background knowledge. "
        "Progress in Artificial Intelligence, 1-15. doi:10.1007/s13748-013-0040-3"
    ),
)

_CONDITIONS = (
    "dialysisrenalendstage",
    "asthma",
    "irondef",
    "pneum",
    "substancedependence",
    "psychologicaldisordermajor",
    "depress",
    "psychother",
    "fibrosisandother",
    "malnutrition",
    "hemo",
)
_LABS = (
    "hematocrit",
    "neutrophils",
    "sodium",
    "glucose",
    "bloodureanitro",
    "creatinine",
    "bmi",
    "pulse",
    "respiration",
)
_DIAGNOSES = "secondarydiagnosisnonicd9"
_READMISSIONS = ("0", "1", "2", "3", "4", "5+")
_FACILITIES = ("A", "B", "C", "D", "E")
_STAY_NUMBERS = (*_CONDITIONS, *_LABS, _DIAGNOSES, "lengthofstay")
_STAY_TEXTS = ("rcount", "gender", "facid")

_WEATHER = ("temp", "atemp", "hum", "windspeed")
_RENTAL = ("season", "yr", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit", *_WEATHER)


def length_of_stay(
    folder: Path | None = None, *, sample: bool | None = None, seed: int = SEED, may_download: bool = True
) -> Dataset:
    """Days a patient stays in hospital (1 to 17), from tests and diagnoses on admission; 100,000 rows.

    `sample` None takes the whole file, or where only that lies in the folder the sample of 20,000 rows; True and False
    insist on one of the two. The day of discharge, which gives the target away, is left out with the running number;
    of the day of admission its weekday is kept.
    Feature sets: "raw" (25 columns, text among them), "standard" (35 inputs, statistics of the training rows),
    "authors" (the 35 of the paper's code: no pneum, diagnoses as levels, statistics of all rows).
    """
    folder = data_folder() if folder is None else folder
    sampled = folder / LENGTH_OF_STAY_SAMPLE
    if sample is None:
        sample = sampled.is_file() and not LENGTH_OF_STAY.is_in(folder)
    if sample and not sampled.is_file():
        raise InputError(f"the sample must lie at {sampled}, got no such file. Use sample=False for the whole file.")
    table = _read_stays(sampled if sample else fetch(LENGTH_OF_STAY, folder, may_download=may_download), sample)
    y = as_counts(table["lengthofstay"], "lengthofstay")
    return Dataset(
        name="length_of_stay",
        X=_without(table, "lengthofstay"),
        y=y,
        split=split(len(y), seed),
        licence=LENGTH_OF_STAY.licence,
        citation=LENGTH_OF_STAY.citation,
        note=f"a random sample of {len(y):,} of the 100,000 rows of the paper's file" if sample else "",
        sample=sample,
        source=LENGTH_OF_STAY,
        encodings={"standard": _standard_stays, "authors": _authors_stays},
    )


def _read_stays(path: Path, sample: bool) -> Table:
    """The columns of the sample, from either file: they differ in the day of admission and in what leaks."""
    if sample:
        return read_csv(path, numbers=_STAY_NUMBERS, texts=(*_STAY_TEXTS, "vdate_weekday"))
    table = read_csv(path, numbers=_STAY_NUMBERS, texts=(*_STAY_TEXTS, "vdate"), ignored=("eid", "discharged"))
    weekdays = np.array([_weekday(text) for text in table["vdate"]], dtype=object)
    return Table({**_without(table, "vdate").columns, "vdate_weekday": weekdays})


@cache
def _weekday(text: str) -> str:
    """The name of a day written month/day/year, with or without its century."""
    try:
        month, day, year = map(int, text.split("/"))
        return f"{date(year + 2000 if year < 100 else year, month, day):%A}"
    except ValueError:
        raise InputError(f"vdate must hold days written month/day/year, got {text!r}. Fetch the file again.") from None


def _without(table: Table, name: str) -> Table:
    return Table({key: column for key, column in table.columns.items() if key != name})


def _standard_stays(table: Table, train: NDArray[np.int64]) -> Table:
    issues = Table(enc.total(table, _CONDITIONS, "number_of_issues"))
    return Table(
        enc.one_hot(table, "rcount", _READMISSIONS)
        | enc.one_hot(table, "gender", ("F", "M"))
        | enc.one_hot(table, "facid", _FACILITIES)
        | enc.as_they_are(table, _CONDITIONS)
        | enc.standardised(table, (*_LABS, _DIAGNOSES), train)
        | enc.standardised(issues, issues.names, train)
    )


def _authors_stays(table: Table, train: NDArray[np.int64]) -> Table:
    """As the paper's code prepares them; levels in the order of their text, the first left out."""
    readmissions = np.array([float(text.rstrip("+")) for text in table["rcount"]])
    diagnoses = tuple(float(level) for level in sorted(map(str, range(11)))[1:])
    levels = Table(
        enc.one_hot(table, "gender", ("F", "M"))
        | enc.as_they_are(table, [name for name in _CONDITIONS if name != "pneum"])
        | enc.one_hot(table, _DIAGNOSES, (0.0, *diagnoses))
        | enc.one_hot(table, "facid", _FACILITIES)
    )
    dropped = {"gender_F", f"{_DIAGNOSES}_0", "facid_A"}
    kept = [name for name in levels.names if name not in dropped]
    return Table(
        {"rcount": readmissions} | enc.standardised(table, _LABS, None, ddof=1) | enc.as_they_are(levels, kept)
    )


def bike_sharing(folder: Path | None = None, *, seed: int = SEED, may_download: bool = True) -> Dataset:
    """Bikes rented in an hour (1 to 977) in Washington, D.C., from calendar and weather; 17,379 rows.

    Left out: casual and registered, which sum to the target, the running number and the date.
    Feature sets: "raw" (12 columns), "one_hot" (58 inputs, statistics of the training rows), "authors" (the 15 of the
    paper's code: statistics of all rows, and hour 0 on the same point as hour 23, month 1 as month 12, season 1 as 4).
    """
    path = fetch(BIKE_SHARING, folder, may_download=may_download)
    table = read_csv(path, numbers=(*_RENTAL, "cnt"), ignored=("instant", "dteday", "casual", "registered"))
    y = as_counts(table["cnt"], "cnt")
    return Dataset(
        name="bike_sharing",
        X=_without(table, "cnt"),
        y=y,
        split=split(len(y), seed),
        licence=BIKE_SHARING.licence,
        citation=BIKE_SHARING.citation,
        source=BIKE_SHARING,
        encodings={"one_hot": _one_hot_rentals, "authors": _authors_rentals},
    )


def _one_hot_rentals(table: Table, train: NDArray[np.int64]) -> Table:
    levels = {"season": (1, 5), "mnth": (1, 13), "hr": (0, 24), "weekday": (0, 7), "weathersit": (1, 5)}
    columns = enc.as_they_are(table, ("yr", "holiday", "workingday"))
    for name, (first, end) in levels.items():
        columns |= enc.one_hot(table, name, [float(level) for level in range(first, end)])
    return Table(columns | enc.standardised(table, _WEATHER, train))


def _authors_rentals(table: Table, train: NDArray[np.int64]) -> Table:
    """As the paper's code prepares them, in its order."""
    scaled = enc.standardised(table, ("weekday", "weathersit", *_WEATHER), None, ddof=1)
    kept = enc.as_they_are(table, ("yr", "holiday", "workingday"))
    order = ("yr", "holiday", "weekday", "workingday", "weathersit", *_WEATHER)
    columns = {name: (scaled | kept)[name] for name in order}
    for name in ("season", "mnth", "hr"):
        columns |= enc.round_the_circle(table, name)
    return Table(columns)
