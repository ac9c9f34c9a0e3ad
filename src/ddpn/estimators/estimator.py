"""The methods that all estimators share: prediction, scores, calibration, leaderboard, report and saving."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.leaderboard import Leaderboard
from ddpn.analysis.leaderboard import leaderboard as leaderboard_of
from ddpn.analysis.verdict import Verdict
from ddpn.calibration.calibrate import fit_intervals, fit_ood, fit_recalibration
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.intervals import attach_group_labels
from ddpn.calibration.ood import check_alpha
from ddpn.calibration.recalibration import PRIOR_ROWS
from ddpn.members.network_options import to_python_scalar
from ddpn.metrics import crps, nll
from ddpn.networks.heads import Head, check_likelihood, make_head
from ddpn.prediction.prediction import Prediction
from ddpn.predictor import Predictor, read_predictor_files
from ddpn.rows.checks import TableLike, get_row_labels
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import check_groups
from ddpn.runtime.errors import ConfigError, DataWarning, InputError, warn_user
from ddpn.runtime.frames import library_name
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_choice, check_number, is_integer, is_number
from ddpn.statistics import explained_deviance
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import TASK, read_files, read_manifest, wrap_load_errors, write_model
from ddpn.tables.columns import ColumnTable, Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.date_columns import DateColumns
from ddpn.tables.roles import Roles
from ddpn.tables.row_draw import MAX_ROWS, check_max_rows, draw_sample
from ddpn.tables.schema import Schema


class CountEstimator(RegressorMixin, BaseEstimator):
    """Base class of all estimators, with scikit-learn's interface.

    The fitted model is the attribute `predictor_`, a `Predictor`.
    """

    fractional: str
    #: The range of counts of estimators that do not have these arguments.
    lower: int = 0
    upper: int | None = None
    censored_above: int | None = None
    predictor_: Predictor
    feature_kinds_: list[Kind]
    feature_names_in_: np.ndarray
    n_features_in_: int
    #: Sentences about target leaks that `fit` found. If there are any, every verdict on the model is "unusable".
    leaks_: tuple[str, ...] = ()
    #: Constructor arguments that are not saved with the model.
    _not_saved: ClassVar[tuple[str, ...]] = ()
    #: Whether X may have missing values.
    _allows_missing: ClassVar[bool] = True
    #: How `ddpn fit` read the columns of its file; None for models that were fitted in Python.
    _roles: Roles | None = None
    #: The date columns in the data frame passed to `fit`.
    _dates: DateColumns = DateColumns()
    #: The library of the data frame passed to `fit`, "pandas" or "polars"; "polars" for other tables.
    _library: str = "polars"

    # Fitting -----------------------------------------------------------------------------------------------------

    def _make_range(self, head: Head, rows: CountRows) -> CountRange:
        """Return the range of possible counts, from the arguments of the estimator and the bounds of the training rows.

        If the likelihood is that of k successes out of n trials (Double Binomial), the upper bound is n. Raise a
        `ConfigError` if there are bounds or recording limits, but the likelihood does not support them.
        """
        is_total = head.exposure_is_total and (rows.upper is not None or self.upper is not None)
        counts = CountRange(self.lower, self.upper, self.censored_above, rows.upper is not None, is_total)
        if not counts.is_unrestricted or rows.limit is not None:
            head.check_bounds()
        return counts

    def _store_fit(self, schema: Schema, predictor: Predictor, rows: CountRows | None = None) -> None:
        """Set all fitted attributes at once, so that a fit that fails or is interrupted changes nothing.

        `schema` has the names and types of the training columns, and `predictor` is the fitted model. If `rows` is
        passed, a summary of the inputs of these rows is added to the calibration of `predictor`, to detect
        out-of-distribution rows later.
        """
        if rows is not None:
            profile = FeatureProfile.fit(rows.X, rows.weight)
            predictor.calibration = replace(predictor.calibration, profile=profile)
        schema.set_names(self)
        self.feature_kinds_, self.predictor_, self._roles = list(schema.kinds), predictor, None
        self._dates, self._library, self.leaks_ = DateColumns(), "polars", ()

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Predictor:
        check_is_fitted(self)
        return self.predictor_

    def _predict_blocks(
        self,
        function: Callable[[Prediction], np.ndarray],
        X: TableLike,
        exposure: ArrayLike | None,
        upper: ArrayLike | None,
        groups: np.ndarray | None = None,
    ) -> np.ndarray:
        """Predict blocks of rows, apply `function` to the prediction of each block, and concatenate the results.

        Working in blocks limits the use of memory. `function` returns an array with one entry per row of its block.
        `X`, `exposure` and `upper` are as for `predict_distribution`. `groups` has the group label of each row, or is
        None if intervals are not calibrated by group.
        """
        table, predictor, parts, n_done = self.parse(X), self.predictor_, [], 0
        with torch.no_grad():
            # Members choose their threads themselves.
            for block in predictor.blocks(table, exposure, upper=upper):
                rows = slice(n_done, n_done + block.batch_shape[0])
                with single_thread():
                    parts.append(function(predictor.wrap(block, groups=None if groups is None else groups[rows])))
                n_done = rows.stop
        return np.concatenate(parts)

    def parse(self, X: TableLike) -> ColumnTable:
        """Convert a table to a `ColumnTable`, which the fitted models take as input.

        Dates become numbers as in `fit`. A model that `ddpn fit` has fitted to a file needs a data frame with the
        columns of this file. A `ColumnTable` is returned unchanged.
        """
        check_is_fitted(self)
        if isinstance(X, ColumnTable):
            return X
        if self._roles is not None:
            frame = nw.from_native(X, eager_only=True, pass_through=True)
            if isinstance(frame, nw.DataFrame):
                # Object columns of pandas, such as a column of dates and None, are read as text.
                objects = [nw.col(name).cast(nw.String) for name, dtype in frame.schema.items() if dtype == nw.Object]
                table = self._roles.parse(frame.with_columns(*objects).to_polars())
                return ColumnTable(table.columns, index=get_row_labels(X))
        X = self._dates.read(X, partial(warn_user, category=DataWarning))
        return self.predictor_.parse(X)

    # Predicting --------------------------------------------------------------------------------------------------

    def predict_distribution(
        self,
        X: TableLike,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Prediction:
        """Predict the whole distribution of every row.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.
        exposure : array-like or float, optional
            The known scale of each row; required if `fit` was given exposures. 1 predicts rates per unit.
        upper : array-like, optional
            The largest possible count of each row; required if `fit` was given one per row.
        groups : array-like, optional
            As for `predict_interval`. Without labels, intervals are calibrated on all rows together.

        Returns
        -------
        Prediction
            An object with `mean`, `std`, `interval`, `quantile`, `pmf`, `prob_above`, `sample`, `plot`, `to_frame` and
            more, as numpy arrays. `distribution` is the torch distribution.
        """
        calibrated_groups = self._fitted.calibration.groups
        names = X.names if isinstance(X, ColumnTable) else getattr(X, "columns", ())
        has_column = calibrated_groups is not None and calibrated_groups.by in names
        labels = self._group_labels(X, groups) if groups is not None or has_column else None
        prediction = self._fitted.predict(self.parse(X), exposure, upper, labels)
        return replace(prediction, labels=get_row_labels(X), library=library_name(X), days=self.day_columns_)

    def predict(
        self, X: TableLike, exposure: ArrayLike | None = None, statistic: str = "mean", upper: ArrayLike | None = None
    ) -> np.ndarray:
        """Predict one number per row.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        statistic : {"mean", "median", "mode"}
            The statistic of the predicted distribution. Median and mode are counts; for a Gaussian, they are computed
            for rounded values.

        Returns
        -------
        array of float, shape (rows,)
        """
        check_choice("statistic", statistic, ("mean", "median", "mode"))
        return self._predict_blocks(lambda prediction: getattr(prediction, statistic), X, exposure, upper)

    def predict_interval(
        self,
        X: TableLike,
        coverage: float = 0.9,
        exposure: ArrayLike | None = None,
        kind: str | None = None,
        groups: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        return_probability: bool = False,
    ) -> Any:
        """Predict an interval of counts per row, both ends included.

        The predicted probability of every interval is at least `coverage`. After `fit_intervals`, the intervals are
        wider if the predicted distributions are too narrow, so that they contain the requested share of counts.
        `CountRegressor` and `ddpn fit` do this calibration as part of the fit.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        coverage : float
            The share of counts that the intervals should contain.
        kind : {"narrowest", "central"}, optional
            "narrowest" is the interval with the fewest counts. "central" lies between two quantiles, with a probability
            of at most (1 - coverage) / 2 on either side. Default: "narrowest", but "central" for models of censored
            counts.
        groups : array-like, optional
            The label of each row's group, if `fit_intervals` was called with labels. Rows of unknown groups get
            intervals that are calibrated on all rows together, with a warning.
        return_probability : bool
            If True, also return the probability of each interval.

        Returns
        -------
        array of int, shape (rows, 2)
            The lowest and the highest count of each interval.
        array of float, shape (rows,)
            The predicted probability of each interval, only if `return_probability` is True. It usually exceeds
            `coverage`, because intervals end at integers.
        """
        labels = self._group_labels(X, groups)
        ends = self._predict_blocks(
            lambda prediction: np.stack(prediction.interval_with_probability(coverage, kind), axis=1),
            X, exposure, upper, labels,
        )  # fmt: skip
        intervals = ends[:, :2].astype(np.int64)
        return (intervals, ends[:, 2]) if return_probability else intervals

    def _group_labels(self, X: TableLike, groups: ArrayLike | None) -> np.ndarray | None:
        """Return the label of each row's group, or None if intervals are not calibrated by group.

        The labels are `groups` or, if this is None, a column of X. Groups without calibration rows cause a warning.
        """
        interval_groups = self._fitted.calibration.groups
        if interval_groups is None:
            if groups is not None:
                what = "cannot be used: the intervals of this model were not calibrated by groups"
                raise InputError(what, argument="groups", remedy="Pass `groups` to fit_intervals, or leave them out.")
            return None
        labels = interval_groups.read_labels(X, groups)
        if sentence := interval_groups.describe_unseen(labels):
            warn_user(sentence)
        return labels

    def predict_quantiles(
        self, X: TableLike, q: ArrayLike, exposure: ArrayLike | None = None, upper: ArrayLike | None = None
    ) -> np.ndarray:
        """Predict quantiles, which are counts.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        q : float or array-like
            One or more levels from 0 to 1, such as [0.1, 0.5, 0.9].

        Returns
        -------
        array of float, shape (rows, levels)
        """
        return self._predict_blocks(lambda rows: rows.quantile(q).reshape(len(rows), -1), X, exposure, upper)

    # Scores ------------------------------------------------------------------------------------------------------

    def _make_sample(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        exposure: ArrayLike | None,
        upper: ArrayLike | None,
        censored: ArrayLike | None,
    ) -> CountRows:
        parts = sample_weight, exposure, upper, censored
        return self._fitted.counts.apply(CountRows.from_arguments(self.parse(X), y, *parts, fractional=self.fractional))

    def score(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> float:
        """Return D^2, the share of the Poisson deviance that the predicted means explain; 1 is best.

        A constant mean (or a constant rate per exposure) has a D^2 of 0, and worse predictions are negative. D^2 equals
        `sklearn.metrics.d2_tweedie_score` with `power=1`, and is interpreted like R^2. It is preferred to R^2, which
        depends mostly on a few rows with large counts, as squared errors grow with the mean. For R^2, call
        ``sklearn.metrics.r2_score(y, model.predict(X))``.

        D^2 and R^2 evaluate only the means. To compare distributions, use `crps`, or `ddpn.metrics.crps_scorer` as
        `scoring` in scikit-learn.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.
        y : array-like
            Their counts.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure, upper : array-like, optional
            As for `predict_distribution`.
        censored : array-like of bool, optional
            True for rows whose count y means "y or more". If some rows are censored, the predicted means are those of
            the recorded counts.
        """
        sample = self._make_sample(X, y, sample_weight, exposure, upper, censored)
        with torch.no_grad():
            means = [dist.mean.double().numpy() for dist, _ in self._fitted.iter_recorded_blocks(sample)]
        return explained_deviance(sample.y, np.concatenate(means), sample.weight_or_ones, sample.exposure_or_ones)

    def crps(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> float:
        """Return the mean continuous ranked probability score (CRPS), in units of the counts; smaller is better.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            As for `score`. A censored count is scored by the predicted distribution of the recorded counts, in which
            all larger counts are recorded as the limit (`ddpn.distributions.Censored`).
        """
        return self._mean_score(crps, self._make_sample(X, y, sample_weight, exposure, upper, censored))

    def nll(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> float:
        """Return the mean negative log-likelihood, in nats; smaller is better.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            As for `score`. The likelihood of a censored count y is the probability of a count of y or more.
        """
        return self._mean_score(nll, self._make_sample(X, y, sample_weight, exposure, upper, censored))

    def _mean_score(self, score: Callable[[Distribution, Tensor], Tensor], sample: CountRows) -> float:
        scores = []
        with torch.no_grad():
            for dist, part in self._fitted.iter_recorded_blocks(sample):
                with single_thread():
                    scores.append(score(dist, torch.from_numpy(part.y)).numpy())
        return float(np.average(np.concatenate(scores), weights=sample.weight))

    # Calibration ------------------------------------------------------------------------------------------------

    def fit_intervals(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        prior_rows: float = 0.0,
        groups: ArrayLike | None = None,
        group_rows: float = 50.0,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> Self:
        """Calibrate prediction intervals on held-out rows.

        If predicted distributions are right, intervals do not change. If they are too narrow, intervals are widened
        until they contain the requested share of counts.

        Parameters
        ----------
        X, y, exposure, upper, censored
            Calibration rows, as for `score`.
        sample_weight : array-like, optional
            How many times each row counts, or the density ratio of new rows to calibration rows. With density ratios,
            intervals have the requested coverage on new rows.
        prior_rows : float
            Shrinks the calibration towards no change, as if the predicted distributions had been right for this many
            additional rows. This is useful with few calibration rows. The guarantee of the coverage is exact only for
            0.
        groups : str or array-like, optional
            Groups of rows, within each of which intervals should have the requested coverage: the name of a column of
            X, or a label per row.
        group_rows : float
            Shrinks the calibration of each group towards that of all rows, which counts as this many additional rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 1))
        >>> y = rng.negative_binomial(2, 1 / (1 + np.exp(1 + X[:, 0])))
        >>> model = CountGLM("poisson", covariance="robust")
        >>> model = model.fit(X[:1000], y[:1000])  # its distributions are too narrow
        >>> def coverage():
        ...     low, high = model.predict_interval(X[2000:], coverage=0.9).T
        ...     return round(float(((low <= y[2000:]) & (y[2000:] <= high)).mean()), 2)
        >>> before = coverage()
        >>> model = model.fit_intervals(X[1000:2000], y[1000:2000])
        >>> before, coverage()
        (0.68, 0.9)
        """
        _check_row_numbers(prior_rows=prior_rows, group_rows=group_rows)
        with single_thread():
            sample, by = attach_group_labels(self._make_sample(X, y, sample_weight, exposure, upper, censored), groups)
            predictor = self._fitted
            held_out = predictor.predict_held_out(sample)
            predictor.calibration = fit_intervals(predictor.calibration, held_out, prior_rows, by, group_rows)
        return self

    def fit_recalibration(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        prior_rows: float = PRIOR_ROWS,
        always: bool = False,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> Self:
        """Recalibrate the whole predicted distribution on held-out rows.

        A monotone map G is learnt from the probability integral transform (PIT) of these rows, and every predicted cdf
        F is replaced by G(F). All predictions and scores change accordingly. Call `fit_recalibration` before
        `fit_intervals`, because it discards an earlier calibration of intervals.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            Calibration rows, as for `score`.
        prior_rows : float
            The map is shrunk towards the identity, as if this many additional rows were calibrated already.
        always : bool
            If True, use the map in any case. If False, use it only if it improves the CRPS by more than two standard
            errors; each row is scored with a map that was fitted to other rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (3000, 1))
        >>> y = rng.negative_binomial(2, 1 / (1 + np.exp(1 + X[:, 0])))
        >>> model = CountGLM("poisson", covariance="robust").fit(X[:1000], y[:1000])  # its distributions are too narrow
        >>> before = model.nll(X[2000:], y[2000:])
        >>> model = model.fit_recalibration(X[1000:2000], y[1000:2000])
        >>> model.predictor_.calibration.recalibration.is_used, before > 1.1 * model.nll(X[2000:], y[2000:])
        (True, True)
        """
        _check_row_numbers(prior_rows=prior_rows)
        if getattr(self, "monotone", None) is not None:
            raise ConfigError(
                "monotone cannot be combined with a recalibration, after which the mean might fall. Leave out one."
            )
        with single_thread():
            sample = self._make_sample(X, y, sample_weight, exposure, upper, censored)
            random_state = getattr(self, "random_state", None)
            seed = random_state if is_integer(random_state) else 0
            predictor = self._fitted
            held_out = predictor.predict_held_out(sample, seed)
            predictor.calibration = fit_recalibration(predictor.calibration, held_out, prior_rows, always, seed)
        return self

    def fit_ood(self, X: TableLike, alpha: float = 0.05) -> Self:
        """Calibrate the flags of out-of-distribution rows on ordinary rows that `fit` has not used.

        Each row gets a score of how unusual its inputs are, compared with a summary of the training rows. Missing
        values, unseen levels, numbers outside the training range and unusual combinations of values raise the score.
        New rows are flagged if their score is higher than that of most calibration rows.

        Parameters
        ----------
        X : array-like or data frame
            Calibration rows. Do not use training rows: the summary contains their levels and extremes, so too many
            later rows would be flagged.
        alpha : float
            The largest expected share of flagged rows among rows that are like the calibration rows.

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
            self._fitted.calibration = fit_ood(self._fitted.calibration, self.parse(X), alpha)
        return self

    def ood_pvalue(self, X: TableLike) -> np.ndarray:
        """Return a p-value per row for the hypothesis that the row is like the calibration rows.

        The p-values are conformal, and small for unusual rows. Call `fit_ood` first.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.

        Returns
        -------
        array of float, shape (rows,)
            If a row is exchangeable with the n calibration rows, P(p-value <= alpha) <= alpha for every alpha, model
            and n. The smallest possible p-value is 1 / (n + 1).
        """
        with single_thread():
            return self._fitted.calibration.ood_pvalue(self.parse(X))

    def is_ood(self, X: TableLike, alpha: float | None = None) -> np.ndarray:
        """Flag out-of-distribution rows: those with a small p-value by `ood_pvalue`.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.
        alpha : float, optional
            Rows with a p-value of at most alpha are flagged. Default: the `alpha` of `fit_ood`, which is 0.05 in
            `CountRegressor`.

        Returns
        -------
        array of bool, shape (rows,)
            With n calibration rows, no p-value is below 1 / (n + 1). A smaller `alpha` raises an error; if the default
            is smaller, no row is flagged, with a warning.
        """
        ood = self._fitted.calibration.require_ood()
        if alpha is not None:
            alpha = check_alpha(alpha, len(ood.scores))
        elif ood.warning:
            warn_user(ood.warning)
        return ood.is_ood(self.ood_pvalue(X), alpha)

    def ood_reasons(self, X: TableLike) -> list[list[str]]:
        """Explain what is unusual about each row.

        A row may have a reason without being flagged, such as a number just above the training range. After `fit_ood`,
        every flagged row has a reason. Before `fit_ood`, reasons consider each column alone, and no combinations.

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
        flagged = (
            None if self._fitted.calibration.ood is None else self._fitted.calibration.ood.is_ood(self.ood_pvalue(X))
        )
        return self._fitted.calibration.ood_reasons(self.parse(X), flagged, self.day_columns_)

    @property
    def day_columns_(self) -> frozenset[str]:
        """The names of the columns of days since 1970, which `fit` has made from dates."""
        return frozenset((self._dates if self._roles is None else self._roles.dates).days)

    # Comparison ----------------------------------------------------------------------------------------------------

    def leaderboard(
        self,
        X: TableLike | None = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        interval_groups: ArrayLike | None = None,
        max_rows: int | None = MAX_ROWS,
    ) -> Leaderboard:
        """Score the model and each of its members on a test set, or out of fold on the training rows.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            The test set, as for `score`: rows that `fit` has not seen. Without X and y, the training rows are scored
            out of fold. This requires a `CountRegressor` that was cross-fitted in this process. Each row is then
            predicted by copies of the members that were fitted without the row's fold, with weights and calibration
            from the other folds.
        groups : array-like, optional
            The group of each row, such as a person. The standard errors from which the verdict is derived then allow
            for correlated rows within a group.
        interval_groups : array-like, optional
            The label of each row, if intervals were calibrated by labels that are not a column of X.
        max_rows : int or None
            The largest number of rows to score. From a larger test set, rows are drawn at random with a fixed seed.
            None scores all rows.

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
        >>> board = model.leaderboard(X[400:], y[400:])
        >>> [entry["label"] for entry in board.entries], board.verdict.level
        (['mixture', 'GLM', 'constant distribution'], 'better')
        >>> str(model.leaderboard()).splitlines()[0]  # 400 rows were fitted
        'Scores on 400 out-of-fold rows'
        """
        if X is None or y is None:
            if X is not None or y is not None:
                raise InputError("X and y must both be passed, or neither: without them, scores are out-of-fold.")
            return self._out_of_fold_leaderboard()
        sample = self._make_sample(X, y, sample_weight, exposure, upper, censored)
        sample = self._add_groups(sample, X, groups, interval_groups)
        draw = draw_sample(sample, check_max_rows(max_rows))
        board = leaderboard_of(self._fitted, draw.take(sample), self.leaks_, total=draw.total)
        return replace(board, library=library_name(X))

    def _add_groups(
        self, sample: CountRows, X: TableLike, groups: ArrayLike | None, interval_groups: ArrayLike | None
    ) -> CountRows:
        """Add the groups of correlated rows, and the labels by which intervals were calibrated, to a test set.

        `X` is the table of the user, in which the labels are looked up if `interval_groups` is None. If intervals were
        not calibrated by group, `interval_groups` is ignored.
        """
        calibrated_groups = self._fitted.calibration.groups
        labels = (
            None if calibrated_groups is None else calibrated_groups.read_labels(X, interval_groups, "interval_groups")
        )
        return sample.replace(group=check_groups(groups, len(sample)), interval_groups=labels)

    def _out_of_fold_leaderboard(self) -> Leaderboard:
        raise InputError("X and y are missing. Pass a test set: rows that were not used in `fit`.")

    def verdict(self, X: TableLike | None = None, y: ArrayLike | None = None, **options: Any) -> Verdict:
        """Decide whether to use the model or a simpler one.

        Parameters
        ----------
        X, y : array-like, optional
            The test set, as for `leaderboard`. Default: out-of-fold scores.
        **options
            Further arguments of `leaderboard`.

        Returns
        -------
        Verdict
            Sentences, and `level`: "better", "as good as", "undecided", "worse" or "unusable".
        """
        return self.leaderboard(X, y, **options).verdict

    def report(
        self,
        X: TableLike,
        y: ArrayLike,
        path: str | PathLike[str],
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        interval_groups: ArrayLike | None = None,
        overwrite: bool = False,
        **options: Any,
    ) -> Path:
        """Write a report on a test set as one HTML file: errors, calibration and effects of the columns.

        Parameters
        ----------
        X, y : array-like
            The test set, as for `leaderboard`: rows that `fit` has not seen.
        path : path
            The file to write, such as "report.html".
        sample_weight, exposure, upper, censored, groups
            As for `leaderboard`.
        interval_groups : array-like, optional
            The label of each row, if intervals were calibrated by labels that are not a column of X.
        overwrite : bool
            If True, replace an existing file.
        **options
            `max_rows`, `baselines`, `task` and others, see `ddpn.analysis.report.write_report`.

        Returns
        -------
        Path
            The path of the file.
        """
        if not isinstance(path, str | PathLike):
            must, got = "be the file to write, after the rows", f"{type(path).__name__} instead"
            raise InputError(argument="path", must=must, got=got, remedy='Call report(X, y, "report.html").')
        if Path(path).is_file() and not overwrite:
            raise InputError(f"{path} already exists. Choose another name, or replace it with `overwrite=True`.")
        from ddpn.analysis.report import write_report  # slow to import

        sample = self._make_sample(X, y, sample_weight, exposure, upper, censored)
        sample = self._add_groups(sample, X, groups, interval_groups)
        return write_report(path, self, sample, **{"leak": " ".join(self.leaks_), **options})

    # Saving ------------------------------------------------------------------------------------------------------

    def _extra_state(self) -> tuple[dict[str, bytes], JsonObject]:
        """Return what subclasses save in addition to the predictor: files by name, and values for the JSON manifest."""
        return {}, {}

    def _restore_extra(self, files: dict[str, bytes], extra: JsonObject) -> None:
        """Set attributes from the files and values that `_extra_state` returned when the model was saved."""

    def collect_state(self) -> tuple[dict[str, bytes], JsonObject]:
        """Return everything that `save` writes: the files by name, and the manifest."""
        files, manifest = self._fitted.state()
        extra_files, extra = self._extra_state()
        schema = self._fitted.schema
        assert schema is not None
        manifest["estimator"] = {
            "class": type(self).__name__,
            "options": collect_json_options(self, self._not_saved),
            "schema": schema.as_dict(),
            "dates": [asdict(column) for column in self._dates.columns],
            "library": self._library,
            "leaks": list(self.leaks_),
            "extra": extra,
        }
        return files | extra_files, manifest

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder, completely or not at all. No pickle is written.

        Parameters
        ----------
        path : path
            The folder to make.
        overwrite : bool
            If True, replace an existing model. If False, an existing path raises an `InputError`.
        """
        write_model(Path(path), *self.collect_state(), overwrite)

    @classmethod
    @wrap_load_errors
    def load(cls, path: str | PathLike[str], mixed_only: bool = False) -> Self:
        """Load a model that `save` wrote. Nothing in its files is executed, and a damaged file is refused.

        A model of `ddpn fit` takes data frames with the columns of the file that it was fitted to, with dates, numbers
        and missing values written as in the file. Other columns are ignored.

        Parameters
        ----------
        path : path
            The folder of the model.
        mixed_only : bool
            If True, leave out members of weight 0, which serve only for comparison.
        """
        folder, roles = Path(path), None
        manifest = read_manifest(folder)
        if TASK in manifest["files"]:
            task = read_files(folder, {"files": {TASK: manifest["files"][TASK]}})[TASK]
            roles = Roles.from_dict(json.loads(task)["roles"])
        return cls.from_manifest(folder, manifest, mixed_only, roles)

    @classmethod
    def from_manifest(cls, path: Path, manifest: JsonObject, mixed_only: bool, roles: Roles | None) -> Self:
        """Load a model from its folder, whose manifest has already been read.

        Parameters
        ----------
        path : path
            The folder of the model.
        manifest : dict
            The manifest.
        mixed_only : bool
            If True, leave out members of weight 0, which serve only for comparison.
        roles : Roles or None
            The roles of the columns of the file to which `ddpn fit` fitted the model, such as target and features. None
            for models that were fitted in Python.
        """
        saved = manifest.get("estimator", {"class": "Predictor"})
        if saved["class"] != cls.__name__:
            raise InputError(f"{path} holds a {saved['class']}, not a {cls.__name__}. Use {saved['class']}.load.")
        files = read_predictor_files(path, manifest, mixed_only)
        options = {name: tuple(v) if isinstance(v, list) else v for name, v in saved["options"].items()}
        model = cls(**options)
        model.predictor_ = Predictor.from_state(files, manifest, mixed_only)
        schema = Schema.from_dict(saved["schema"])
        schema.set_names(model)
        model.feature_kinds_ = list(schema.kinds)
        model._dates = DateColumns(tuple(TableColumn.from_dict(column) for column in saved.get("dates", ())))
        model._roles, model._library = roles, saved.get("library", "polars")
        model.leaks_ = tuple(saved.get("leaks", ()))
        model._restore_extra(files, saved["extra"])
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = self._allows_missing
        tags.target_tags.positive_only = True
        return tags


