"""Members that are fitted as jobs of an executor are those of a fit in this process, bit for bit."""

import json

import numpy as np
import pytest
from sklearn.base import clone

from ddpn import CountRegressor, DDPNRegressor
from ddpn.executors import InProcess, JobError
from ddpn.members.networks import Networks
from ddpn.runtime.errors import ConfigError


class Recorded(InProcess):
    """Keeps the names of the jobs that were run, and fails at one of them."""

    def __init__(self, fails_at=None):
        super().__init__(retries=0)
        self.names, self.fails_at = [], fails_at

    def _run(self, jobs, report):
        for result in super()._run(jobs, report):
            self.names.append(result.job.name)
            if result.job.name == self.fails_at:
                raise KeyboardInterrupt
            yield result


def state(model):
    """All files of a model, without what took how long."""
    files, _ = model.saved_state()
    found = dict(files)
    for name in [name for name in files if name.endswith("networks.json")]:
        facts = json.loads(found.pop(name))
        found[name] = str([{k: v for k, v in each.items() if k != "seconds"} for each in facts["history"]["epochs"]])
    return found, model.predictor_.weights


SMALL = {"hidden": (8,), "epochs": 2, "random_state": 0, "device": "cpu"}


def test_a_portfolio_with_folds(counts):
    executor = Recorded()
    here, there = CountRegressor(**SMALL).fit(*counts), CountRegressor(**SMALL, executor=executor).fit(*counts)
    assert state(there) == state(here)
    assert np.array_equal(there.predict_interval(counts[0]), here.predict_interval(counts[0]))
    copies = [f"{label}, fold {number}" for label in ("boosted trees", "GLM") for number in range(1, 6)]
    assert sorted(executor.names) == sorted([*copies, "networks"]), "networks train the copies of all folds together"
    assert there.predictor_.seconds["networks"] > 0


def test_an_ensemble_and_what_is_mixed_with_it(larger):
    options = SMALL | {"members": 2, "mix_with": ["glm", "constant"]}
    executor = Recorded()
    here, there = DDPNRegressor(**options).fit(*larger), DDPNRegressor(**options, executor=executor).fit(*larger)
    assert state(there) == state(here)
    assert len(executor.names) == 3


def test_a_fit_that_is_stopped_continues_with_what_is_done(larger, tmp_path):
    plain = SMALL | {"members": 2, "mix_with": ["constant", "poisson_glm"]}
    options, names = plain | {"checkpoint": tmp_path / "state"}, ["networks", "constant distribution", "Poisson GLM"]
    stopped, again = Recorded(fails_at="Poisson GLM"), Recorded()
    with pytest.raises(KeyboardInterrupt):
        DDPNRegressor(**options, executor=stopped).fit(*larger)
    assert stopped.names == names
    found = DDPNRegressor(**options, executor=again).fit(*larger)
    assert again.names == ["Poisson GLM"]
    assert state(found) == state(DDPNRegressor(**plain).fit(*larger))
    other = Recorded()
    DDPNRegressor(**options | {"random_state": 1}, executor=other).fit(*larger)
    assert other.names == names, "another seed has other results"
    other.names.clear()
    DDPNRegressor(**options, executor=other).fit(larger[0], larger[1] + 1.0)
    assert other.names == names, "other rows have other results"


def test_a_job_that_fails_ends_the_fit_with_one_sentence(counts, monkeypatch):
    def fit(self, train, validation, seed):
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(Networks, "fit", fit)
    with pytest.raises(JobError, match=r"^networks failed: ZeroDivisionError: odd\.$"):
        DDPNRegressor(**SMALL, executor=InProcess(retries=0)).fit(*counts)


def test_a_copy_of_an_estimator_has_the_same_executor():
    executor = InProcess()
    assert clone(DDPNRegressor(executor=executor)).executor is executor


def test_other_objects_are_refused(counts):
    for kind in (CountRegressor, DDPNRegressor):
        with pytest.raises(ConfigError, match="executor must be an Executor such as LocalProcesses"):
            kind(**SMALL, executor="ray").fit(*counts)
