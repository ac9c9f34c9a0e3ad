"""Arguments that are dictionaries of options, with scikit-learn's nested keys: `training_options__lr`."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator


class NestedOptions(BaseEstimator):
    """An estimator some of whose arguments are dictionaries; `set_params` and grid search reach into them."""

    _nested: ClassVar[tuple[str, ...]] = ("head_options", "training_options")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments; with `deep`, also each option that is set, as `argument__option`."""
        params = super().get_params(deep=False)
        if deep:
            for name in self._nested:
                params |= {f"{name}__{key}": value for key, value in _options(params[name]).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set arguments, and single options by `argument__option`."""
        whole = {name: value for name, value in params.items() if name.partition("__")[0] not in self._nested}
        super().set_params(**whole)
        # Whole dictionaries first, so that single options of the same call are added to them.
        for name in sorted(set(params) - set(whole), key=lambda name: "__" in name):
            argument, _, option = name.partition("__")
            given = {**_options(getattr(self, argument)), option: params[name]} if option else params[name]
            setattr(self, argument, given)
        return self


def _options(value: Any) -> Mapping[str, Any]:
    """The options, none where `value` is no dictionary: `fit` reports that, as scikit-learn wants it."""
    return value if isinstance(value, Mapping) else {}