def _check_row_numbers(**numbers: float) -> None:
    for name, value in numbers.items():
        check_number(name, value, "a finite number of at least 0", is_number(value) and 0.0 <= value < np.inf)


def collect_json_options(model: BaseEstimator, excluded: tuple[str, ...]) -> JsonObject:
    """Return the constructor arguments of a model that JSON can represent, except those in `excluded`.

    Random generators and paths cannot be represented.
    """
    options = {
        name: _to_json_value(value) for name, value in model.get_params(deep=False).items() if name not in excluded
    }
    return {name: value for name, value in options.items() if isinstance(value, str | float | list | dict | int | None)}


def _to_json_value(value: object) -> object:
    """Convert NumPy scalars and arrays to Python numbers and lists, also inside sequences and dictionaries.

    Return anything else unchanged.
    """
    if isinstance(value, Mapping):
        return {name: _to_json_value(option) for name, option in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json_value(option) for option in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def make_named_head(likelihood: str | Sequence[str], options: Mapping[str, object] | None) -> Head:
    """Make the head of a likelihood (the object that turns raw outputs into distributions).

    `likelihood` is a name or, for a mixture, several names. `options` are the options of the likelihood. Raise a
    `ConfigError` if either is invalid.
    """
    check_likelihood(likelihood)
    if options is not None and not isinstance(options, Mapping):
        must = 'be a dictionary such as {"beta": 0.5}'
        raise ConfigError(argument="head_options", must=must, got=repr(options))
    return make_head(likelihood, **{name: to_python_scalar(value) for name, value in dict(options or {}).items()})
