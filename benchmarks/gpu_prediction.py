"""Time predictions of the default networks on a GPU: the bare forward pass against full predictions.

    python benchmarks/gpu_prediction.py --out benchmarks/results          (needs a GPU)

The model is that of `prediction.py`: five networks, each a mixture of two Double Poissons and a Negative Binomial.
Encoded inputs start in host memory and results end there: mean, median, 90% interval and both parts of the variance.
"Bare" is the float32 forward pass of the same rows, with its inputs and outputs copied alike. Wall seconds, the best of
three. Writes gpu_prediction_cuda.json and .md.
"""

import time
from collections.abc import Callable

import recording
import torch
from prediction import table
from torch import Tensor

from ddpn import DDPNRegressor

ROWS, BLOCK = 1_000_000, 2**18
#: The sizes of a run that only shows that the command works.
FEW_ROWS = 1000
#: Rows per second of full predictions that the project asks for.
ASKED = 2e6


def seconds(call: Callable[[], object], device: str, repeat: int = 3) -> float:
    call()
    best = float("inf")
    for _ in range(repeat):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


def measured(device: str, rows: int = ROWS) -> list[dict]:
    """Rows per second of bare and full predictions, and what each step of the latter takes."""
    few = min(rows, 2000)
    frame, y = table(max(few, 1000))
    model = DDPNRegressor(members=5, epochs=1, random_state=0, device="cpu").fit(frame.head(few), y[:few])
    member = model.predictor_.members["networks"]
    encoded = torch.from_numpy(member.encoder.transform(frame)).float()
    inputs = encoded.repeat(-(-rows // len(encoded)), 1)[:rows].contiguous()
    networks = member.model.float().to(device)
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64, device=device)

    def bare(x: Tensor) -> list[Tensor]:
        return [networks.raw(x.to(device))]

    def full(x: Tensor) -> list[Tensor]:
        dist = networks.mixture(x.to(device))
        return [dist.mean, dist.aleatoric, dist.epistemic, dist.summary(levels).quantiles]

    def run(what: Callable[[Tensor], list[Tensor]]) -> None:
        for part in inputs.split(BLOCK):
            for result in what(part):
                result.cpu()

    with torch.no_grad():
        took = {what.__name__: seconds(lambda what=what: run(what), device) for what in (bare, full)}
    each = [{"what": name, "rows": rows, "rows/s": rows / value} for name, value in took.items()]
    each[1] |= {"asked rows/s": ASKED, "full / bare": took["bare"] / took["full"]}
    return each


def main() -> None:
    args = recording.parser(__doc__).parse_args()
    recording.record("gpu_prediction", args, measured, {})


if __name__ == "__main__":
    main()
