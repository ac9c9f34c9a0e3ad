"""`TableReader`: reads later tables as the one it was fitted to, for members that need columns and not an encoder."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from ddpn.features.kinds import as_fitted, kind_of
from ddpn.features.table import Column, read_table


class TableReader(BaseEstimator):
    """Knows the number, names and kinds of the columns, and checks those of every later table."""

    def fit(self, X: Any) -> list[Column]:
        """The columns of X, whose names and kinds are remembered."""
        table = read_table(self, X, reset=True)
        self.kinds_ = [kind_of(column) for column in table]
        return table

    def read(self, X: Any) -> list[Column]:
        """The columns of X in the order of fit."""
        table = read_table(self, X, reset=False)
        return [as_fitted(column, kind) for column, kind in zip(table, self.kinds_, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = getattr(self, "feature_names_in_", None)
        return {"names": None if names is None else list(map(str, names)), "kinds": self.kinds_}

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        reader = cls()
        reader.kinds_, reader.n_features_in_ = known["kinds"], len(known["kinds"])
        if known["names"] is not None:
            reader.feature_names_in_ = np.array(known["names"], dtype=object)
        return reader
