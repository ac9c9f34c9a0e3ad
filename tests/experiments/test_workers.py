import os
import signal
import time
from contextlib import closing

import pytest
import torch
from PIL import Image

from ddpn.errors import TrainingError
from ddpn.experiments import workers
from ddpn.experiments.inputs import rows_of
from ddpn.experiments.runner import folder_of, state_of
from ddpn.experiments.settings import parse
from ddpn.experiments.workers import execute_all
from ddpn.tensor_files import read

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "poisson"},
    "methods": ["poisson", "gaussian", "poisson_glm"],
    "minutes": 1,
    "training": {
        "epochs": 2, "batch_size": 200, "lr": 1e-2, "weight_decay": 0.0, "hidden": [4], "members": 1
    },
}  # fmt: skip


@pytest.fixture
def tiny():
    return parse("tiny", CONTENT)


def weights(run, out):
    return read(folder_of(run, out) / "weights.safetensors")[0]


def test_processes_do_what_one_would(tiny, tmp_path):
    runs, parts = tiny.runs(), rows_of(tiny)
    events = list(execute_all(runs, parts, tmp_path / "two", "cpu", jobs=2))
    alone = list(execute_all(runs, parts, tmp_path / "one", "cpu", jobs=1))
    assert [e.run.name for e in alone] == [run.name for run in runs for _ in range(2)]
    assert [e.state for e in alone] == ["running", "done"] * 3
    assert sorted((e.run.name, e.state) for e in events) == sorted((e.run.name, e.state) for e in alone)
    for run in runs:
        there, here = weights(run, tmp_path / "two"), weights(run, tmp_path / "one")
        # Two processes have half the threads each, and a sum by two threads may differ in its last bit.
        torch.testing.assert_close(there, here)


def test_a_process_can_start_those_that_read_its_pictures(tmp_path, monkeypatch):
    folder = tmp_path / "coco_people"
    (folder / "images").mkdir(parents=True)
    for i in range(30):
        Image.new("RGB", (8, 8), (8 * i, 0, 0)).save(folder / "images" / f"{i:012}.jpg")
    lines = ["image_id,person_count", *(f"{i:012},{1 + i % 4}" for i in range(30))]
    (folder / "person_counts.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    config = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    pictures = parse("pictures", {name: CONTENT[name] for name in ("title", "paper", "minutes")} | {
        "methods": ["poisson", "gaussian"],
        "data": {"name": "coco_people", "size": 16, "augment": False},
        "backbone": {"name": "vit", "config": {"model_type": "vit", "image_size": 16, "patch_size": 8, **config}},
        "training": CONTENT["training"] | {"batch_size": 8, "epochs": 1, "workers": 1},
    })  # fmt: skip
    events = list(execute_all(pictures.runs(), rows_of(pictures), tmp_path / "out", "cpu", jobs=2))
    assert {(e.state, e.error) for e in events} == {("running", ""), ("done", "")}


def long(tiny):
    return tiny.with_methods(["poisson", "gaussian"]).with_training(epochs=100_000)


def running(events):
    """The processes of two runs that have begun to train."""
    started = [next(events), next(events)]
    assert [event.state for event in started] == ["running"] * 2
    generator = events.gi_yieldfrom.gi_frame.f_locals["self"]
    return list(generator._processes.values())


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_closing_ends_every_process_and_keeps_what_is_half_done(tiny, tmp_path):
    experiment = long(tiny)
    folders = [folder_of(run, tmp_path) for run in experiment.runs()]
    with closing(execute_all(experiment.runs(), rows_of(experiment), tmp_path, "cpu", jobs=2)) as events:
        processes = running(events)
        wait_for(lambda: all((folder / "config.json").exists() for folder in folders))
        time.sleep(1.0)  # into the epochs
    assert not any(process.is_alive() for process in processes)
    assert all((folder / "members-0.state").exists() and not (folder / "DONE").exists() for folder in folders)


def test_a_process_that_dies_is_told_and_the_others_go_on(tiny, tmp_path):
    experiment = long(tiny)
    with closing(execute_all(experiment.runs(), rows_of(experiment), tmp_path, "cpu", jobs=2)) as events:
        first, second = running(events)
        os.kill(first.pid, signal.SIGKILL)
        event = next(events)
        assert event.state == "failed"
        assert event.error.startswith("the process of poisson must end with a result, got exit code -9.")
        assert second.is_alive()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TrainingError("It cannot go on."), "^It cannot go on.$"),
        (ZeroDivisionError("odd"), "(?s)Traceback.*odd"),
        (OSError(28, "No space left"), "^the disk must have room for the output, got a full one\\."),
    ],
)
def test_a_run_that_fails_does_not_keep_others_from_being_done(tiny, tmp_path, monkeypatch, error, told):
    usual = workers.execute

    def execute(run, *rest):
        if run.method.name == "gaussian":
            raise error
        return usual(run, *rest)

    monkeypatch.setattr(workers, "execute", execute)
    ended = [e for e in execute_all(tiny.runs(), rows_of(tiny), tmp_path, "cpu") if e.state != "running"]
    assert [e.state for e in ended] == ["done", "failed", "done"]
    with pytest.raises(RuntimeError, match=told):
        raise RuntimeError(ended[1].error)
    assert state_of(folder_of(tiny.runs()[2], tmp_path), tiny.runs()[2]) == "done"
