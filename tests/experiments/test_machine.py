import os

import pytest

from ddpn.experiments.machine import changed_after, cores
from ddpn.experiments.settings import experiment


def test_cores_are_those_of_this_process(monkeypatch):
    assert 1 <= cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert cores() == 3


@pytest.mark.parametrize("newer", ["reviews", "bible", None])
def test_files_of_the_data_and_of_what_is_outside_are_looked_at(tmp_path, monkeypatch, newer):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    for name in ("reviews", "bible", "bike_sharing"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "file").touch()
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (1000.0, 3000.0 if name in (newer, "bike_sharing") else 1000.0))
    assert changed_after(experiment("reviews"), 2000.0) == (newer is not None)
    assert not changed_after(experiment("reviews"), 4000.0)
    assert not changed_after(experiment("wave"), 0.0)
