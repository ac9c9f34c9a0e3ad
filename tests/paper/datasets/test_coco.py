"""Test counts of people from annotations of COCO's form and from a CSV; images are empty files, as none is decoded."""

import json

import numpy as np
import pandas as pd
import pytest

from ddpn.paper.datasets import coco
from ddpn.paper.datasets.coco import coco_people
from ddpn.runtime.errors import InputError

#: Image id -> categories of its annotations: 1 is a person, or a region of people in image 12.
SHOWN = {9: [1, 18, 1], 4: [1], 7: [18], 5: [], 11: [1, 1, 1], 12: [1]}


def make_annotations(shown):
    """Make COCO's json, with numbers of categories and annotations as they come in it."""
    return {
        "info": {"description": "COCO"},
        "images": [{"id": image, "file_name": f"{image:012}.jpg", "width": 640} for image in shown],
        "annotations": [
            {"segmentation": [[1.0, 2.0]], "image_id": image, "category_id": kind, "iscrowd": int(image == 12), "id": 1}
            for image, kinds in shown.items()
            for kind in kinds
        ],
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    }


def write_folder(folder, content, names=(), where="train2017"):
    """Write the folder of a user who unpacked COCO."""
    path = folder / coco.SOURCE.files[0]
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    write_empty_files(folder / "coco_people" / where, names)


def write_empty_files(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_a_crowd_is_one_as_in_the_paper(tmp_path):
    write_folder(tmp_path, make_annotations(SHOWN), [f"{image:012}.jpg" for image in SHOWN])
    data = coco_people()
    assert data.X["file"].to_list() == [f"{n:012}.jpg" for n in (4, 9, 11, 12)]
    assert data.y.tolist() == [1, 2, 3, 1]
    assert data.root == tmp_path / "coco_people" / "train2017"
    assert data.sample
    assert data.note == "4 of the 64,115 images of the paper's data"


def write_csv_folder(tmp_path, rows, names):
    write_empty_files(tmp_path / "coco_people" / "images", names)
    pd.DataFrame(rows, columns=["image_id", "person_count"]).to_csv(tmp_path / coco.SOURCE.files[-1], index=False)


def test_counts_are_read_from_a_csv(tmp_path):
    rows = [("0036", 3), ("0049.jpg", 1), ("shop.png", 0), *((f"1{i:03}", 2) for i in range(17))]
    names = ["0036.jpg", "0036.txt", "0049.jpg", "shop.png", *(f"1{i:03}.jpg" for i in range(17))]
    write_csv_folder(tmp_path, rows, names)
    data = coco_people()
    assert data.X["file"][:3].to_list() == ["0036.jpg", "0049.jpg", "shop.png"]
    assert data.y[:4].tolist() == [3, 1, 0, 2]
    assert data.root == tmp_path / "coco_people" / "images"
    assert [len(part) for part in data.split] == [14, 2, 4]
    np.testing.assert_array_equal(np.concatenate(list(data.split)), np.random.default_rng(1998).permutation(20))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("1", 1), ("4", 3)], r"not found in .*: 1 of 2, such as 4\."),
        ([("1", 1), ("1.jpg", 3)], r"counted once, got 1\.jpg 2 times"),
        ([("1", 1e30)], r"person_count must be at most 2\^53, got 1e\+30 at row 1"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path, rows, words):
    write_csv_folder(tmp_path, rows, ["1.jpg", "4.txt"])
    with pytest.raises(InputError, match=words):
        coco_people()


def test_missing_annotations_and_images_say_how_to_get_them(tmp_path):
    with pytest.raises(InputError, match=r"^File not found: .*train2017\.json or .*counts\.csv\. Unpack http://images"):
        coco_people()
    write_folder(tmp_path, make_annotations(SHOWN), where="other")
    with pytest.raises(InputError, match=r"^Folder of images not found: .*train2017"):
        coco_people()


PEOPLE = [{"id": 1, "name": "person"}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "got JSONDecodeError"),
        ([], "got TypeError"),
        ({"images": [], "annotations": []}, "got KeyError: 'categories'"),
        ({"images": [], "annotations": [], "categories": PEOPLE}, "category person, got none"),
        (
            {"images": [], "annotations": [{"image_id": 3, "category_id": 1}], "categories": PEOPLE},
            "annotations of 1 images that it does not list, such as image 3",
        ),
        (make_annotations({3: [1]}), "1 of 1, such as 000000000003.jpg"),
    ],
)
def test_invalid_annotations_are_refused(tmp_path, content, words):
    write_folder(tmp_path, content)
    with pytest.raises(InputError, match=words):
        coco_people()


def test_real_images_have_their_documented_counts(use_real_data):
    use_real_data("coco_people/person_counts.csv")
    data = coco_people()
    assert data.X.shape == (5_446, 1)
    assert (data.y.min(), data.y.max()) == (1, 15)
    assert data.y.mean() == pytest.approx(4.09, abs=0.005)
    assert [len(part) for part in data.split] == [3_812, 544, 1_090]
    assert data.note == "5,446 of the 64,115 images of the paper's data"
