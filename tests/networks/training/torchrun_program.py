"""What a test starts by torchrun: two trainings that are shared by two processes, one of which is killed in the second.

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


def train(folder: Path, at: int) -> None:
    """A training that has not ended in an earlier start of this process."""
    program = runpy.run_path(str(Path(__file__).with_name("one_training.py")))
    rank = int(os.environ.get("RANK", "0"))
    own = folder / str(rank)
    if (own / "weights").exists():
        return
    is_first_start = not (own / "started").exists()
    own.mkdir(parents=True, exist_ok=True)
    (own / "started").touch()
    model = program["network"]()
    if at and rank == 1 and is_first_start:
        model = program["ending_itself"](model, signal.SIGKILL, at)
    program["trained"](model, own / "state")
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, own / "weights")


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(Path(sys.argv[1]) / "whole", at=0)
    train(Path(sys.argv[1]) / "killed", at=int(sys.argv[2]))
