"""Results that distributions keep until a parameter changes in place."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def versions(tensors: Iterable[Tensor]) -> Any:
    """What an in-place change of a tensor changes; tensors of inference mode do not count their changes.

    Within transforms and compiled code, whose tensors have no memory of their own, it equals nothing else.
    """
    if torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
        return object()
    return tuple((tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors)


class kept:  # noqa: N801  # a decorator, like cached_property
    """As `functools.cached_property`, of a distribution: computed again once one of its `_leaves()` has changed."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_kept{name}"

    def __get__(self, dist: Any, owner: type | None = None) -> Any:
        if dist is None:
            return self
        now = versions(dist._leaves())
        known = vars(dist).get(self._name)
        if known is None or known[0] != now:
            known = vars(dist)[self._name] = (now, self._compute(dist))
        return known[1]
