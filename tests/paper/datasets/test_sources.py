import errno
import io
import subprocess
import sys
import threading
from dataclasses import replace
from hashlib import sha256
from zipfile import ZipFile

import numpy as np
import pytest
import requests

from ddpn.paper.datasets import dataset_status, download, load, tabular
from ddpn.paper.datasets.sources import SOURCES, Source, data_folder, fetch
from ddpn.runtime.errors import ConfigError, InputError

BODY = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def source(server):
    server.body = BODY
    return Source("none", server.url, "none", "nobody", ("set/file.csv",), len(BODY), sha256(BODY).hexdigest())


def zipped(source):
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("Readme.txt", b"read me")
        archive.writestr("file.csv", BODY)
    return replace(source, archive=sha256(packed.getvalue()).hexdigest()), packed.getvalue()


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_file_is_downloaded_once(source, server, tmp_path):
    path = fetch(source, tmp_path)
    assert path == tmp_path / "set" / "file.csv"
    assert path.read_bytes() == BODY
    assert fetch(source, tmp_path) == path
    assert server.requests == 1
    assert names(tmp_path) == ["file.csv"]


def test_a_file_from_an_archive(source, server, tmp_path):
    source, server.body = zipped(source)
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert names(tmp_path) == ["file.csv"]


@pytest.mark.parametrize("script", [["status 503"], [100_000, 0]])
def test_a_download_that_fails_is_tried_again(source, server, tmp_path, script):
    server.script = list(script)
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert server.requests == 1 + len(script)
    assert names(tmp_path) == ["file.csv"]


@pytest.mark.parametrize(
    ("script", "words"), [(["status 404"] * 9, "status 404 Not Found"), ([70_000] * 9, "no connection")]
)
def test_a_download_that_keeps_failing_describes_what_to_do(source, server, tmp_path, script, words):
    server.script = script
    with pytest.raises(InputError, match=f"^Cannot download {source.url}: {words}") as error:
        fetch(source, tmp_path)
    for needed in (str(source.size), source.sha256, str(tmp_path / "set"), "DDPN_DATA"):
        assert needed in str(error.value)
    assert names(tmp_path) == []
    assert server.requests == 3


@pytest.mark.parametrize("body", [BODY[:-1] + b"x"])
def test_a_wrong_checksum(source, server, tmp_path, body):
    server.body = body
    with pytest.raises(InputError, match=rf"sent a file with a wrong checksum, expected SHA-256 {source.sha256}"):
        fetch(source, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, r"^The disk is full: .*set needs 300,000 bytes"), (errno.EACCES, r"^Cannot write to .*set: ")],
)
def test_a_disk_that_cannot_be_written_to(source, tmp_path, monkeypatch, number, words):
    def fail(path, *arguments):
        raise OSError(number, "no")

    monkeypatch.setattr("pooch.core.shutil.move", fail)
    with pytest.raises(InputError, match=words):
        fetch(source, tmp_path)
    assert names(tmp_path) == []


def test_processes_wait_for_each_other(source, server, tmp_path):
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch(source, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert server.requests == 1


def test_a_damaged_file_is_neither_used_nor_replaced(source, server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.csv").write_bytes(BODY[:100])
    with pytest.raises(InputError, match=rf"file\.csv must have the SHA-256 {source.sha256}, got .* Delete the file"):
        fetch(source, tmp_path)
    assert server.requests == 0
    assert len((tmp_path / "set" / "file.csv").read_bytes()) == 100


def test_without_pooch(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ConfigError, match=r"^ddpn\[data\] is not installed: pip install 'ddpn\[data\]'$"):
        fetch(source, tmp_path)


def test_the_folder_of_the_environment(source, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "here"))
    assert fetch(source) == tmp_path / "here" / "set" / "file.csv"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDPN_DATA", "~/mine")
    assert data_folder() == tmp_path / "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs has other folders on other platforms")
def test_the_cache_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.delenv("DDPN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "ddpn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "ddpn"


# Loading ------------------------------------------------------------------------------------------------------------


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


def test_an_unknown_name():
    for function in (load, download):
        with pytest.raises(
            ConfigError, match=r"one of rand_health, .*, got 'bike_share'\. Did you mean 'bike_sharing'"
        ):
            function("bike_share")


def test_torch_is_not_imported():
    code = """
import sys
import ddpn.cli.paper
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
    put(folder, "reviews/womens_clothing.csv.gz", "Title,Review Text,Rating\n,x,1\n,,2\n,y,3\n")
    found = status("reviews")
    assert (found.state, found.rows, found.sample, found.license) == ("available", 2, False, "CC0")
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
        ("reviews", "reviews/womens_clothing.csv.gz", "Rating", "must be a CSV file with the columns"),
        ("coco_people", "coco_people/person_counts.csv", "image_id,person_count\n01,4\n", "Folder of images not found"),
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
    with pytest.raises(InputError, match=r"Download https://datarepo.* into that folder, or set DDPN_DATA"):
        download("reviews")
    with pytest.raises(InputError, match=r"Unpack http://images\.cocodataset\.org/annotations/.* there"):
        download("coco_people")
    assert download("rand_health") == "rand_health: 20,190 rows, inside statsmodels"
