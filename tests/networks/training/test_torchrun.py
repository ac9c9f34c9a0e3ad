"""Test two processes of torchrun: they have the weights of one process, also after one of them was killed."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

PROGRAM = str(Path(__file__).with_name("torchrun_program.py"))
TRAINING = str(Path(__file__).with_name("one_training.py"))
#: torchrun, after the imports of a training: the processes that it forks have them already.
TORCHRUN = f"""
import runpy
import accelerate, safetensors.torch
from torch.distributed.run import main
runpy.run_path({TRAINING!r})
main()
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]"),
]


def run_torchrun(folder, at):
    """Return the weights of each process, of an undisturbed training and of one that was killed."""
    options = ["--nproc_per_node", "2", "--max-restarts", "1", "--standalone", "--monitor-interval", "0.2"]
    # Four processes in all, forked from that of torchrun: each would import torch and ddpn.
    options += ["--start-method", "fork", "--run-path"]
    command = [sys.executable, "-c", TORCHRUN, *options, PROGRAM, str(folder), str(at)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert result.returncode == 0, result.stderr
    return [[load_file(folder / name / str(rank) / "weights") for rank in range(2)] for name in ("whole", "killed")]


def test_two_processes_have_the_weights_of_one_also_after_a_kill(tmp_path):
    program = runpy.run_path(TRAINING)
    program["run_training"](alone := program["make_network"]())
    # Seven uses of the network per epoch: the checkpoint of the second one is there when it is killed in the third.
    whole, killed = run_torchrun(tmp_path, at=18)
    for name, expected in alone.named_parameters():
        assert torch.equal(whole[0][name], whole[1][name]), "the processes have drifted apart"
        torch.testing.assert_close(whole[0][name], expected.detach(), rtol=0.0, atol=1e-6)
        assert torch.equal(killed[0][name], whole[0][name])
        assert torch.equal(killed[1][name], whole[0][name])
    # Process 0 alone writes checkpoints, so process 1 has one only if both resumed from it.
    assert (tmp_path / "killed" / "1" / "state").exists()
    assert not (tmp_path / "whole" / "1" / "state").exists()
