"""Test jobs in this process and in others of this machine: the same results, dead processes, resuming and Ctrl-C."""

import os
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.jobs import Job, JobError, count_slots, run, runs_in_this_process
from ddpn.runtime.threads import count_cores
from ddpn.storage.results import ResultStore


def index_by_name(results):
    return {result.job.name: result for result in results}


def is_alive(process):
    """Return True if a process exists, and is more than an entry in the table of processes."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(process, seconds=10.0):
    end = time.monotonic() + seconds
    while is_alive(process) and time.monotonic() < end:
        time.sleep(0.1)
    return not is_alive(process)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_one_run_returns_results_and_errors(n_jobs, work, tmp_path):
    begun, data = [], np.ones(300_000)
    jobs = [Job(f"double {n}", work.double, (n,)) for n in (2, 3)]
    jobs += [Job("refused", work.refuse), Job("odd", work.fail_first, (str(tmp_path), 9))]
    results = index_by_name(run(jobs, data, n_jobs, on_start=lambda job: begun.append(job.name)))
    assert [results[f"double {n}"].get()["sum"] for n in (2, 3)] == [b"600000.0", b"900000.0"]
    is_elsewhere = results["double 2"].get()["process"] != str(os.getpid()).encode()
    assert is_elsewhere == (n_jobs == 2)
    with pytest.raises(InputError, match="This cannot be fitted"):
        results["refused"].get()
    with pytest.raises(JobError, match=r"^odd failed: ZeroDivisionError: odd\.$"):
        results["odd"].get()
    assert "in fail_first" in results["odd"].trace
    assert begun == [job.name for job in jobs]


@pytest.mark.parametrize("times", [1, 9])
def test_a_job_whose_process_dies_is_repeated_and_does_not_end_the_others(work, tmp_path, times):
    jobs = [Job("deadly", work.die_first, (str(tmp_path), times))]
    jobs += [Job(f"double {n}", work.double, (n,)) for n in range(4)]
    results = index_by_name(run(jobs, [1, 2], 2))
    assert [results[f"double {n}"].get()["sum"] for n in range(4)] == [b"0.0", b"3.0", b"6.0", b"9.0"]
    assert len(list(tmp_path.iterdir())) == 2
    if times == 1:
        assert results["deadly"].get() == {"ran": b"1"}
    else:
        with pytest.raises(JobError, match=r"^deadly failed: its process was killed"):
            results["deadly"].get()


def test_a_job_that_other_processes_cannot_import_fails_with_that_reason(monkeypatch):
    module = types.ModuleType("nowhere")
    exec("def double(data):\n    return {}", module.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere", module)
    (result,) = run([Job("double", module.double)], [1, 2], 2)
    with pytest.raises(
        JobError, match=r"^double failed: another process cannot load it \(.*No module named 'nowhere'\)"
    ):
        result.get()


def test_a_job_may_start_processes_of_its_own(work):
    (result,) = run([Job("images", work.read_elsewhere)], [1, 2, 3], 2)
    assert result.get() == {"sum": b"6"}


@pytest.mark.parametrize("how", ["interrupt", "close"])
def test_an_exception_in_the_loop_ends_the_processes(work, tmp_path, how):
    jobs = [Job("short", work.double, (1,)), *(Job(str(n), work.wait_long, (str(tmp_path),)) for n in (1, 2))]
    results = run(jobs, [1], 2)
    assert next(results).job.name == "short"
    while not (waiting := list(tmp_path.iterdir())):
        time.sleep(0.05)
    if how == "close":
        results.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            results.throw(KeyboardInterrupt)
    assert all(wait_for_end(int(path.name)) for path in waiting)


def test_processes_end_with_a_program_that_is_killed(work, tmp_path):
    code = "import sys, small_jobs as w; from ddpn.runtime.jobs import Job, run; "
    code += "list(run([Job(str(n), w.wait_long, (sys.argv[1],)) for n in (1, 2)], None, 2))"
    paths = os.pathsep.join([os.path.dirname(work.__file__), *sys.path])
    program = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": paths}, stderr=subprocess.DEVNULL
    )
    while len(waiting := list(tmp_path.iterdir())) < 2:
        assert program.poll() is None
        time.sleep(0.05)
    program.kill()
    program.wait()
    assert all(wait_for_end(int(path.name)) for path in waiting)


def test_stored_results_are_not_computed_again(work, tmp_path):
    def begin(seed):
        """Return results, and the names of the jobs that are run for them."""
        identities = {name: {"job": name, "seed": seed} if name != "c" else None for name in ("a", "b", "c")}
        jobs = [Job(name, work.double, (1,), identity) for name, identity in identities.items()]
        ran = set()
        return run(jobs, [1], store=ResultStore(tmp_path / "store"), on_start=lambda job: ran.add(job.name)), ran

    interrupted, _ = begin(0)
    done = next(interrupted)
    interrupted.close()
    results, ran = begin(0)
    assert index_by_name(results)["a"].files == done.files
    assert ran == {"b", "c"}
    results, ran = begin(0)
    assert set(index_by_name(results)) == {"a", "b", "c"}
    assert ran == {"c"}, "a job without an identity is not stored"
    results, ran = begin(1)
    assert index_by_name(results)["a"].files == done.files
    assert ran == {"a", "b", "c"}, "another identity"


def test_numbers_of_jobs_are_those_of_scikit_learn():
    assert [count_slots(n) for n in (None, 1, 3, -1)] == [1, 1, 3, count_cores()]
    assert count_slots(-2) == max(1, count_cores() - 1)
    assert [runs_in_this_process(n) for n in (None, 1, 2, RayCluster("nowhere:1"))] == [True, True, False, False]
    for wrong in (0, 1.5, "ray", True):
        with pytest.raises(ConfigError, match="n_jobs must be a number of processes"):
            count_slots(wrong)


@pytest.mark.parametrize(("option", "value"), [("cpus", 0), ("retries", -1), ("gpus", 1.5), ("gpus", -1)])
def test_invalid_options_of_a_cluster_are_refused(option, value):
    with pytest.raises(ConfigError, match=f"{option} must be"):
        RayCluster(**{option: value})
