"""AutoAugment by the library that is installed; a stub stands in for the other one."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from ddpn.paper.inputs import images
from ddpn.paper.inputs.images import augmentation_library, auto_augment, make_auto_augment
from ddpn.runtime.errors import ConfigError, InputError

IMAGES = torch.arange(2 * 3 * 16 * 16).reshape(2, 3, 16, 16).remainder(256).to(torch.uint8)


@pytest.mark.parametrize(("there", "chosen"), [(("torchvision", "kornia"), "torchvision"), (("kornia",), "kornia")])
def test_torchvision_comes_first(monkeypatch, there, chosen):
    monkeypatch.setattr(images, "find_spec", lambda name: SimpleNamespace() if name in there else None)
    assert augmentation_library() == chosen


def test_neither_is_there(monkeypatch):
    monkeypatch.setattr(images, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"ddpn\[images\] is not installed"):
        augmentation_library()


def test_by_kornia():
    pytest.importorskip("kornia")
    change = make_auto_augment("kornia")
    torch.manual_seed(1)
    first = [change(IMAGES) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, IMAGES.shape)}
    assert len({p.numpy().tobytes() for p in first}) > 2
    torch.manual_seed(1)
    assert all(torch.equal(change(IMAGES), p) for p in first)


def test_by_torchvision(monkeypatch):
    if importlib.util.find_spec("torchvision") is None:
        v2 = ModuleType("torchvision.transforms.v2")
        v2.AutoAugmentPolicy = SimpleNamespace(IMAGENET="imagenet")
        v2.AutoAugment = lambda policy: lambda x: x.flip(torch.randint(2, ()).item()) if policy == "imagenet" else None
        for name in ("torchvision", "torchvision.transforms"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, v2.__name__, v2)
    change = make_auto_augment("torchvision")
    torch.manual_seed(1)
    first = [change(IMAGES) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, IMAGES.shape)}
    torch.manual_seed(1)
    assert all(torch.equal(change(IMAGES), p) for p in first)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (IMAGES / 255, r"torch\.float32 of shape \(2, 3, 16, 16\)"),
        (IMAGES[:, :1], r"torch\.uint8 of shape \(2, 1, 16, 16\)"),
        (IMAGES[0], r"torch\.uint8 of shape \(3, 16, 16\)"),
        (IMAGES.numpy(), "ndarray"),
        (None, "NoneType"),
    ],
)
def test_invalid_images(images, words):
    with pytest.raises(InputError, match=rf"^images must be a uint8 tensor \(N, 3, height, width\), got {words}"):
        auto_augment(images)


def test_images_are_changed_in_groups_and_keep_their_places():
    pytest.importorskip("kornia")
    images = torch.stack([torch.full((3, 8, 8), 5 * n, dtype=torch.uint8) for n in range(40)])
    images[:, :, 2:6, 2:6] += 40
    torch.manual_seed(3)
    first = auto_augment(images)
    assert (first.dtype, first.shape) == (torch.uint8, images.shape)
    changed = (first != images).flatten(1).any(1)
    assert 0.3 < changed.float().mean() < 1.0
    # One that was not changed is still in its own place, and few are changed alike.
    assert torch.equal(first[~changed], images[~changed])
    assert not torch.equal(auto_augment(images), first)
    torch.manual_seed(3)
    assert torch.equal(auto_augment(images), first)
