"""Test that packed rows are unpacked to the same inputs, and that networks train on them alike."""

import numpy as np
import pytest
import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.backbones.packed import InputPacking, UnpackingBackbone, holds_table_rows
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TrainingConfig, fit
from ddpn.rows.count_rows import CountRows

NUMBERS = [0, 4, 18]


def draw_inputs(rows, width=19, numbers=NUMBERS):
    rng = np.random.default_rng(0)
    inputs = (rng.random((rows, width)) < 0.5).astype(np.float32)
    inputs[:, numbers] = rng.normal(size=(rows, len(numbers)))
    return inputs


@pytest.mark.parametrize(("width", "numbers"), [(19, NUMBERS), (16, []), (3, [0, 1, 2]), (1, [0]), (8, [7])])
def test_inputs_are_unpacked_bit_for_bit(width, numbers):
    inputs, packing = draw_inputs(50, width, numbers), InputPacking(width, numbers)
    packed = packing.pack([inputs[:32], inputs[32:]], 50)
    assert packed.dtype == torch.uint8
    assert packed.shape[1] <= 4 * len(numbers) + width / 8 + 4
    assert torch.equal(packing(packed), torch.from_numpy(inputs))


def test_extreme_numbers_are_kept():
    inputs = np.array([[1e18, 1.0], [-1e-38, 0.0], [np.float32(1e-45), 1.0]], dtype=np.float32)
    packing = InputPacking(2, [0])
    assert packing(packing.pack([inputs], 3)).numpy().tobytes() == inputs.tobytes()


@pytest.mark.parametrize("rows", [(6,), (6, 2)])
def test_a_backbone_returns_what_it_returns_for_unpacked_rows(rows):
    backbone, packing = MLP(n_in=19, hidden=(8,), n_networks=2), InputPacking(19, NUMBERS)
    backbone.reset([torch.Generator().manual_seed(seed) for seed in (0, 1)])
    inputs = draw_inputs(int(np.prod(rows)))
    packed = packing.pack([inputs], len(inputs))
    expected = backbone(torch.from_numpy(inputs).view(*rows, -1))
    assert torch.equal(UnpackingBackbone(backbone, packing)(packed.view(*rows, -1)), expected)


def test_a_training_on_packed_rows_is_that_on_their_inputs():
    inputs, y = draw_inputs(300), torch.poisson(torch.full((300,), 3.0), generator=torch.Generator().manual_seed(0))
    packing, seeds, weights = InputPacking(19, NUMBERS), (0, 1), []
    for packs in (False, True):
        model = CountModel(MLP(n_in=19, hidden=(8,), n_networks=2), make_head("poisson"), 2)
        model.reset(seeds)
        trained = model.with_backbone(UnpackingBackbone(model.backbone, packing)) if packs else model
        X = packing.pack([inputs], 300) if packs else torch.from_numpy(inputs)
        sample = CountRows(X, y)
        rows = [sample.map(lambda t, part=part: t[part]) for part in (slice(200), slice(200, 300))]
        config = TrainingConfig(epochs=3, batch_size=32, seeds=seeds)
        history = fit(trained, *rows, config, runtime=Runtime("cpu"))
        weights.append((model.state_dict(), history.best_score))
    assert weights[0][1] == weights[1][1]
    assert all(torch.equal(tensor, weights[1][0][name]) for name, tensor in weights[0][0].items())


def test_rows_of_tables_are_told_from_other_inputs():
    assert holds_table_rows(torch.zeros(2, 3))
    assert holds_table_rows(torch.zeros(2, 3, dtype=torch.uint8))
    assert not holds_table_rows(torch.zeros(2, 3, dtype=torch.long))
    assert not holds_table_rows(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
