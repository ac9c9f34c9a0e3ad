"""AutoAugment by kornia."""

import sys

import pytest
import torch

from ddpn.paper.inputs.images import auto_augment, make_auto_augment
from ddpn.runtime.errors import ConfigError, InputError

IMAGES = torch.arange(2 * 3 * 16 * 16).reshape(2, 3, 16, 16).remainder(256).to(torch.uint8)


def test_kornia_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia.augmentation.auto", None)
    with pytest.raises(ConfigError, match=r"ddpn\[images\] is not installed"):
        make_auto_augment()


def test_changes_are_drawn_from_the_generator_of_torch():
    pytest.importorskip("kornia")
    change = make_auto_augment()
    torch.manual_seed(1)
    first = [change(IMAGES) for _ in range(8)]
    assert {(p.dtype, p.shape) for p in first} == {(torch.uint8, IMAGES.shape)}
    assert len({p.numpy().tobytes() for p in first}) > 2
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
