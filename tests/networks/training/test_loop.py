"""Test the training loop: networks as if each were alone, equal to plain torch; which steps are captured as a graph."""

import math
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from ddpn.metrics import crps
from ddpn.networks.backbones import MLP, NetworkList
from ddpn.networks.backbones.layers import Frozen
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import CountRows, Runtime, TrainingConfig, fit, loop
from ddpn.networks.training.captured_steps import CapturedSteps, can_capture
from ddpn.networks.training.config import WHOLE_BATCH
from ddpn.networks.training.loop import Training
from ddpn.runtime.deadlines import Clock, TimeLimitError

SEEDS = (5, 11, 2)
HEADS = {
    "exact": ("double_poisson", {}),
    "paper": ("double_poisson", {"objective": "paper", "beta": 0.5}),
    "faithful": ("faithful_gaussian", {}),
}
RECIPES = {
    "plain": {"ema": 0.0, "clip": None, "weight_decay": 0.0},
    "all of it": {"ema": 0.9, "clip": 0.5, "weight_decay": 0.3, "accumulate": 3},
}


# NetworkList ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recipe", "head"), [("plain", "exact"), ("all of it", "paper"), ("all of it", "faithful")])
def test_stacked_networks_equal_separate_runs(train, rows, head, recipe):
    # 34 rows in batches of 16: two rows are left over in every epoch.
    data, validation = rows(34, seed=1, weight=True, exposure=True), rows(20, seed=2, exposure=True)
    name, options = HEADS[head]
    settings = {"epochs": 4, "patience": 2, "head": name, "head_options": options} | RECIPES[recipe]
    together, history = train(data, validation, seeds=SEEDS[:2], **settings)
    for number, seed in enumerate(SEEDS[:2]):
        alone, its_history = train(data, validation, seeds=(seed,), **settings)
        torch.testing.assert_close(together[number], alone[0], rtol=0, atol=1e-6)
        assert history.best_epoch[number] == its_history.best_epoch[0]
        assert history.best_score[number] == pytest.approx(its_history.best_score[0], rel=1e-6)
        for record, its_record in zip(history.epochs, its_history.epochs, strict=False):
            assert record["loss"][number] == pytest.approx(its_record["loss"][0], rel=1e-5)


# Plain torch -----------------------------------------------------------------------------------------------------


def copy_to_torch(flat: Tensor) -> nn.Sequential:
    """Return the one network of an ensemble as torch has it: 3 -> 8 -> 6 -> 2."""
    layers: list[nn.Module] = []
    with torch.no_grad():
        for n_in, n_out in ((3, 8), (8, 6), (6, 2)):
            layer = nn.Linear(n_in, n_out)
            layer.weight.copy_(flat[: n_in * n_out].view(n_in, n_out).T)
            layer.bias.copy_(flat[n_in * n_out : (n_in + 1) * n_out])
            flat = flat[(n_in + 1) * n_out :]
            layers += [layer, nn.ReLU()]
    assert len(flat) == 0
    return nn.Sequential(*layers[:-1])


def flatten_network(network: nn.Sequential) -> Tensor:
    parts = [(layer.weight.T.reshape(-1), layer.bias) for layer in network if isinstance(layer, nn.Linear)]
    return torch.cat([t.detach() for pair in parts for t in pair])


def train_plainly(start: Tensor, data: CountRows, order: Tensor, config: TrainingConfig) -> Tensor:
    """Train as one would without this library."""
    network, head = copy_to_torch(start), make_head("double_poisson")
    named = list(network.named_parameters())
    groups = [
        {"params": [p for name, p in named if "weight" in name], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named if "bias" in name], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=config.lr)
    batches = order.split(config.batch_size)
    steps, warm = len(batches), math.ceil(config.warmup * len(batches))
    cosine = lambda step: 0.5 * (1.0 + math.cos(math.pi * (step - warm) / (steps - warm)))
    factor = lambda step: (step + 1) / (warm + 1) if step < warm else cosine(step)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    average = start.clone()
    for number, index in enumerate(batches, start=1):
        optimizer.zero_grad()
        head.loss(network(data.X[index]), data.y[index]).mean().backward()
        if config.clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        optimizer.step()
        schedule.step()
        keep = min(config.ema, (1 + number) / (10 + number))
        average = keep * average + (1.0 - keep) * flatten_network(network)
    return average


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_training_is_what_plain_torch_computes(train, rows, fresh, flat, recipe):
    data = rows(64)
    config = TrainingConfig(epochs=4, batch_size=16, lr=0.01, warmup=0.1, seeds=(4,), **RECIPES[recipe])
    model, start, seen = fresh((4,)), flat(fresh((4,)))[0], []
    compute = model.raw
    model.raw = lambda x: seen.append(x[:, 0]) or compute(x)
    got, _ = train(data, model=model, **config.as_dict() | {"seeds": (4,)})
    # Every row is known by its inputs.
    order = torch.cdist(torch.cat(seen), data.X).argmin(1)
    assert sorted(order.tolist()) == sorted(4 * list(range(64)))
    expected = train_plainly(start, data, order, config)
    assert (expected - start).abs().max() > 0.01, "nothing was learned, so nothing was compared"
    torch.testing.assert_close(got[0], expected, rtol=0, atol=1e-5)


