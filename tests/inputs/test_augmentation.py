"""AutoAugment by whichever library is there; the one that is not is stood in for."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from ddpn.errors import ConfigError, InputError
from ddpn.inputs import augmentation
from ddpn.inputs.augmentation import augmenter, auto_augment, auto_augmented

PICTURES = torch.arange(2 * 3 * 16 * 16).reshape(2, 3, 16, 16).remainder(256).to(torch.uint8)


@pytest.mark.parametrize(("there", "chosen"), [(("torchvision", "kornia"), "torchvision"), (("kornia",), "kornia")])
def test_torchvision_comes_first(monkeypatch, there, chosen):
    monkeypatch.setattr(augmentation, "find_spec", lambda name: SimpleNamespace() if name in there else None)
    assert augmenter() == chosen


def test_neither_is_there(monkeypatch):
    monkeypatch.setattr(augmentation, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'torchvision or kornia must be installed .* pip install "ddpn\[images\]"'):
        augmenter()


def test_by_kornia():
    pytest.importorskip("kornia")
    change = auto_augment("kornia")
    torch.manual_seed(1)
    first = [change(PICTURES) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, PICTURES.shape)}
    assert len({p.numpy().tobytes() for p in first}) > 2
    torch.manual_seed(1)
    assert all(torch.equal(change(PICTURES), p) for p in first)


def test_by_torchvision(monkeypatch):
    if importlib.util.find_spec("torchvision") is None:
        v2 = ModuleType("torchvision.transforms.v2")
        v2.AutoAugmentPolicy = SimpleNamespace(IMAGENET="imagenet")
        v2.AutoAugment = lambda policy: lambda x: x.flip(torch.randint(2, ()).item()) if policy == "imagenet" else None
        for name in ("torchvision", "torchvision.transforms"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, v2.__name__, v2)
    change = auto_augment("torchvision")
    torch.manual_seed(1)
    first = [change(PICTURES) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, PICTURES.shape)}
    torch.manual_seed(1)
    assert all(torch.equal(change(PICTURES), p) for p in first)


@pytest.mark.parametrize(
    ("pictures", "what"),
    [
        (PICTURES / 255, r"torch\.float32 of shape \(2, 3, 16, 16\)"),
        (PICTURES[:, :1], r"torch\.uint8 of shape \(2, 1, 16, 16\)"),
        (PICTURES[0], r"torch\.uint8 of shape \(3, 16, 16\)"),
        (PICTURES.numpy(), "ndarray"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_tensor_of_pictures(pictures, what):
    sentence = rf"^pictures must be a tensor of uint8 \(N, 3, height, width\), got {what}\. Make them with in_memory\.$"
    with pytest.raises(InputError, match=sentence):
        auto_augmented(pictures)


def test_many_pictures_are_changed_each_its_own_way_and_stay_where_they_are():
    pytest.importorskip("kornia")
    pictures = torch.stack([torch.full((3, 8, 8), 5 * n, dtype=torch.uint8) for n in range(40)])
    pictures[:, :, 2:6, 2:6] += 40
    torch.manual_seed(3)
    first = auto_augmented(pictures)
    assert (first.dtype, first.shape) == (torch.uint8, pictures.shape)
    changed = (first != pictures).flatten(1).any(1)
    assert 0.3 < changed.float().mean() < 1.0
    # One that was not changed is still in its own place, and few are changed alike.
    assert torch.equal(first[~changed], pictures[~changed])
    assert not torch.equal(auto_augmented(pictures), first)
    torch.manual_seed(3)
    assert torch.equal(auto_augmented(pictures), first)
