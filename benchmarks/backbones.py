"""Time the training of large networks with their heads, a step at a time.

    python benchmarks/backbones.py --device cuda --out benchmarks/results

ViT-B/16 from a configuration with random weights, all of it trained, 224 x 224 images in batches of 256, bf16, one
member with the paper's perceptron and a Double Poisson head: images a second over whole steps (forward, backward,
AdamW). The last block of a DistilBERT over features that its frozen trunk gave, five members, texts of 128 tokens.
On a GPU the same
steps once more as a graph that was captured, as `fit` does them. On a CPU both are small ones that show that the
command works. Writes backbones_<device>.json and .md.
"""

import time
from collections.abc import Callable
from typing import Any

import recording
import torch

from ddpn.backbones import Text, ViT
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.training import Runtime, TrainingConfig
from ddpn.training.capture import CapturedSteps, can_capture
from ddpn.training.loop import Training

#: Images a second that the project asks for, on one H200.
ASKED = 2000.0
WARM_UP, STEPS = 3, 20
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
SMALL_TEXT = {"dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 96}


def steps_of(model: CountModel, rows: Sample, batch: int, device: str) -> dict:
    """Rows a second and milliseconds a step: whole updates of every member, after a few to warm up."""
    seeds = tuple(range(model.members))
    model.reset(seeds)
    config = TrainingConfig(batch_size=batch, precision="bf16", ema=0.0, seeds=seeds)
    training = Training(model.to(device), rows, None, config, Runtime(device, "bf16"))
    training.model.train()
    batches = [part for _ in range(WARM_UP + STEPS) for part in training.batches.epoch(training.state.streams)]
    for part in batches[:WARM_UP]:
        training.train_step(part)
    taken = seconds(device, lambda: [training.train_step(part) for part in batches[WARM_UP : WARM_UP + STEPS]]) / STEPS
    found = {"rate": batch / taken, "batch": batch, "ms_a_step": 1e3 * taken}
    if not can_capture(training.model, training.runtime):
        return found
    captured = CapturedSteps(training.train_step, training.state, training.batches)
    if not captured.is_ready():
        return found
    # An epoch is one batch here.
    taken = seconds(device, lambda: [captured.epoch() for _ in range(STEPS)]) / STEPS
    return found | {"captured_rate": batch / taken, "captured_ms_a_step": 1e3 * taken}


def seconds(device: str, work: Callable[[], Any]) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def images(device: str) -> dict:
    batch, size, config = (256, 224, {}) if device == "cuda" else (4, 32, {**SMALL, "image_size": 32})
    network = ViT(config={"model_type": "vit", **config})
    model = CountModel(network, make_head("double_poisson"), 1)
    rows = Sample(torch.randint(256, (batch, 3, size, size), dtype=torch.uint8), torch.ones(batch))
    found = {"what": "ViT, images a second"} | steps_of(model, rows, batch, device)
    return found | ({"asked": ASKED} if device == "cuda" else {})


def texts(device: str) -> dict:
    batch, length, config = (256, 128, {}) if device == "cuda" else (4, 16, SMALL_TEXT)
    network = Text(config={"model_type": "distilbert", "vocab_size": 28996, **config}, members=5)
    trunk = network.trunk.to(device)
    with torch.no_grad():
        x = trunk(torch.randint(1, 28996, (batch, length), device=device))
    model = CountModel(network.tail, make_head("double_poisson"), 5)
    what = "last block of DistilBERT, texts a second and member"
    return {"what": what} | steps_of(model, Sample(x.to("cpu"), torch.ones(batch)), batch, device)


def main() -> None:
    args = recording.parser(__doc__).parse_args()
    recording.record("backbones", args, lambda device: [images(device), texts(device)], {})


if __name__ == "__main__":
    main()
