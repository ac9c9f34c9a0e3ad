"""AutoAugment by whichever library is there; the one that is not is stood in for."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from ddpn.data import augmentation
from ddpn.data.augmentation import augmenter, auto_augment
from ddpn.errors import ConfigError

PICTURE = torch.arange(3 * 16 * 16).reshape(3, 16, 16).remainder(256).to(torch.uint8)


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
    first = [change(PICTURE) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, PICTURE.shape)}
    assert len({p.numpy().tobytes() for p in first}) > 2
    torch.manual_seed(1)
    assert all(torch.equal(change(PICTURE), p) for p in first)


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
    first = [change(PICTURE) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, PICTURE.shape)}
    torch.manual_seed(1)
    assert all(torch.equal(change(PICTURE), p) for p in first)
