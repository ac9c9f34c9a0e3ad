"""Test the estimators among scikit-learn's tools: its own checks, pipelines, searches, metadata routing, copies."""

import pickle
from io import BytesIO

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from ddpn import CountGLM, CountRegressor, DDPNRegressor

FOLDS = KFold(2, shuffle=True, random_state=0)
# One encoding and large batches: with these checks, "auto" trains a hundred times as long and passes, too.
SMALL = {"n_networks": 1, "hidden": (16,), "epochs": 10, "numeric": "standard", "random_state": 0}
BATCHES = {"batch_size": 1000, "lr": 0.03}
CHECKED = DDPNRegressor(fractional="round", preset="default", likelihood="mixed", training_options=BATCHES, **SMALL)
#: Checks that depend on the likelihood: fits, their scores, weights. The default likelihood has two families.
OF_THE_LIKELIHOOD = (
    estimator_checks.check_fit2d_1sample,
    estimator_checks.check_sample_weight_equivalence_on_dense_data,
    estimator_checks.check_regressors_train,
)


@pytest.mark.filterwarnings("ignore::ddpn.DataWarning")  # the classes of irises follow from their petals
@parametrize_with_checks([clone(CHECKED).set_params(likelihood="poisson")])
def test_the_regressor_passes_the_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail; some have targets that are no counts, hence `fractional`."""
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [*OF_THE_LIKELIHOOD, estimator_checks.check_estimators_pickle, estimator_checks.check_fit_idempotent],
    ids=lambda check: check.__name__,
)
def test_the_default_likelihood_passes_the_checks_that_depend_on_it(check):
    check("DDPNRegressor", clone(CHECKED))


MIXTURE = CountRegressor(fractional="round", random_state=0)
#: Checks of what is particular to a mixture of many kinds of members.
OF_THE_FIT = (
    estimator_checks.check_dont_overwrite_parameters,
    estimator_checks.check_dict_unchanged,
    estimator_checks.check_fit1d,
    estimator_checks.check_fit2d_1feature,
    estimator_checks.check_n_features_in_after_fitting,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
)


@pytest.mark.filterwarnings("ignore")  # members are left out of a mixture that is fitted to a handful of rows
@pytest.mark.parametrize(
    ("check", "member"),
    [
        *((check, "poisson_glm") for check in (*OF_THE_FIT, *OF_THE_LIKELIHOOD)),
        (estimator_checks.check_sample_weight_equivalence_on_dense_data, "trees"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_mixture_passes_the_checks_that_depend_on_its_fit(check, member):
    check("CountRegressor", clone(MIXTURE).set_params(members=[member], likelihood="poisson"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([MIXTURE, clone(MIXTURE).set_params(members=["trees"])])
def test_the_default_model_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")  # the handful of rows of a check often has no maximum
@parametrize_with_checks([CountGLM(likelihood="poisson", fractional="round")])
def test_the_glm_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", OF_THE_LIKELIHOOD, ids=lambda check: check.__name__)
def test_two_parameters_pass_the_checks_that_depend_on_the_likelihood(check):
    check("CountGLM", CountGLM(fractional="round"))


@pytest.fixture
def enable_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_copies_predict_bit_for_bit(quick, counts):
    model = quick().fit(*counts).fit_intervals(*counts).fit_ood(counts[0])
    file = BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(file)):
        assert (copy.predict(counts[0]) == model.predict(counts[0])).all()
        ours, theirs = (regressor.predict_interval(counts[0]) for regressor in (model, copy))
        assert (ours == theirs).all()
        assert (copy.ood_pvalue(counts[0]) == model.ood_pvalue(counts[0])).all()


def test_score_is_the_share_of_deviance_explained(small_ensemble, counts):
    X, y = counts
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    for weights in (None, weight):
        expected = d2_tweedie_score(y, small_ensemble.predict(X), power=1, sample_weight=weights)
        assert small_ensemble.score(X, y, weights) == pytest.approx(expected, rel=1e-10)


def test_a_grid_is_searched_with_options_and_numbers_of_numpy(quick, counts):
    grid = {
        "epochs": np.array([1, 12]),
        "training_options": [{"lr": np.float64(2e-2), "batch_size": np.int64(32)}],
        "head_options": [{"beta": np.float64(0.0)}, {"beta": 0.5}],
    }
    search = GridSearchCV(quick(likelihood="double_poisson"), grid, cv=FOLDS).fit(*counts)
    assert search.best_params_["epochs"] == 12
    assert len({round(score, 12) for score in search.cv_results_["mean_test_score"]}) == 4
    best = search.best_estimator_
    assert best.head_.options["beta"] == search.best_params_["head_options"]["beta"]
    assert best.predict(counts[0]).shape == (90,)


# Metadata routing ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("enable_routing")
def test_weights_and_exposures_are_routed(quick, counts, exposures):
    """Scores of each fold equal those of a loop by hand that passes both to fit and to score."""
    X, y = counts
    weight = np.random.default_rng(2).integers(1, 4, len(y)).astype(float)
    model = quick().set_fit_request(sample_weight=True, exposure=True)
    model = model.set_score_request(sample_weight=True, exposure=True)
    scores = cross_val_score(model, X, y, cv=FOLDS, params={"sample_weight": weight, "exposure": exposures})
    for score, (train, test) in zip(scores, FOLDS.split(X), strict=True):
        by_hand = quick().fit(X[train], y[train], weight[train], exposures[train])
        assert score == pytest.approx(by_hand.score(X[test], y[test], weight[test], exposures[test]), abs=1e-12)
        assert score != pytest.approx(by_hand.score(X[test], y[test], None, exposures[test]), abs=1e-6)
