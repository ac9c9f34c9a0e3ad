"""Pictures of one colour each, so that it can be seen which of them is drawn."""

import shutil

import numpy as np
import pytest
from scipy import stats

from ddpn.datasets import split
from ddpn.datasets.splits import LARGE_SHARES, SEED
from ddpn.errors import InputError
from ddpn.experiments.figures.images import picture_pmfs

pytest.importorskip("matplotlib")
image = pytest.importorskip("PIL.Image")
N = 40
DATA = {"name": "coco_people", "size": 16, "augment": False}


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """Counts of 40 pictures; the colour of picture i is 6 i."""
    folder = tmp_path / "data" / "coco_people"
    (folder / "images").mkdir(parents=True)
    y = np.random.default_rng(3).integers(1, 9, N)
    for number in range(N):
        image.new("RGB", (20, 10), (6 * number, 0, 0)).save(folder / "images" / f"{number:03}.png")
    lines = ["image_id,person_count", *(f"{number:03},{count}" for number, count in enumerate(y))]
    (folder / "person_counts.csv").write_text("\n".join(lines))
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    return y


@pytest.fixture
def people(declare, finish, counts):
    """Two members, gamma = 1, whose means are the count of the picture and twice that."""
    experiment = declare("people", data=DATA, methods=["ddpn", "beta_ddpn_0.5"])
    y = counts[split(N, SEED, LARGE_SHARES).test]
    raw = np.stack([np.log([y, 2 * y]).T, np.zeros((len(y), 2))], -1)
    finish(experiment.runs()[1], np.zeros((2, 2)), raw=raw, y=y)
    return experiment


def test_each_picture_stands_above_its_own_law(people, counts, tmp_path):
    axes = np.reshape(picture_pmfs(people, tmp_path).axes, (2, 3))
    test = split(N, SEED, LARGE_SHARES).test
    ordered = np.sort(counts[test])
    for (above, below), quantile in zip(axes.T, (0.1, 0.5, 0.95), strict=True):
        count = ordered[round(quantile * (len(ordered) - 1))]
        row = np.flatnonzero(counts[test] == count)[0]
        assert above.get_title() == f"test row {row}: {count} {'person' if count == 1 else 'people'}"
        shown = above.get_images()[0].get_array()
        assert shown.shape == (16, 16, 3)
        assert (shown == [6 * test[row], 0, 0]).all()
        y = np.array([bar.get_x() + bar.get_width() / 2 for bar in below.patches]).round()
        expected = stats.poisson.pmf(y[:, None], [count, 2 * count]).mean(1)
        np.testing.assert_allclose([bar.get_height() for bar in below.patches], expected, atol=1e-6)
        (observed,) = (line for line in below.get_lines() if line.get_label() == "observed")
        assert observed.get_xdata()[0] == count


def test_missing_pictures_are_told_in_a_sentence(people, tmp_path):
    shutil.rmtree(tmp_path / "data" / "coco_people" / "images")
    with pytest.raises(InputError, match=r"Images of .*person_counts.csv not found in .*: 40 of 40"):
        picture_pmfs(people, tmp_path)


def test_other_pictures_than_those_of_the_run_are_refused(people, tmp_path):
    path = tmp_path / "data" / "coco_people" / "person_counts.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(f"{row}0" for row in rows)]))
    with pytest.raises(
        InputError, match=r"the data must be what .*beta_ddpn_0.5 was tested on, got test rows with oth"
    ):
        picture_pmfs(people, tmp_path)
