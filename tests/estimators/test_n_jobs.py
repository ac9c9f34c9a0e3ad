"""Test that members that are fitted as jobs are those of a fit in this process, bit for bit."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ddpn import CountRegressor, DDPNRegressor
from ddpn.members import folds
from ddpn.members.networks import Networks
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.jobs import JobError, run
from ddpn.runtime.threads import single_thread


class JobRecorder:
    """A runner of jobs in this process that keeps their names and fails at one of them."""

    def __init__(self, monkeypatch, fails_at=None):
        self.names, self.fails_at = [], fails_at
        monkeypatch.setattr(folds, "run", self)

    def __call__(self, jobs, shared, n_jobs, store):
        return run(jobs, shared, None, store, self.begin)

    def begin(self, job):
        self.names.append(job.name)
        if job.name == self.fails_at:
            raise KeyboardInterrupt


def collect_files(model):
    """Collect all files of a model, without how long its steps took."""
    files, _ = model.collect_state()
    contents = dict(files)
    for name in [name for name in files if name.endswith("networks.json")]:
        facts = json.loads(contents.pop(name))
        contents[name] = str(
            [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in facts["history"]["epochs"]]
        )
    return contents, model.predictor_.weights


SMALL = {"hidden": (8,), "epochs": 2, "random_state": 0, "device": "cpu"}


def test_a_portfolio_that_is_fitted_as_jobs_is_the_same(counts, monkeypatch):
    jobs = JobRecorder(monkeypatch)
    some = SMALL | {"members": ["poisson_glm", "constant", "networks"]}
    in_process, as_jobs = CountRegressor(**some).fit(*counts), CountRegressor(**some, n_jobs=2).fit(*counts)
    assert collect_files(as_jobs) == collect_files(in_process)
    assert np.array_equal(as_jobs.predict_interval(counts[0]), in_process.predict_interval(counts[0]))
    copies = [f"{label}, fold {number}" for label in ("Poisson GLM", "constant distribution") for number in range(1, 6)]
    assert sorted(jobs.names) == sorted([*copies, "networks"]), "networks train the copies of all folds together"
    assert as_jobs.predictor_.seconds["networks"] > 0


@pytest.mark.slow
def test_processes_fit_what_this_process_does(larger):
    """Use one thread in this process, as the other processes do."""
    options = SMALL | {"n_networks": 2, "mix_with": ["glm"]}
    with threadpool_limits(1), single_thread():
        in_process = DDPNRegressor(**options).fit(*larger)
    assert collect_files(DDPNRegressor(**options, n_jobs=2).fit(*larger)) == collect_files(in_process)


def test_a_fit_that_is_stopped_continues_with_what_is_done(larger, tmp_path, monkeypatch):
    plain = SMALL | {"n_networks": 2, "mix_with": ["constant", "poisson_glm"]}
    options, names = plain | {"checkpoint": tmp_path / "state"}, ["networks", "Poisson GLM", "constant distribution"]
    stopped = JobRecorder(monkeypatch, fails_at="constant distribution")
    with pytest.raises(KeyboardInterrupt):
        DDPNRegressor(**options, n_jobs=2).fit(*larger)
    assert stopped.names == names
    again = JobRecorder(monkeypatch)
    model = DDPNRegressor(**options, n_jobs=2).fit(*larger)
    assert again.names == ["constant distribution"]
    assert collect_files(model) == collect_files(DDPNRegressor(**plain).fit(*larger))
    other = JobRecorder(monkeypatch)
    DDPNRegressor(**options | {"random_state": 1}, n_jobs=2).fit(*larger)
    assert other.names == names, "another seed has other results"
    other.names.clear()
    DDPNRegressor(**options, n_jobs=2).fit(larger[0], larger[1] + 1.0)
    assert other.names == names, "other rows have other results"


def test_a_job_that_fails_ends_the_fit_with_one_sentence(counts, monkeypatch):
    def fit(cls, train, validation, seed, clock, **options):
        raise ZeroDivisionError("odd")

    JobRecorder(monkeypatch)
    monkeypatch.setattr(Networks, "fit", classmethod(fit))
    with pytest.raises(JobError, match=r"^networks failed: ZeroDivisionError: odd\.$"):
        DDPNRegressor(**SMALL, n_jobs=2).fit(*counts)


def test_a_copy_of_an_estimator_has_the_same_cluster():
    cluster = RayCluster("10.0.0.1:6379", gpus=0.5)
    assert clone(DDPNRegressor(n_jobs=cluster)).n_jobs == cluster


def test_other_objects_are_refused(counts):
    for kind in (CountRegressor, DDPNRegressor):
        with pytest.raises(ConfigError, match="n_jobs must be a number of processes"):
            kind(**SMALL, n_jobs="ray").fit(*counts)
