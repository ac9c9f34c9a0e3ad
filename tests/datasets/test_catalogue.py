import sys
from dataclasses import replace
from hashlib import sha256

import pytest

from ddpn.datasets import DATASETS, catalogue, data_folder, holdings, load, obtain, tabular
from ddpn.errors import InputError

ALL = "rand_health, length_of_stay, bike_sharing, reviews, coco_people"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder and no network."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    refused = lambda *arguments, **options: (_ for _ in ()).throw(OSError("no network"))
    monkeypatch.setattr("ddpn.datasets.source.download", refused)
    return tmp_path


def held(name):
    return {found.name: found for found in holdings()}[name]


def put(folder, path, content):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(content)
    return folder / path


def test_options_go_to_the_loader(tmp_path):
    assert not (load("rand_health", seed=1).split.train == load().split.train).all()
    for name in ("length_of_stay", "bike_sharing"):
        with pytest.raises(InputError, match="a download was not allowed"):
            load(name, folder=tmp_path, may_download=False)
    for name in ("reviews", "coco_people"):
        with pytest.raises(InputError, match=f"must lie in {tmp_path / name}, got neither"):
            load(name, folder=tmp_path)


def test_a_name_that_is_not_there():
    for of in (load, obtain):
        with pytest.raises(InputError, match=f"name must be one of {ALL}, got 'iris'"):
            of("iris")
    assert "iris" not in DATASETS


def test_every_data_set_has_an_origin():
    assert list(catalogue.ORIGINS) == list(DATASETS)


def test_nothing_is_here_but_what_a_package_holds(folder):
    assert {found.name: (found.state, found.rows) for found in holdings()} == {
        "rand_health": ("here", 20_190),
        "length_of_stay": ("absent", None),
        "bike_sharing": ("absent", None),
        "reviews": ("absent", None),
        "coco_people": ("absent", None),
    }
    assert held("bike_sharing").licence == "CC BY 4.0"
    assert held("length_of_stay").whence == tabular.LENGTH_OF_STAY.url
    assert list(folder.iterdir()) == []


def test_a_package_that_is_not_installed_is_absent(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    assert held("rand_health").state == "absent"


def test_what_is_here_is_counted_under_its_own_licence(folder):
    put(folder, "reviews/Patio_Lawn_and_Garden.csv", "text,rating\nx,1\n,2\ny,3\n")
    found = held("reviews")
    assert (found.state, found.rows, found.sample, found.licence) == ("here", 2, False, "none given")
    assert obtain("reviews") == f"reviews: 2 rows, {folder}"
    put(folder, "coco_people/person_counts.csv", "image_id,person_count\n01,4\n")
    put(folder, "coco_people/images/01.jpg", "")
    found = held("coco_people")
    assert (found.state, found.rows, found.sample) == ("here", 1, True)
    assert obtain("coco_people") == f"coco_people: 1 (sample) rows, {folder}"


@pytest.mark.parametrize(
    ("name", "path", "content", "why"),
    [
        ("bike_sharing", "bike_sharing/hour.csv", "instant\n1\n", "must be 1156736 bytes with sha256"),
        ("length_of_stay", "length_of_stay/LengthOfStay.csv", "eid\n1\n", "must be 12418298 bytes with sha256"),
        ("length_of_stay", "length_of_stay/los_20k.csv", "eid\n1\n", "must name its columns, got no asthma"),
        ("reviews", "reviews/womens_clothing.csv.gz", "Rating", "must be a whole file of utf-8 text"),
        ("coco_people", "coco_people/person_counts.csv", "image_id,person_count\n01,4\n", "got 1 missing of 1"),
    ],
)
def test_a_damaged_file_is_told_as_damaged(folder, name, path, content, why):
    put(folder, path, content)
    found = held(name)
    assert found.state.startswith("damaged: ")
    assert why in found.state
    assert found.rows is None
    with pytest.raises(InputError):
        obtain(name)


def test_what_can_be_downloaded_is(folder, server, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("DDPN_DATA", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    header = ["instant", "dteday", *tabular._RENTAL, "casual", "registered", "cnt"]
    server.body = (",".join(header) + "\n" + ",".join("1" for _ in header) + "\n").encode()
    of = {"size": len(server.body), "sha256": sha256(server.body).hexdigest()}
    small = replace(tabular.BIKE_SHARING, url=server.url, archive=None, **of)
    monkeypatch.setattr(tabular, "BIKE_SHARING", small)
    monkeypatch.setitem(catalogue.ORIGINS, "bike_sharing", catalogue._downloaded(small))
    assert obtain("bike_sharing") == f"bike_sharing: 1 rows, {data_folder() / small.path}"
    assert held("bike_sharing").state == "here"
    assert len(server.asked) == 1


def test_what_cannot_be_had_says_what_to_put_where(folder):
    with pytest.raises(
        InputError, match=r"hour\.csv must lie in .* no download \(no network\)\. Download https://arch"
    ):
        obtain("bike_sharing")
    with pytest.raises(InputError, match=r"Download https://datarepo.* into that folder, set DDPN_DATA"):
        obtain("reviews")
    with pytest.raises(InputError, match=r"Unpack http://images\.cocodataset\.org/annotations/.* there"):
        obtain("coco_people")
    assert obtain("rand_health") == "rand_health: 20,190 rows, inside statsmodels"
