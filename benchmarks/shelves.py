"""How hard simulated shelves are: what little knowledge gives, and what no camera sees.

    python benchmarks/shelves.py --out benchmarks/results

20,000 beams as in the experiment `shelves`, its split, absolute error of the median and CRPS on the test beams of
- one Double Poisson for all beams;
- an ensemble that knows the class of the product and how deep the visible points reach;
- an ensemble that knows what no camera tells better: the product's exact size, where the camera is, how many products
  stand up to the last one of which a ray meets a point, and where that one stands. What it cannot know is what is
  hidden behind, so this is about the error that remains for a perfect reader of the points.
Writes shelves_cpu.json and .md.
"""

import numpy as np
import recording
import torch

from ddpn import DDPNRegressor
from ddpn.datasets import split
from ddpn.datasets.depth_camera import Camera
from ddpn.datasets.shelves import render, simulate_chunks
from ddpn.datasets.splits import LARGE_SHARES, SEED
from ddpn.distributions import DoublePoisson
from ddpn.heads import make_head
from ddpn.metrics import absolute_error, crps

BEAMS = 20_000


def known(camera: Camera) -> dict[str, np.ndarray]:
    """Of every beam its count, class and depth extent, and what a perfect reader would know."""
    rows = []
    for scenes, clouds in simulate_chunks(BEAMS, SEED, camera):
        deep = np.array([np.ptp(points[:, 2]) if len(points) else 0.0 for points in clouds])
        _, _, which = render(scenes, camera)
        last = which.max(1)
        place = scenes.z[np.arange(len(last)), last]
        exact = [scenes.width, scenes.depth, scenes.height, scenes.slot, scenes.opening, *scenes.eye.T, last + 1, place]
        rows.append((scenes.count, scenes.geometry, deep, np.stack(exact, axis=1)))
    columns = zip(*rows, strict=True)
    return {name: np.concatenate(part) for name, part in zip(("y", "class", "deep", "exact"), columns, strict=True)}


def scored(law, y: np.ndarray) -> dict[str, float]:
    counts = torch.from_numpy(y).double()
    mae = absolute_error(law, counts, statistic="median").mean().item()
    return {"mae": round(mae, 3), "crps": round(crps(law, counts).mean().item(), 3)}


def measured(device: str) -> list[dict]:
    found, parts = known(Camera()), split(BEAMS, SEED, LARGE_SHARES)
    y, kind = found["y"], np.eye(4)[found["class"]]
    train, test = np.concatenate([parts.train, parts.validation]), parts.test
    mu, gamma = make_head("double_poisson").start(torch.from_numpy(y[train]).double()).exp()
    constant = DoublePoisson(mu, gamma).expand((len(test),))
    results = [{"what": "one law for all beams"} | scored(constant, y[test])]
    for what, columns in (("class and depth extent", [found["deep"]]), ("a perfect reader", list(found["exact"].T))):
        x = np.column_stack([kind, *columns])
        model = DDPNRegressor(random_state=0, device=device).fit(x[train], y[train])
        results.append({"what": what} | scored(model.predict_distribution(x[test]), y[test]))
    return results


if __name__ == "__main__":
    args = recording.parser(__doc__).parse_args()
    args.device = args.device or "cpu"
    recording.record("shelves", args, measured, {})
