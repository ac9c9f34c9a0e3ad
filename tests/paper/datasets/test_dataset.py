"""Test data sets and their splits; downloads, which may fail in many ways; and loading by name."""

import errno
import io
import threading
from dataclasses import replace
from hashlib import sha256
from zipfile import ZipFile

import numpy as np
import polars as pl
import pytest
import requests

from ddpn.paper.datasets import dataset_status, download, load, tabular
from ddpn.paper.datasets.dataset import Dataset, read_columns, split
from ddpn.paper.datasets.sources import SOURCES, Source, data_folder, fetch
from ddpn.runtime.errors import ConfigError, InputError


def make_dataset(n=20, shift=0.0, **options):
    return Dataset(
        "made_up",
        pl.DataFrame({"x": np.arange(n) + shift}),
        np.arange(n),
        split(n),
        license="none",
        citation="nobody",
        encodings={"centered": lambda table, train: {"x": (table["x"] - table["x"][train].mean()).to_numpy()}},
        **options,
    )


def test_parts_are_rows_of_the_split():
    data = make_dataset()
    for part in ("train", "validation", "test"):
        X, y = data.part(part)
        np.testing.assert_array_equal(y, getattr(data.split, part))
        np.testing.assert_array_equal(X["x"], y)


def test_encodings_use_the_training_rows():
    data = make_dataset()
    assert data.part("train", "centered")[0]["x"].mean() == pytest.approx(0.0)
    np.testing.assert_allclose(data.features("centered")["x"], np.arange(20) - data.split.train.mean())
    np.testing.assert_array_equal(data.features()["x"], np.arange(20))


def test_invalid_arguments_are_refused():
    with pytest.raises(InputError, match="must have the same number of rows, got 3, 4 and 5"):
        Dataset("bad", pl.DataFrame({"x": np.ones(3)}), np.ones(4, dtype=int), split(5), "none", "nobody")
    with pytest.raises(InputError, match="features of made_up must be 'raw' or 'centered', got 'cooked'"):
        make_dataset().features("cooked")
    with pytest.raises(InputError, match="part must be one of train, validation, test, got 'dev'"):
        make_dataset().part("dev")


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 99, 101, 1000, 17379, 20000, 100_000])
def test_the_split_is_the_published_recipe(n):
    order = np.random.default_rng(1998).permutation(n)
    train, validation, test = split(n)
    np.testing.assert_array_equal(train, order[: int(0.8 * n)])
    np.testing.assert_array_equal(validation, order[int(0.8 * n) : int(0.9 * n)])
    np.testing.assert_array_equal(test, order[int(0.9 * n) :])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shares": (0.8, 0.1)}, r"shares must be .* sum to 1, got \(0\.8, 0\.1\)"),
        ({"shares": (0.8, 0.1, 0.2)}, "shares must be"),
        ({"shares": (1.2, -0.1, -0.1)}, "shares must be"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
    ],
)
def test_invalid_splits_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        split(**{"n": 10} | options)


