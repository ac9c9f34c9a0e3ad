"""`TableReader`: reads later tables as the one it was fitted to, for members that need columns and not an encoder."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from ddpn.tables.encoding.table import Column, kind_of, read_as_fitted, read_table


class TableReader(BaseEstimator):
    """Knows the number, names and kinds of the columns, and checks those of every later table."""

    def fit(self, X: Any, estimator: type[BaseEstimator] | None = None) -> list[Column]:
        """The columns of X, whose names and kinds are remembered; messages name the `estimator`, if given."""
        reader = self if estimator is None else estimator()
        table = read_table(reader, X, reset=True)
        self.__dict__.update({name: value for name, value in vars(reader).items() if name.endswith("_in_")})
        self.kinds_ = [kind_of(column) for column in table]
        return table

    def read(self, X: Any) -> list[Column]:
        """The columns of X in the order of fit."""
        return read_as_fitted(self, X)

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
