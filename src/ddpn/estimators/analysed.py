"""What fitted estimators show of themselves on given rows: explanations, leaderboard, verdict, report."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpn.analysis.leaderboard import Leaderboard
from ddpn.analysis.leaderboard import leaderboard as leaderboard_of
from ddpn.analysis.verdict import Verdict
from ddpn.estimators.calibrated import Calibrated
from ddpn.sample import check_groups

if TYPE_CHECKING:
    from ddpn.analysis.explanations import Contributions, Effects, Importances


class CountEstimator(Calibrated):
    """An estimator that can be scored against others, and explains what the columns do to its predictions."""

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

    def report(self, path: str | PathLike[str], X: Any, y: Any, **options: Any) -> Path:
        """Write a report on a test set as one HTML file: errors, calibration, what drives the predictions.

        Parameters
        ----------
        path : path
            The file to write, such as "report.html".
        X, y : array-like
            The test set, as for `score`: rows that `fit` was not given.
        **options
            `exposure`, `upper`, `censored`, `weight`, `baselines`, `task` and others, see
            `ddpn.analysis.report.write_report`.

        Returns
        -------
        Path
            The path of the file.
        """
        from ddpn.analysis.report import write_report  # which has pages and figures

        return write_report(path, model=self, X=self._features(X), y=y, **options)

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
