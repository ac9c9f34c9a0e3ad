"""What is done with a fitted estimator and given rows: calibration, leaderboard, verdict, report, explanations."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ddpn.analysis.leaderboard import Leaderboard, Verdict
from ddpn.analysis.leaderboard import leaderboard as leaderboard_of
from ddpn.calibration.calibrate import HeldOut
from ddpn.calibration.intervals import with_labels
from ddpn.calibration.recalibration import PRIOR_ROWS
from ddpn.estimators.estimator import Estimator
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_number, is_integer, is_number
from ddpn.sample import check_groups

if TYPE_CHECKING:
    from ddpn.analysis.explanations import Contributions, Effects, Importances


class CountEstimator(Estimator):
    """An estimator that can be calibrated, is compared with its members, and explains what the columns do."""

    # Calibration ------------------------------------------------------------------------------------------------

    def fit_intervals(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        prior_rows: float = 0.0,
        groups: Any = None,
        group_rows: float = 50.0,
        upper: Any = None,
        censored: Any = None,
    ) -> Self:
        """Calibrate intervals with rows that `fit` was not trained on.

        `predict_interval` then takes each row's central interval at the level that covers what is asked. That holds for
        all rows together: where few counts have all the mass, some intervals cover more and some less.

        Parameters
        ----------
        X, y, exposure, upper, censored
            Calibration rows, as for `score`.
        sample_weight : array-like, optional
            How many times each row counts, or the density of new rows over that of these rows: intervals then cover
            what is asked on rows like the new ones.
        prior_rows : float
            Shrinks the level towards that of the predicted distributions themselves, which count as so many rows.
            Useful where calibration rows are few; coverage is exact with 0.
        groups : str or array-like, optional
            Makes intervals cover what is asked within each group, too: the name of a column of X, or a label per row.
        group_rows : float
            Shrinks the level of each group towards that of all rows, which count as so many rows more.

        Returns
        -------
        self

        Examples
        --------
        >>> from ddpn import DDPNRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (2300, 1))
        >>> y = rng.poisson(np.exp(X[:, 0] - 1))
        >>> model = DDPNRegressor(likelihood="double_poisson", members=2, hidden=(16,), epochs=30, random_state=0)
        >>> model = model.fit(X[:300], y[:300]).fit_intervals(X[300:1300], y[300:1300])
        >>> for kind in ("central", "calibrated"):
        ...     low, high = model.predict_interval(X[1300:], coverage=0.9, kind=kind).T
        ...     print(kind, round(float(((low <= y[1300:]) & (y[1300:] <= high)).mean()), 2))
        central 0.99
        calibrated 0.9
        """
        _check_rows(prior_rows=prior_rows, group_rows=group_rows)
        with single_thread():
            sample, by = with_labels(self._sample(X, y, sample_weight, exposure, upper, censored), groups)
            rows = HeldOut.of(self._fitted, sample)
            known = {name: each.map for name, each in self._fitted.recalibrations.items() if each.is_used}
            rows.maps = {name: [each] * len(rows.predictors) for name, each in known.items()}
            self._fitted.calibrate_intervals(rows, prior_rows, by, group_rows)
        return self

    def fit_recalibration(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        prior_rows: float = PRIOR_ROWS,
        always: bool = False,
        upper: Any = None,
        censored: Any = None,
    ) -> Self:
        """Recalibrate the whole predicted distribution with rows that `fit` was not trained on.

        A monotone map G is learnt from the PIT of these rows, and every predicted cdf F is replaced by G(F): means,
        medians, probabilities, quantiles, scores and intervals follow. Call it before `fit_intervals`: intervals that
        were calibrated before are dropped.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            Calibration rows, as for `score`.
        prior_rows : float
            The map is shrunk towards the identity as if so many rows were calibrated already.
        always : bool
            Use the map in any case. By default it is used only where it improves the CRPS by more than two standard
            errors, each row being scored with a map from other rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (3000, 1))
        >>> y = rng.negative_binomial(2, 1 / (1 + np.exp(1 + X[:, 0])))
        >>> model = CountGLM(likelihood="poisson").fit(X[:1000], y[:1000])  # its distributions are too narrow
        >>> before = model.nll(X[2000:], y[2000:])
        >>> model = model.fit_recalibration(X[1000:2000], y[1000:2000])
        >>> model.predictor_.recalibration.is_used, before > 1.1 * model.nll(X[2000:], y[2000:])
        (True, True)
        """
        _check_rows(prior_rows=prior_rows)
        if getattr(self, "monotone", None) is not None:
            raise ConfigError("monotone cannot be combined with a recalibration, after which the mean might fall.")
        with single_thread():
            sample = self._sample(X, y, sample_weight, exposure, upper, censored)
            given = getattr(self, "random_state", None)
            seed = given if is_integer(given) else 0
            self._fitted.recalibrate(HeldOut.of(self._fitted, sample, seed), prior_rows, always, seed=seed)
        return self

    def fit_ood(self, X: Any, alpha: float = 0.05) -> Self:
        """Calibrate out-of-distribution flags with rows like those to come that `fit` has not seen.

        A row is scored by its inputs, with a summary of the training rows that `fit` keeps: missing values, unseen
        levels, numbers outside the training range, unusual combinations.

        Parameters
        ----------
        X : array-like or data frame
            Calibration rows. Do not use training rows: the summary knows their levels and extremes, and too many later
            rows would be flagged.
        alpha : float
            The share of ordinary rows that are flagged.

        Returns
        -------
        self

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (400, 1))
        >>> model = CountGLM(likelihood="poisson").fit(X[:300], rng.poisson(np.exp(1 + X[:300, 0])))
        >>> model.fit_ood(X[300:]).is_ood([[0.0], [9.0], [None]]).tolist()
        [False, True, True]
        """
        with single_thread():
            self._fitted.calibrate_ood(self._features(X), alpha)
        return self

    def ood_pvalue(self, X: Any) -> np.ndarray:
        """Conformal p-value of "this row is like the calibration rows", small for unusual rows.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.

        Returns
        -------
        array of float, shape (rows,)
            Of rows that are exchangeable with the n calibration rows at most a share alpha, on average over calibration
            sets, has a p-value of alpha or less: for any model and n. The smallest is 1 / (n + 1).
        """
        with single_thread():
            return self._fitted.ood_pvalue(self._features(X))

    def is_ood(self, X: Any, alpha: float | None = None) -> np.ndarray:
        """Flag rows that are out-of-distribution: those with a small p-value.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.
        alpha : float, optional
            Rows with a p-value of at most this are flagged. Default: that of `fit_ood`.

        Returns
        -------
        array of bool, shape (rows,)
        """
        return self._fitted.calibrated_ood.is_ood(self.ood_pvalue(X), alpha)

    def ood_reasons(self, X: Any) -> list[list[str]]:
        """Explain what is unusual about each row.

        A row may have a reason without being flagged, such as a number just above the training range. After `fit_ood`
        every flagged row has one. Before it, reasons are those of columns alone.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.

        Returns
        -------
        list of lists of str
            Up to three columns per row, the most unusual first; an empty list if nothing is unusual.

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.integers(0, 5, (200, 2))
        >>> model = CountGLM(likelihood="poisson").fit(X, rng.poisson(1 + X[:, 0]))
        >>> model.ood_reasons([[2, 2], [2, 50]])
        [[], ["'x1' above the training range: 50 > 4"]]
        """
        flagged = None if self._fitted.ood is None else self.is_ood(X)
        days = () if self._roles is None else self._roles.days
        return self._fitted.ood_reasons(self._features(X), flagged, days)

    # Comparison and explanation ---------------------------------------------------------------------------------

    def leaderboard(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
        groups: Any = None,
    ) -> Leaderboard:
        """Score the model and each of its members on a test set.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            The test set, as for `score`: rows that `fit` was not given.
        groups : array-like, optional
            What each row belongs to, such as a person: the verdict then knows that rows of one group are alike.

        Returns
        -------
        Leaderboard
            Print it, or use its `entries`; `verdict` says whether to use the model.

        Examples
        --------
        >>> import numpy as np
        >>> from ddpn import CountRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (800, 1))
        >>> y = rng.poisson(np.exp(1 + X[:, 0]))
        >>> model = CountRegressor(members=["glm", "constant"], random_state=0).fit(X[:400], y[:400])
        >>> found = model.leaderboard(X[400:], y[400:])
        >>> [entry["label"] for entry in found.entries], found.verdict.prefer
        (['GLM', 'mixture', 'constant distribution'], 'glm')
        """
        sample = self._sample(X, y, sample_weight, exposure, upper, censored)
        sample = sample.replace(group=check_groups(groups, len(sample)))
        return leaderboard_of(self._fitted, sample.rows(sample.is_used))

    def verdict(self, X: Any, y: Any, **known: Any) -> Verdict:
        """Decide with a test set whether to use the model, or a simpler one instead.

        Parameters
        ----------
        X, y : array-like
            The test set, as for `score`: rows that `fit` was not given.
        **known
            Further arguments of `leaderboard`.

        Returns
        -------
        Verdict
            Sentences, and `level`: "better", "unclear", "worse" or "unusable".
        """
        return self.leaderboard(X, y, **known).verdict

    def report(
        self,
        path: str | PathLike[str],
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
        groups: Any = None,
        interval_groups: Any = None,
        **options: Any,
    ) -> Path:
        """Write a report on a test set as one HTML file: errors, calibration, what drives the predictions.

        Parameters
        ----------
        path : path
            The file to write, such as "report.html".
        X, y, sample_weight, exposure, upper, censored, groups
            The test set, as for `leaderboard`: rows that `fit` was not given.
        interval_groups : array-like, optional
            The label of each row, if intervals were calibrated by labels that are not a column of X.
        **options
            `baselines`, `task` and others, see `ddpn.analysis.report.write_report`.

        Returns
        -------
        Path
            The path of the file.
        """
        from ddpn.analysis.report import write_report  # which has pages and figures

        sample = self._sample(X, y, sample_weight, exposure, upper, censored)
        sample = sample.replace(group=check_groups(groups, len(sample)), interval_groups=interval_groups)
        return write_report(path, self, sample, **options)

    def effects(
        self,
        X: Any,
        exposure: Any = None,
        upper: Any = None,
        columns: str | Iterable[str] | None = None,
        **options: Any,
    ) -> "Effects":
        """Measure how the predicted mean and the predicted spread change with each column.

        Parameters
        ----------
        X, exposure, upper
            Rows as for `predict_distribution`; the test set, or training rows.
        columns : list of str, optional
            Which to measure. Default: all; of more than 40, those that change predictions most.
        **options
            `bins`, `max_rows` and `seed`, see `ddpn.analysis.explanations.effects`.

        Returns
        -------
        Effects
            Accumulated local effects with 90% bands; `plot()` draws them, `to_dict()` is a table.

        Examples
        --------
        >>> import numpy as np
        >>> from ddpn import CountGLM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.integers(0, 3, (600, 1))
        >>> found = CountGLM(likelihood="poisson").fit(X, rng.poisson(2.0 ** X[:, 0])).effects(X)["x0"]
        >>> found.points, (found.mean.level / found.mean.level[0]).round(1).tolist()
        ([0.0, 1.0, 2.0], [1.0, 2.1, 4.2])
        """
        from ddpn.analysis.explanations import Inputs, effects  # which a fit does not need

        _ = self._fitted
        return effects(Inputs(self, self._features(X), exposure, upper), columns, **options)

    def importance(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
        columns: str | Iterable[str] | None = None,
        **options: Any,
    ) -> "Importances":
        """Shuffle every column in turn, and measure what changes: the CRPS, the mean and the spread.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            The test set, as for `score`.
        columns : list of str, optional
            Which to measure. Default: all; of more than 40, those that change predictions most.
        **options
            `repeats`, `max_rows` and `seed`, see `ddpn.analysis.explanations.importance`.

        Returns
        -------
        Importances
        """
        from ddpn.analysis.explanations import Inputs, importance

        _ = self._fitted
        sample = self._sample(X, y, sample_weight, exposure, upper, censored)
        return importance(Inputs.of_sample(self, sample), columns, **options)

    def contributions(
        self,
        X: Any,
        exposure: Any = None,
        upper: Any = None,
        background: Any = None,
        background_exposure: Any = None,
        background_upper: Any = None,
        **options: Any,
    ) -> "Contributions":
        """Explain the predictions of single rows: what each column adds to the (log) mean, or to the spread.

        Parameters
        ----------
        X, exposure, upper
            The rows to explain, as for `predict_distribution`.
        background, background_exposure, background_upper : array-like or data frame, optional
            Rows to compare with, such as the training set. Default: X itself, which needs several rows.
        **options
            `of` ("mean" or "spread"), `max_predictions` and `seed`, see
            `ddpn.analysis.explanations.contributions`.

        Returns
        -------
        Contributions
            They add up: base + the sum of a row's values = its prediction, on the log scale.
        """
        from ddpn.analysis.explanations import Inputs, contributions

        _ = self._fitted
        others = None
        if background is not None:
            others = Inputs(self, self._features(background), background_exposure, background_upper)
        return contributions(Inputs(self, self._features(X), exposure, upper), others, **options)


def _check_rows(**numbers: Any) -> None:
    for name, value in numbers.items():
        check_number(name, value, "a finite number of at least 0", is_number(value) and 0.0 <= value < np.inf)
