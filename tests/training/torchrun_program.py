"""What a test starts by torchrun: a training that is shared by two processes, one of which may be killed.

Arguments: the folder for the results, and the number of the use of the network at which process 1 kills itself, or 0.
Every process has a folder of its own for its checkpoint, as on machines that share none.
"""

import os
import runpy
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def main(folder: Path, at: int) -> None:
    torch.set_num_threads(1)
    program = runpy.run_path(str(Path(__file__).with_name("one_training.py")))
    rank = int(os.environ.get("RANK", "0"))
    own = folder / str(rank)
    is_first_start = not (own / "started").exists()
    own.mkdir(parents=True, exist_ok=True)
    (own / "started").touch()
    model = program["network"]()
    if at and rank == 1 and is_first_start:
        model = program["ending_itself"](model, signal.SIGKILL, at)
    program["trained"](model, own / "state")
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, own / "weights")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
