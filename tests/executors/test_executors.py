"""Jobs in this process and in processes of this machine: the same results, retries, resuming, and Ctrl-C."""

import os

import pytest

from ddpn.executors import InProcess, Job, JobError, LocalProcesses
from ddpn.runtime.errors import ConfigError, InputError

KINDS = [InProcess, LocalProcesses]


def files_of(results):
    return {result.job.name: dict(result.get()) for result in results}


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_in_one_run(kind, work, tmp_path):
    """One start of processes for all: results, progress, a refusal, a job that recovers and one that does not."""
    executor, reports = kind(retries=2), []
    data = executor.share([1, 2, 3])
    (tmp_path / "once").mkdir()
    (tmp_path / "always").mkdir()
    jobs = [Job(f"double {n}", work.double, (data, n)) for n in (2, 3)]
    jobs += [Job("refused", work.refuse), Job("recovers", work.fail_first, (str(tmp_path / "once"), 1))]
    jobs += [Job("never", work.fail_first, (str(tmp_path / "always"), 9))]
    found = {r.job.name: r for r in executor.run(jobs, lambda job, *rest: reports.append((job.name, *rest)))}
    assert [found[f"double {n}"].get()["sum"] for n in (2, 3)] == [b"12", b"18"]
    assert ("double 2", "running", "half way") in reports
    with pytest.raises(InputError, match="This cannot be fitted"):
        found["refused"].get()
    assert found["recovers"].get() == {"ran": b"1"}
    assert ("recovers", "retried", "ZeroDivisionError: odd") in reports
    with pytest.raises(JobError, match=r"^never failed 3 times, the last time: ZeroDivisionError: odd\.$"):
        found["never"].get()
    assert "in fail_first" in found["never"].trace
    assert len(list((tmp_path / "always").iterdir())) == 3
    assert [state for name, state, _ in reports if name == "refused"] == ["running", "failed"]


def test_data_are_sent_once_or_made_by_the_worker_and_a_killed_worker_is_replaced(work, tmp_path):
    executor = LocalProcesses(1)
    data = executor.share(["wrong", "wrong"], rebuild=work.made)
    jobs = [Job("one", work.first_and_maker, (data,)), Job("two", work.first_and_maker, (data,))]
    jobs += [Job("killed", work.die_first, (str(tmp_path),))]
    one, two, killed = executor.run(jobs)
    assert one.files == two.files
    assert one.files["sum"] == b"3"
    assert one.files["maker"] == one.files["here"] != str(os.getpid()).encode()
    assert killed.get() == {"ran": b"twice"}


def test_an_exception_in_the_loop_ends_the_workers(work, tmp_path):
    def interrupt(job, state, detail):
        if detail == "waiting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(LocalProcesses(1).run([Job("long", work.wait_long, (str(tmp_path),))], interrupt))
    assert (tmp_path / "ended").exists(), "the worker was not told to end"


def test_stored_results_are_not_computed_again(work, tmp_path):
    def run(seed):
        """Results, and the names of the jobs that were run for them."""
        known = {name: {"job": name, "seed": seed} if name != "c" else None for name in ("a", "b", "c")}
        jobs = [Job(name, work.double, ([1], 1), identity) for name, identity in known.items()]
        ran = set()
        results = InProcess(store=tmp_path / "store").run(jobs, lambda job, *state: ran.add((job.name, state[0])))
        return results, ran

    interrupted, _ = run(0)
    done = next(interrupted)
    interrupted.close()
    results, ran = run(0)
    assert files_of(results)["a"] == done.files
    assert {name for name, state in ran if state == "running"} == {"b", "c"}
    results, ran = run(0)
    assert set(files_of(results)) == {"a", "b", "c"}
    assert {name for name, state in ran if state == "running"} == {"c"}, "a job without an identity is not stored"
    results, ran = run(1)
    assert files_of(results)["a"] == done.files
    assert {name for name, state in ran if state == "running"} == {"a", "b", "c"}, "another identity"


@pytest.mark.parametrize(("option", "value"), [("retries", -1), ("jobs", 0)])
def test_invalid_options_are_refused(option, value):
    with pytest.raises(ConfigError, match=f"{option} must be"):
        LocalProcesses(**{option: value})
