"""Train what a test starts by torchrun: two trainings shared by two processes, one of which is killed in the second.

Arguments: the folder for the results, and the number of the use of the network at which process 1 kills itself. Every
process has a folder of its own for each training and its checkpoint, as on machines that share none.
"""

import os
import runpy
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def run_training(folder: Path, at: int) -> None:
    """Run a training that has not ended in an earlier start of this process."""
    program = runpy.run_path(str(Path(__file__).with_name("one_training.py")))
    rank = int(os.environ.get("RANK", "0"))
    process_folder = folder / str(rank)
    if (process_folder / "weights").exists():
        return
    is_first_start = not (process_folder / "started").exists()
    process_folder.mkdir(parents=True, exist_ok=True)
    (process_folder / "started").touch()
    model = program["make_network"]()
    if at and rank == 1 and is_first_start:
        model = program["make_self_ending"](model, signal.SIGKILL, at)
    program["run_training"](model, process_folder / "state")
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, process_folder / "weights")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_training(Path(sys.argv[1]) / "whole", at=0)
    run_training(Path(sys.argv[1]) / "killed", at=int(sys.argv[2]))
