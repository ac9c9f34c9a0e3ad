"""Counts of people in the images of MS-COCO."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np

from ddpn.paper.datasets.dataset import LARGE_SHARES, Dataset, as_counts, read_columns, split
from ddpn.paper.datasets.sources import SOURCES, data_folder
from ddpn.runtime.errors import InputError

SOURCE = SOURCES["coco_people"]
ANNOTATIONS_URL = "http://images.cocodataset.org/annotations/annotations_trainval2017.zip"
#: The keys that are kept when an annotation file is read. Outlines, which make up nine tenths of it, are dropped.
_KEPT = {"images", "annotations", "categories", "id", "file_name", "image_id", "category_id", "name"}


def coco_people() -> Dataset:
    """Load MS-COCO's training images that show people; the target is the number of people in an image.

    The column "file" of `X` has the path of each image, relative to the `root` of the data set. Rows are sorted by
    image id and split 70/10/20.

    The folder `coco_people` must contain the images, in `train2017` or `images`, and one of two files: COCO's
    annotations/instances_train2017.json, or person_counts.csv with the columns image_id (the file name, with or without
    .jpg) and person_count.

    The count is the number of annotations of the category person. A crowd that COCO annotates as one region counts as
    one, as in the paper. Images without people are left out, after which all of train2017 has the paper's 64,115
    images.
    """
    home = data_folder() / "coco_people"
    path = SOURCE.find_file(f"Unpack {ANNOTATIONS_URL} and {SOURCE.url} in {home}.")
    root = next((home / name for name in ("images", "train2017") if (home / name).is_dir()), None)
    if root is None:
        raise InputError(f"Folder of images not found: {home / 'train2017'}. Unpack {SOURCE.url} in {home}.")
    if path.suffix == ".csv":
        table = read_columns(path, numbers=["person_count"], texts=["image_id"])
        names, people = table["image_id"].to_list(), table["person_count"].to_list()
    else:
        names, people = _count_people(path)
    file_names = os.listdir(root)
    # Names may lack the extension.
    names_in_folder = {name.removesuffix(".jpg"): name for name in file_names} | {name: name for name in file_names}
    if missing := [name for name in names if name not in names_in_folder]:
        raise InputError(
            f"Images of {path} not found in {root}: {len(missing):,} of {len(names):,}, such as {missing[0]}. "
            f"Unpack {SOURCE.url} there."
        )
    files = [names_in_folder[name] for name in names]
    file, times = Counter(files).most_common(1)[0]
    if times > 1:
        raise InputError(f"Every image must be counted once, got {file} {times} times.")
    y = as_counts(np.array(people, dtype=np.float64), "person_count")
    import polars  # slow to import

    frame, note = polars.DataFrame({"file": files}), SOURCE.describe_rows(len(y), "images")
    terms, parts = (SOURCE.license, SOURCE.citation), split(len(y), shares=LARGE_SHARES)
    return Dataset("coco_people", frame, y, parts, *terms, note=note, sample=len(y) < SOURCE.rows, root=root)


def _count_people(path: Path) -> tuple[list[str], list[float]]:
    """Count the annotated people per image; return the file names and the counts of all images that show people."""
    try:
        with path.open("rb") as file:
            kept = json.load(file, object_hook=lambda entry: {k: v for k, v in entry.items() if k in _KEPT})
        people = [category["id"] for category in kept["categories"] if category["name"] == "person"]
        files = {image["id"]: image["file_name"] for image in kept["images"]}
        counts = Counter(
            annotation["image_id"] for annotation in kept["annotations"] if annotation["category_id"] in people
        )
        ids = sorted(counts)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} must be one of COCO's instances_*.json with images, annotations and categories, got "
            f"{type(error).__name__}: {error}."
        ) from error
    if not ids:
        raise InputError(f"{path} must have annotations of the category person, got none.")
    if unknown := [image for image in ids if image not in files]:
        raise InputError(
            f"{path} has annotations of {len(unknown)} images that it does not list, such as image {unknown[0]}."
        )
    return [files[image] for image in ids], [float(counts[image]) for image in ids]
