import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import pytest
import requests

from ddpn.paper.datasets import data_folder, dataset_status, download, load, tabular
from ddpn.paper.datasets.sources import SOURCES
from ddpn.runtime.errors import ConfigError, InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder and no network."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))

    def refuse(*arguments):
        raise requests.ConnectionError("no network")

    monkeypatch.setattr("ddpn.paper.datasets.sources._download", refuse)
    return tmp_path


def status(name):
    return next(found for found in dataset_status() if found.name == name)


def put(folder, path, content):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(content)
    return folder / path


def test_options_go_to_the_loader(tmp_path):
    assert not (load("rand_health", seed=1).split.train == load().split.train).all()
    for name in ("length_of_stay", "bike_sharing"):
        with pytest.raises(InputError, match=r"^File not found: "):
            load(name, folder=tmp_path, may_download=False)
    for name in ("reviews", "coco_people"):
        with pytest.raises(InputError, match=f"found: {tmp_path / name} has neither"):
            load(name, folder=tmp_path)


def test_an_unknown_name():
    for function in (load, download):
        with pytest.raises(
            ConfigError, match=r"one of rand_health, .*, got 'bike_share'\. Did you mean 'bike_sharing'"
        ):
            function("bike_share")


def test_torch_is_not_imported():
    code = """
import sys
import ddpn.cli.data
from ddpn.paper.datasets import DATASETS, dataset_status, split
loaders = dict(DATASETS)
assert "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_empty_folder(folder):
    assert {found.name: (found.state, found.rows) for found in dataset_status()} == {
        "rand_health": ("available", 20_190),
        "length_of_stay": ("missing", None),
        "bike_sharing": ("missing", None),
        "reviews": ("missing", None),
        "coco_people": ("missing", None),
    }
    assert status("bike_sharing").license == "CC BY 4.0"
    assert status("length_of_stay").address == SOURCES["length_of_stay"].url
    assert list(folder.iterdir()) == []


def test_a_package_that_is_not_installed(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets.randhie", None)
    assert status("rand_health").state == "missing"


def test_available_files_have_their_own_rows_and_license(folder):
    put(folder, "reviews/Patio_Lawn_and_Garden.csv", "text,rating\nx,1\n,2\ny,3\n")
    found = status("reviews")
    assert (found.state, found.rows, found.sample, found.license) == ("available", 2, False, "none given")
    assert download("reviews") == f"reviews: 2 rows, {folder}"
    put(folder, "coco_people/person_counts.csv", "image_id,person_count\n01,4\n")
    put(folder, "coco_people/images/01.jpg", "")
    found = status("coco_people")
    assert (found.state, found.rows, found.sample) == ("available", 1, True)
    assert download("coco_people") == f"coco_people: 1 (sample) rows, {folder}"


@pytest.mark.parametrize(
    ("name", "path", "content", "words"),
    [
        ("bike_sharing", "bike_sharing/hour.csv", "instant\n1\n", "must have the SHA-256"),
        ("length_of_stay", "length_of_stay/LengthOfStay.csv", "eid\n1\n", "must have the SHA-256"),
        ("length_of_stay", "length_of_stay/los_20k.csv", "eid\n1\n", "got no asthma"),
        ("reviews", "reviews/womens_clothing.csv.gz", "Rating", "must have a column Review Text"),
        ("coco_people", "coco_people/person_counts.csv", "image_id,person_count\n01,4\n", "1 of 1, such as 01"),
    ],
)
def test_a_damaged_file(folder, name, path, content, words):
    put(folder, path, content)
    found = status(name)
    assert found.state.startswith("damaged: ")
    assert words in found.state
    assert found.rows is None
    with pytest.raises(InputError):
        download(name)


def test_a_download(tmp_path, server, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    header = ["instant", "dteday", *tabular._RENTAL, "casual", "registered", "cnt"]
    server.body = (",".join(header) + "\n" + ",".join("1" for _ in header) + "\n").encode()
    digest = sha256(server.body).hexdigest()
    small = replace(SOURCES["bike_sharing"], url=server.url, archive=None, sha256=digest)
    monkeypatch.setitem(SOURCES, "bike_sharing", small)
    assert download("bike_sharing") == f"bike_sharing: 1 rows, {data_folder() / small.files[0]}"
    assert status("bike_sharing").state == "available"
    assert server.requests == 1


def test_errors_describe_what_to_put_where(folder):
    with pytest.raises(InputError, match=r"^Cannot download https://archive.*: no connection\. Download https"):
        download("bike_sharing")
    with pytest.raises(InputError, match=r"Download https://datarepo.* into that folder, set DDPN_DATA"):
        download("reviews")
    with pytest.raises(InputError, match=r"Unpack http://images\.cocodataset\.org/annotations/.* there"):
        download("coco_people")
    assert download("rand_health") == "rand_health: 20,190 rows, inside statsmodels"