# Batches, weights, exposures, precisions ----------------------------------------------------------------------------


def test_a_weight_of_two_equals_a_row_given_twice(train, rows):
    data = rows(20, exposure=True)
    twice = data.map(lambda t: torch.cat([t, t[3:5]]))
    weight = torch.ones(20)
    weight[3:5] = 2.0
    weighted = CountRows(data.X, data.y, weight / weight.mean(), data.exposure)
    plain, _ = train(data, batch_size=100, epochs=8)
    by_weight, weighted_history = train(weighted, batch_size=100, epochs=8)
    by_copies, copied_history = train(twice, batch_size=100, epochs=8)
    torch.testing.assert_close(by_weight, by_copies, rtol=0, atol=1e-5)
    assert (by_weight - plain).abs().max() > 1e-3
    assert weighted_history.epochs[-1]["loss"] == pytest.approx(copied_history.epochs[-1]["loss"], rel=1e-5)


def test_a_fit_with_exposure_is_that_of_the_shifted_intercept(train, rows, fresh):
    data, moved = rows(64), fresh((0,), "poisson")
    with torch.no_grad():
        moved.projection.bias -= math.log(2.0)
    settings = {"head": "poisson", "weight_decay": 0.0, "epochs": 5}
    plain, history = train(data, data, **settings)
    doubled = CountRows(data.X, data.y, None, torch.full((64,), 2.0))
    exposed, exposed_history = train(doubled, doubled, model=moved, **settings)
    # The bias of log mu is the last parameter of all.
    torch.testing.assert_close(exposed[:, :-1], plain[:, :-1], rtol=0, atol=1e-5)
    torch.testing.assert_close(exposed[:, -1] + math.log(2.0), plain[:, -1], rtol=0, atol=1e-5)
    assert exposed_history.best_score == pytest.approx(history.best_score, rel=1e-5)


def test_bf16_stays_close_to_float32(train, rows):
    data, validation = rows(256), rows(128, seed=4)
    settings = {"epochs": 5, "batch_size": 32, "lr": 0.03, "ema": 0.0}
    full, history = train(data, validation, **settings)
    half, half_history = train(data, validation, precision="bf16", **settings)
    assert not torch.equal(full, half)
    assert half.dtype == torch.float32
    first, last = half_history.epochs[0]["score"][0], half_history.best_score[0]
    assert last < first - 0.05, "nothing was learned"
    # bfloat16 has three digits.
    assert last == pytest.approx(history.best_score[0], abs=0.02)


# Progress, and the ends of a training ---------------------------------------------------------------------------------


