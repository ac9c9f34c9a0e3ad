"""Several processes share the trainings of an experiment, and one of them writes."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from ddpn.experiments.runner import RESULT


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")
def test_two_processes_write_what_one_does(tmp_path):
    found = {}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for name, launch in (("one", []), ("two", launcher)):
        command = [sys.executable, *launch, "-m", "ddpn.cli", "reproduce", "misspecified-poisson", "--quick"]
        options = ["--only", "ddpn", "--device", "cpu", "--jobs", "1", "--out", str(tmp_path / name)]
        ended = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=300, check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("Tables and figures:") == 1
        path = tmp_path / name / "misspecified-poisson-quick" / "ddpn" / RESULT
        found[name] = json.loads(path.read_text())["scores"]["ours"]["ensemble"]
    assert found["two"]["crps"] == pytest.approx(found["one"]["crps"], rel=1e-4)
