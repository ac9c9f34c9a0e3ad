"""`BoostedCountRegressor`: boosted trees that predict a whole distribution, with scikit-learn's interface."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from ddpn.estimators.count_estimator import CountEstimator
from ddpn.estimators.estimator import merge_equal_rows, needs_exposure
from ddpn.members.member import NotApplicableError
from ddpn.members.trees.member import Trees, check_monotone
from ddpn.networks.heads import make_head
from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_integer, check_number, is_number

AUTO = "auto"
#: Up to so many rows, equal ones become one: a weight and repeated rows are then the same to the last bit.
_MERGED = 1000


@dataclass(kw_only=True, eq=False, repr=False)
class BoostedCountRegressor(CountEstimator):
    """Predict counts with boosted trees, a whole distribution per row: fast, and strong on tables.

    Numbers, categories and missing values are split as they are. LightGBM boosts the mean; out-of-fold predictions say
    whether a Negative Binomial or a Double Poisson fits, and teach its dispersion. For counts with bounds and for
    censored counts use `CountRegressor`.

    Parameters
    ----------
    n_estimators : int
        Rounds of boosting at most; out-of-fold predictions choose how many are used.
    learning_rate : float or "auto"
        How much of each tree is added; "auto" is 0.05 below 5,000 rows, else 0.1.
    max_leaves : int or "auto"
        Leaves per tree; "auto" chooses by out-of-fold predictions.
    monotone : dict, optional
        Columns of numbers in which the mean must not fall (1) or must not rise (-1): {"age": 1}. Columns without names
        are called x0, x1, ...
    fractional : {"error", "round"}
        What to do where y is not an integer.
    random_state : int, RandomState or None
        Seed of folds and trees.

    Attributes
    ----------
    predictor_ : Predictor
        The fitted member with its calibration.
    feature_kinds_ : list of str
        The kind of every column: "number", "flag" or "category".
    member_ : Member
        The fitted trees: `facts()` has the likelihood, leaves and rounds.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = rng.poisson(np.exp(1 + X[:, 0]))
    >>> model = BoostedCountRegressor(random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0, 0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0, 0.0]])[0] <= high[0])
    True
    """

    n_estimators: int = 1500
    learning_rate: float | str = AUTO
    max_leaves: int | str = AUTO
    monotone: Mapping[str, int] | None = None
    fractional: str = "error"
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> Self:
        """Boost the trees.

        Parameters
        ----------
        X : array-like or data frame
            One row per count. Columns may hold numbers, text, booleans and missing values.
        y : array-like
            The counts, 2 or more, of which some are above 0.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure : array-like, optional
            The known scale of each row, which multiplies its predicted location. Pass it to the predictions too.

        Returns
        -------
        self

        Notes
        -----
        A fit that is interrupted or fails leaves the estimator as it was.
        """
        self._check_arguments()
        sample, counts = self._rows(make_head("double_poisson"), X, y, sample_weight, exposure)
        reader, table = self._columns(sample, counts, None)
        train = sample
        if sample.is_used.sum() <= _MERGED:
            # Missing values are equal, and differ from all others.
            largest = np.finfo(np.float64).max
            columns = [np.nan_to_num(column.values.astype(np.float64), nan=largest) for column in table]
            train = merge_equal_rows(sample, np.column_stack(columns))
        member = Trees(
            leaves=None if self.max_leaves == AUTO else (int(self.max_leaves),),
            rate=None if self.learning_rate == AUTO else float(self.learning_rate),
            rounds=int(self.n_estimators),
            monotone=self.monotone,
        )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1_000_000))
        try:
            member.fit(train, None, seed)
        except NotApplicableError as error:
            # scikit-learn's checks look for the last words.
            rows = int(sample.is_used.sum())
            raise InputError(
                f"y must hold counts that trees can be boosted from: {error}, got {rows} sample(s)."
            ) from None
        predictor = Predictor({"trees": member}, None, needs_exposure(sample, counts), counts=counts)
        self._set_fitted(reader, predictor, train)
        return self

    def _check_arguments(self) -> None:
        check_integer("n_estimators", self.n_estimators, 1)
        if self.learning_rate != AUTO:
            in_range = is_number(self.learning_rate) and 0.0 < self.learning_rate <= 1.0
            check_number("learning_rate", self.learning_rate, '"auto" or a number in (0, 1]', in_range)
        if self.max_leaves != AUTO:
            check_integer("max_leaves", self.max_leaves, 2)
        check_monotone(self.monotone)

    @property
    def member_(self) -> Trees:
        """The fitted trees."""
        (member,) = self._fitted.members.values()
        assert isinstance(member, Trees)
        return member