def test_a_training_shows_its_progress(train, rows, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    monkeypatch.setenv("NO_COLOR", "1")
    lines = []
    options = {"verbose": True, "title": "Networks", "on_epoch": lines.append}
    _, history = train(rows(32), rows(10), epochs=3, fit_options=options)
    shown = capsys.readouterr().err
    last = history.epochs[-1]["score"][0]
    assert "Networks" in shown
    assert "3/3" in shown, "the bar ends before the training does"
    assert f"validation nll {last:.4f}" in shown
    assert lines[-1] == f"epoch 3 of 3, validation nll {last:.4f}"


@pytest.mark.parametrize("score", ["loss", "crps"])
def test_the_score_chooses_the_epoch(train, fresh, rows, score):
    """`after_epoch` sees the weights of every epoch; their mean scores have their minimum at the best epoch."""
    validation, model = rows(20, seed=2), fresh((3, 8), head="double_poisson", objective="paper", beta=1.0)
    means = []

    @torch.no_grad()
    def after_epoch(epoch):
        raw = model.raw(validation.X)
        per_row = model.head.loss(raw, validation.y[:, None])
        means.append((crps(model.head(raw), validation.y[:, None]) if score == "crps" else per_row).mean(0).tolist())
        assert len(means) == epoch

    settings = {"epochs": 6, "score": score, "ema": 0.5, "lr": 0.05, "seeds": (3, 8)}
    _, history = train(rows(48), validation, model=model, fit_options={"after_epoch": after_epoch}, **settings)
    for number, column in enumerate(zip(*means, strict=True)):
        assert history.best_score[number] == pytest.approx(min(column), rel=1e-5)
        assert history.best_epoch[number] == 1 + column.index(min(column))


STEADY = {"seeds": (3, 8), "schedule": "constant", "warmup": 0.0}


@pytest.fixture
def train_with_interrupt(train, fresh, use_counter):
    """Train on 48 rows, three steps an epoch, with Ctrl-C in the eighth use of the network."""

    def run(data, **options):
        use_counter(model := fresh(STEADY["seeds"]), interrupt_at=8)
        return train(data, model=model, fit_options=options, **STEADY)

    return run


def test_without_validation_the_last_complete_epoch_is_kept(train_with_interrupt, train, rows):
    got, history = train_with_interrupt(rows(48))
    expected, whole = train(rows(48), epochs=2, **STEADY)
    assert torch.equal(got, expected)
    assert (history.interrupted, history.stopped, history.best_epoch) == (True, "interrupted", [2, 2])
    assert len(history.epochs) == 2
    assert not whole.interrupted


def test_a_second_interrupt_while_the_first_is_handled_is_raised(train_with_interrupt, rows, monkeypatch, tmp_path):
    def again(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write", again)
    with pytest.raises(KeyboardInterrupt):
        train_with_interrupt(rows(48), checkpoint=tmp_path / "state")


def test_a_training_ends_with_its_time(train, rows):
    _, history = train(rows(43), epochs=100_000, fit_options={"clock": Clock(0.5)})
    assert history.stopped == "the time was up"
    assert 0 < len(history.epochs) < 100_000
    assert not history.interrupted
    assert history.epochs[-1]["lr"] < 0.2 * 1e-2
    with pytest.raises(TimeLimitError):
        train(rows(43), fit_options={"clock": Clock(0.0)})


# Settings of torch by the user: gradient mode, inference mode, dtype ------------------------------------------------


@contextmanager
def use_float64_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SETTINGS = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "float64": use_float64_by_default}


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS.keys())
def torch_setting(request) -> AbstractContextManager[None]:
    return request.param()


def train_small_model() -> CountModel:
    x = torch.linspace(-1.0, 1.0, 24, dtype=torch.float32).reshape(12, 2)
    model = CountModel(MLP(n_in=2, hidden=(4,), n_networks=2), make_head("double_poisson"), 2)
    model.reset(seeds=(0, 1))
    fit(model, CountRows(x, torch.arange(12)), CountRows(x, torch.arange(12)), TrainingConfig(epochs=2, seeds=(0, 1)))
    return model


def test_a_model_that_was_built_under_the_setting_is_trained_in_float32(torch_setting):
    with torch_setting:
        state = train_small_model().state_dict()
    for name, expected in train_small_model().state_dict().items():
        assert state[name].dtype == torch.float32
        assert torch.equal(state[name], expected), name


# Which steps are captured as a graph, and what happens where that fails; replaying one takes a GPU --------------------


class Plain(nn.Linear):
    capturable = True


def test_networks_are_captured_on_one_gpu_if_all_of_them_say_so(training_to_capture):
    gpu = SimpleNamespace(device=torch.device("cuda"), shard=WHOLE_BATCH)
    frozen, other = Frozen(nn.Linear(2, 2), row_axes=1), NetworkList(lambda: nn.Linear(2, 2), 2)
    for model, expected in (
        (training_to_capture.model, True),
        (nn.Linear(2, 2), True),
        (frozen, False),
        (other, False),
    ):
        assert can_capture(model, training_to_capture.batches, gpu) is expected
    assert training_to_capture._captured is None, "nothing is captured on a CPU"
    training_to_capture.model.backbone[1].capturable = False
    assert not can_capture(training_to_capture.model, training_to_capture.batches, gpu)


@pytest.fixture
def training_to_capture():
    networks = NetworkList(lambda: Plain(3, 4), 2)
    networks.output_dim = 4
    model = CountModel(networks, make_head("poisson"), 2)
    model.reset((0, 1))
    config = TrainingConfig(epochs=2, batch_size=4, lr=0.01, seeds=(0, 1))
    return Training(model, CountRows(torch.ones(8, 3), torch.ones(8)), None, config, Runtime("cpu"))


def test_a_capture_that_fails_warns_and_steps_run_one_by_one(training_to_capture, monkeypatch):
    def fails(self):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(CapturedSteps, "_capture", fails)
    training_to_capture._captured = CapturedSteps(
        training_to_capture.train_step, training_to_capture.state, training_to_capture.batches
    )
    with pytest.warns(RuntimeWarning, match="not captured as a CUDA graph: operation not .* capturing$"):
        training_to_capture.run_epoch()
    assert training_to_capture._captured is None
    assert training_to_capture.state.step == 2
    training_to_capture.run_epoch()
    assert training_to_capture.state.step == 4