def test_columns_are_in_the_order_of_the_file_and_others_are_left_out(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text('\ufeffid,who,n\r\n7,"a, b",1.5\r\n8,c, -2e3\r\n', encoding="utf-8")
    table = read_columns(path, numbers=["n"], texts=["who"])
    assert table.columns == ["who", "n"]
    assert table.rows() == [("a, b", 1.5), ("c", -2000.0)]


INVALID = {
    "missing column": ("a,t\n1,x\n", r"file\.csv must have the columns a, b, t, got no b"),
    "word": ("a,b,t\n1,2,x\n1,z,x\n", "Column b of .* must hold finite numbers, got 'z' at row 2"),
    "infinity": ("a,b,t\n1,inf,x\n", "Column b of .* must hold finite numbers, got 'inf' at row 1"),
    "missing number": ("a,b,t\n1,2,x\n1,,y\n", "Column b of .* must hold finite numbers, got none at row 2"),
    "missing text": ("a,b,t\n1,2,x\n2,3,\n", "Column t of .* must hold text, got none at row 2"),
    "empty file": ("", "is an empty file"),
}


@pytest.mark.parametrize(("content", "words"), INVALID.values(), ids=INVALID.keys())
def test_invalid_files_are_refused(tmp_path, content, words):
    (tmp_path / "file.csv").write_text(content)
    with pytest.raises(InputError, match=words):
        read_columns(tmp_path / "file.csv", numbers=["a", "b"], texts=["t"])


# Downloads ------------------------------------------------------------------------------------------------------------


BODY = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def csv_source(server):
    server.body = BODY
    return Source("none", server.url, "none", "nobody", ("set/file.csv",), len(BODY), sha256(BODY).hexdigest())


def zip_body(source):
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("Readme.txt", b"read me")
        archive.writestr("file.csv", BODY)
    return replace(source, archive=sha256(packed.getvalue()).hexdigest()), packed.getvalue()


def list_names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_file_is_downloaded_once_even_if_many_want_it(csv_source, server, tmp_path):
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(fetch(csv_source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [tmp_path / "set" / "file.csv"] * 4
    assert paths[0].read_bytes() == BODY
    assert fetch(csv_source) == paths[0]
    assert server.requests == 1
    assert list_names(tmp_path) == ["file.csv"]


def test_a_file_is_taken_from_an_archive(csv_source, server, tmp_path):
    csv_source, server.body = zip_body(csv_source)
    assert fetch(csv_source).read_bytes() == BODY
    assert list_names(tmp_path) == ["file.csv"]


@pytest.mark.parametrize("script", [["status 503"], [100_000, 0]])
def test_a_download_that_fails_is_tried_again(csv_source, server, tmp_path, script):
    server.script = list(script)
    assert fetch(csv_source).read_bytes() == BODY
    assert server.requests == 1 + len(script)
    assert list_names(tmp_path) == ["file.csv"]


@pytest.mark.parametrize(
    ("script", "words"), [(["status 404"] * 9, "status 404 Not Found"), ([70_000] * 9, "no connection")]
)
def test_a_download_that_keeps_failing_describes_what_to_do(csv_source, server, tmp_path, script, words):
    server.script = script
    with pytest.raises(InputError, match=f"^Cannot download {csv_source.url}: {words}") as error:
        fetch(csv_source)
    for needed in (str(csv_source.size), csv_source.sha256, str(tmp_path / "set"), "DDPN_DATA"):
        assert needed in str(error.value)
    assert list_names(tmp_path) == []
    assert server.requests == 3


def test_a_wrong_checksum_is_refused(csv_source, server, tmp_path):
    server.body = BODY[:-1] + b"x"
    with pytest.raises(InputError, match=rf"sent a file with a wrong checksum, expected SHA-256 {csv_source.sha256}"):
        fetch(csv_source)
    assert list_names(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, r"^The disk is full: .*set needs 300,000 bytes"), (errno.EACCES, r"^Cannot write to .*set: ")],
)
def test_a_disk_that_cannot_be_written_to_is_reported(csv_source, tmp_path, monkeypatch, number, words):
    def fail(path, *arguments):
        raise OSError(number, "no")

    monkeypatch.setattr("pooch.core.shutil.move", fail)
    with pytest.raises(InputError, match=words):
        fetch(csv_source)
    assert list_names(tmp_path) == []


# Loading ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder and no network."""

    def refuse(*arguments):
        raise requests.ConnectionError("no network")

    monkeypatch.setattr("ddpn.paper.datasets.sources._download", refuse)
    return tmp_path


def get_status(name):
    return next(entry for entry in dataset_status() if entry.name == name)


def write_file(folder, path, content):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(content)
    return folder / path


def test_an_unknown_name_is_refused():
    for function in (load, download):
        with pytest.raises(
            ConfigError, match=r"one of rand_health, .*, got 'bike_share'\. Did you mean 'bike_sharing'"
        ):
            function("bike_share")


def test_an_empty_folder_has_missing_data_sets(folder):
    assert {entry.name: (entry.state, entry.rows) for entry in dataset_status()} == {
        "rand_health": ("available", 20_190),
        "length_of_stay": ("missing", None),
        "bike_sharing": ("missing", None),
        "reviews": ("missing", None),
        "coco_people": ("missing", None),
        "bible": ("missing", None),
        "inventory": ("missing", None),
    }
    assert get_status("bike_sharing").license == "CC BY 4.0"
    assert get_status("length_of_stay").address == SOURCES["length_of_stay"].url
    assert list(folder.iterdir()) == []


def test_available_files_have_their_own_rows_and_license(folder):
    write_file(folder, "reviews/womens_clothing.csv.gz", "Title,Review Text,Rating\n,x,1\n,,2\n,y,3\n")
    entry = get_status("reviews")
    assert (entry.state, entry.rows, entry.sample, entry.license) == ("available", 2, False, "CC0")
    assert download("reviews") == f"reviews: 2 rows, {folder} (1 rows without text left out)"
    write_file(folder, "coco_people/person_counts.csv", "image_id,person_count\n01,4\n")
    write_file(folder, "coco_people/images/01.jpg", "")
    entry = get_status("coco_people")
    assert (entry.state, entry.rows, entry.sample) == ("available", 1, True)
    note = "1 of the 64,115 images of the paper's data"
    assert download("coco_people") == f"coco_people: 1 (sample) rows, {folder} ({note})"


@pytest.mark.parametrize(
    ("name", "path", "content", "words"),
    [
        ("bike_sharing", "bike_sharing/hour.csv", "instant\n1\n", "must have the SHA-256"),
        ("length_of_stay", "length_of_stay/LengthOfStay.csv", "eid\n1\n", "must have the SHA-256"),
        ("length_of_stay", "length_of_stay/los_20k.csv", "eid\n1\n", "got no asthma"),
        ("reviews", "reviews/womens_clothing.csv.gz", "Rating", "must be a CSV file with the columns"),
        ("coco_people", "coco_people/person_counts.csv", "image_id,person_count\n01,4\n", "Folder of images not found"),
        ("bible", "bible/eng-eng-kjv.txt", "\n\n", "must hold one verse per line"),
        ("inventory", "inventory/beams.npz", "PK", "must be a file of numpy.savez"),
    ],
)
def test_a_damaged_file_is_reported(folder, name, path, content, words):
    write_file(folder, path, content)
    entry = get_status(name)
    assert entry.state.startswith("damaged: ")
    assert words in entry.state
    assert entry.rows is None
    with pytest.raises(InputError):
        download(name)


def test_a_download_is_counted(tmp_path, server, monkeypatch):
    header = ["instant", "dteday", *tabular._RENTAL, "casual", "registered", "cnt"]
    server.body = (",".join(header) + "\n" + ",".join("1" for _ in header) + "\n").encode()
    digest = sha256(server.body).hexdigest()
    small = replace(SOURCES["bike_sharing"], url=server.url, archive=None, sha256=digest)
    monkeypatch.setitem(SOURCES, "bike_sharing", small)
    assert download("bike_sharing") == f"bike_sharing: 1 rows, {data_folder() / small.files[0]}"
    assert get_status("bike_sharing").state == "available"
    assert server.requests == 1


def test_a_download_whose_checksum_is_not_known_is_kept(server, monkeypatch, tmp_path):
    monkeypatch.setitem(SOURCES, "bible", replace(SOURCES["bible"], url=server.url))
    server.script = ["status 404"] * 3
    with pytest.raises(InputError, match=r"^Cannot download .*status 404.* put eng-eng-kjv\.txt into .*bible, or set"):
        download("bible")
    server.body = b"In the beginning\n\nAnd the earth\n"
    note = "2 of the 36,694 verses of the paper's data"
    assert download("bible") == f"bible: 2 (sample) rows, {tmp_path / 'bible' / 'eng-eng-kjv.txt'} ({note})"
    assert (get_status("bible").state, get_status("bible").rows) == ("available", 2)
    assert server.requests == 4
