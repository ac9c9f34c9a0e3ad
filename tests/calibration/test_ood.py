"""Test out-of-distribution flags: ordinary rows are flagged as often as promised, unusual ones found and explained."""

import numpy as np
import polars as pl
import pytest

from ddpn import ConfigError, CountGLM, DDPNRegressor, InputError
from ddpn.calibration.calibrate import fit_ood
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.joint_inputs import JointInputs
from ddpn.calibration.ood import OODScores
from ddpn.calibration.unusual_cells import COMBINATION, describe_states, describe_unusual_cells
from ddpn.predictor import Predictor


def compute_share_of_flags(scores: OODScores, x, alpha: float | None = None) -> float:
    return scores.is_ood(scores.pvalue(np.asarray(x, dtype=float)), alpha).mean()


@pytest.mark.parametrize(("n", "alpha", "share"), [(19, 0.05, 0.05), (19, 0.12, 0.1), (30, 0.2, 6 / 31)])
def test_ordinary_rows_are_flagged_as_often_as_promised(n, alpha, share):
    rng = np.random.default_rng(2)
    draws = [(OODScores.fit(rng.gamma(2.0, 1.0, n), alpha), rng.gamma(2.0, 1.0, 40)) for _ in range(400)]
    # Given the calibration rows the share is Beta distributed: its deviation, over 400 of them.
    tolerance = 4 * np.sqrt(alpha * (1 - alpha) / (n + 2) / 400)
    assert np.mean([compute_share_of_flags(*draw) for draw in draws]) == pytest.approx(share, abs=tolerance)
    assert share <= alpha


def test_equal_scores_are_never_flagged_too_often():
    rng = np.random.default_rng(3)
    draws = [(OODScores.fit(rng.integers(0, 4, 50), 0.05), rng.integers(0, 4, 40)) for _ in range(200)]
    assert np.mean([compute_share_of_flags(*draw, 0.3) for draw in draws]) <= 0.3
    assert compute_share_of_flags(OODScores.fit(np.full(50, 2.0), 0.05), np.full(9, 2.0)) == 0


def test_p_values_count_calibration_scores():
    fitted = OODScores.fit(np.array([9.0, 1.0, 4.0, 4.0]), alpha=0.5)
    assert fitted.scores.tolist() == [1.0, 4.0, 4.0, 9.0]
    pvalues = fitted.pvalue(np.array([0.5, 1.0, 4.0, 5.0, 9.0, 80.0, np.nan]))
    assert pvalues.tolist() == [1.0, 1.0, 0.8, 0.4, 0.4, 0.2, 0.2]
    assert fitted.is_ood(np.array([0.8, 0.4])).tolist() == [False, True]
    assert fitted.is_ood(np.array([0.4, 0.2]), alpha=0.2).tolist() == [False, True]


# In an estimator -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def glm_with_flags(counts) -> CountGLM:
    rows = np.random.default_rng(8).normal(size=(99, 3))
    return CountGLM(likelihood="poisson").fit(*counts).fit_ood(rows, alpha=0.1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda model, X: model.is_ood(X, alpha=0.009), InputError, "at least 1 / (n + 1) = 0.01 with n = 99"),
        (lambda model, X: model.fit_ood(X[:18]), InputError, "with n = 18 calibration rows"),
        *(
            (lambda model, X, alpha=alpha: model.is_ood(X, alpha=alpha), ConfigError, "lie between 0 and 1")
            for alpha in (0.0, 1.0, -0.1, 5, float("nan"), "0.05")
        ),
        (lambda model, X: model.fit_ood(X, alpha=2.0), ConfigError, "lie between 0 and 1"),
    ],
)
def test_bad_rates_are_refused_and_leave_the_calibration(glm_with_flags, counts, call, error, words):
    with pytest.raises(error) as raised:
        call(glm_with_flags, counts[0])
    assert raised.value.argument == "alpha"
    assert words in raised.value.must
    assert len(glm_with_flags.predictor_.calibration.ood.scores) == 99


def test_the_smallest_rate_finds_rows_far_away(glm_with_flags, counts):
    assert glm_with_flags.is_ood(50.0 * counts[0], alpha=0.01).any()


def test_the_order_of_calls_is_reported(glm_with_flags, counts):
    model = CountGLM(likelihood="poisson")
    with pytest.raises(ValueError, match="not fitted"):
        model.fit_ood(counts[0])
    model.fit(*counts)
    with pytest.raises(ValueError, match="0 sample"):
        model.fit_ood(counts[0][:0])
    model.fit_ood(counts[0]).fit(*counts)  # a new fit forgets the calibration
    for call in (model.ood_pvalue, model.is_ood):
        with pytest.raises(InputError, match="call fit_ood"):
            call(counts[0])
    bare = Predictor(glm_with_flags.predictor_.members)
    with pytest.raises(InputError, match="no summary of its training rows"):
        fit_ood(bare.calibration, counts[0])
    assert bare.calibration.ood_reasons(counts[0][:2]) == [[], []]


# The summary of training rows -----------------------------------------------------------------------------------------


def draw_table(n: int, seed: int) -> pl.DataFrame:
    """Draw two numbers that go together, one with a heavy tail, levels, flags and gaps."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    return pl.DataFrame(
        {
            "size": size,
            "weight": size + 0.1 * rng.normal(size=n),
            "income": np.exp(2.0 * rng.normal(size=n)),
            "plan": rng.choice(["basic", "plus", "pro"], n, p=[0.6, 0.3, 0.1]),
            "smokes": rng.random(n) < 0.2,
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(50, 9, n).round()),
        }
    )


TRAIN, KNOWN, NEW_ROWS = draw_table(1500, 0), draw_table(400, 1), draw_table(1000, 2)
CHANGES = {
    "missing": (pl.lit(None, dtype=pl.Float64).alias("size"), "missing 'size'"),
    "unseen level": (pl.lit("gold").alias("plan"), "unseen level 'gold' of 'plan'"),
    "missing flag": (pl.lit(None, dtype=pl.Boolean).alias("smokes"), "missing 'smokes'"),
    "high": (pl.col("size") + 10.0, "'size' above the training range: "),
    "low": (pl.col("age") - 90.0, "'age' below the training range: "),
    "negative": (pl.col("income") - 100.0, "'income' below the training range: "),
}


@pytest.fixture(scope="module")
def profile() -> FeatureProfile:
    return FeatureProfile.fit(TRAIN)


def find_threshold(profile: FeatureProfile, alpha: float = 0.05) -> float:
    """Find the score that as many calibration rows exceed as the smallest p-values allow."""
    return float(np.quantile(profile.measure(KNOWN).score, 1.0 - alpha, method="higher"))


def test_ordinary_rows_score_as_often_above_as_calibration_rows(profile):
    # Quantiles of 400 rows, shares of 1,000: four deviations.
    assert np.mean(profile.measure(NEW_ROWS).score > find_threshold(profile)) == pytest.approx(0.05, abs=0.052)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_columns_are_found_and_named(profile, change):
    column, words = CHANGES[change]
    changed = NEW_ROWS.drop_nans().with_columns(column)
    assert np.mean(profile.measure(changed).score > find_threshold(profile)) >= 0.9
    named = [reasons[0].startswith(words) for reasons in describe_unusual_cells(profile, changed.head(200)) if reasons]
    assert np.mean(named) > 0.9
    assert len(named) >= 180


def test_rows_that_fit_in_every_column_but_not_together_are_found(profile):
    mixed = NEW_ROWS.head(400).with_columns(size=pl.lit(1.5), weight=pl.lit(-1.5))
    assert np.mean(profile.measure(mixed).score > find_threshold(profile)) > 0.95
    assert sum(map(len, describe_unusual_cells(profile, mixed))) < 100
    assert set(profile.name_misfits(mixed)) <= {"size", "weight"}


def test_ordinary_rows_have_few_reasons(profile):
    reasons = describe_unusual_cells(profile, NEW_ROWS)
    assert len(reasons) == 1000
    assert np.mean([bool(row_reasons) for row_reasons in reasons]) < 0.1
    assert max(map(len, reasons)) <= 3


def test_a_column_of_a_wide_table_is_found():
    rng = np.random.default_rng(7)
    wide = FeatureProfile.fit(rng.normal(size=(300, 400)))
    usual, one = wide.measure(rng.normal(size=(200, 400))).score, rng.normal(size=(50, 400))
    one[:, 7] = np.nan
    assert (wide.measure(one).score > usual.max()).all()
    assert wide.name_misfits(one[:2]) == ["", ""]


@pytest.mark.parametrize("n", [1, 2, 30, 60])
def test_few_rows_are_enough_for_a_profile(n):
    result = FeatureProfile.fit(TRAIN.head(n)).measure(NEW_ROWS).score
    assert np.isfinite(result).all()
    assert (result >= 0).all()


def test_a_saved_profile_measures_the_same(profile):
    for original in (profile, FeatureProfile.fit(TRAIN.head(20)), FeatureProfile.fit(np.zeros((60, 2)))):
        X = np.ones((3, 2)) if original.names == ["x0", "x1"] else NEW_ROWS
        again = FeatureProfile.from_state(original.state())
        assert (again.measure(X).score == original.measure(X).score).all()
        assert again.names == original.names
    assert FeatureProfile.from_state({}) is None
    assert b"basic" not in b"".join(profile.state().values())


def test_a_saved_category_whose_levels_are_numbers_is_still_one():
    zones = pl.DataFrame({"zone": ["1", "2.5", "3"] * 30, "x": np.linspace(0.0, 1.0, 90)})
    original = FeatureProfile.fit(zones)
    again = FeatureProfile.from_state(original.state())
    X = zones.with_columns(zone=pl.Series(["1", "9"] * 45))
    assert (again.measure(X).score == original.measure(X).score).all()


def test_rows_of_weight_zero_are_left_out():
    assert FeatureProfile.fit(TRAIN, np.r_[np.ones(1000), np.zeros(500)]).rows == 1000


# Sentences about a table ---------------------------------------------------------------------------------------------


def write_sentences(profile: FeatureProfile, frame: pl.DataFrame) -> list[str]:
    return describe_states(profile, sum(profile.measure(part).states for part in (frame.head(300), frame.slice(300))))


def test_ignored_columns_do_not_count_in_the_score():
    ignoring, plain = (
        FeatureProfile.fit(TRAIN, ignored=["size", "plan"]),
        FeatureProfile.fit(TRAIN.drop("size", "plan")),
    )
    changed = NEW_ROWS.with_columns(CHANGES["high"][0], CHANGES["unseen level"][0])
    for X in (NEW_ROWS, changed):
        assert (ignoring.measure(X).score == plain.measure(X.drop("size", "plan")).score).all()
        assert ignoring.name_misfits(X) == plain.name_misfits(X.drop("size", "plan"))
    assert describe_unusual_cells(ignoring, changed) == describe_unusual_cells(plain, changed.drop("size", "plan"))
    again = FeatureProfile.from_state(ignoring.state())
    assert (again.measure(changed).score == ignoring.measure(changed).score).all()
    (sentence,) = describe_states(again, again.measure(changed).states)
    assert sentence.startswith("'size', 'plan' do not count in the out-of-distribution score: they follow time")


def test_an_ordinary_table_needs_no_sentence(profile):
    assert write_sentences(profile, NEW_ROWS) == []


def test_missing_unseen_and_extreme_cells_of_a_table_are_counted(profile):
    row = pl.int_range(1000)
    changed = NEW_ROWS.with_columns(
        plan=pl.when(row < 41).then(pl.lit("gold")).otherwise("plan"),
        size=pl.when(row == 500).then(None).otherwise("size"),
        income=pl.when(row > 990).then(1e9).otherwise("income"),
        age=pl.when(row < 600).then(None).otherwise("age"),
    )
    above = (NEW_ROWS["income"].head(991) > TRAIN["income"].max()).sum()
    result = write_sentences(profile, changed)
    assert result[1:] == [
        "41 rows have an unseen level of 'plan'.",
        f"{9 + above} rows have 'income' above the training range, which ends at {TRAIN['income'].max():.6g}.",
        "1 row has a missing 'size', which was never missing in training.",
    ]
    assert result[0].startswith("'age' is missing in 6")
    assert result[0].endswith(f"of rows, against {TRAIN['age'].is_nan().mean():.1%} in training.")


def test_unseen_levels_that_are_expected_are_compared_with_that():
    names = pl.DataFrame({"name": [f"n{row % 150}" for row in range(200)]})
    profile = FeatureProfile.fit(names)
    assert write_sentences(profile, pl.DataFrame({"name": ["x", *["n0"] * 399]})) == []
    (result,) = write_sentences(profile, pl.DataFrame({"name": ["x"] * 400}))
    assert result == "400 rows have an unseen level of 'name' (about 200 expected)."


def test_only_the_first_sentences_are_shown():
    wide = FeatureProfile.fit(np.random.default_rng(8).normal(size=(50, 14)))
    sentences = describe_states(wide, wide.measure(np.full((6, 14), np.nan)).states)
    assert len(sentences) == 11
    assert sentences[-1] == "Not shown: 4 more findings."


# In the estimators ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(quick) -> DDPNRegressor:
    y = np.random.default_rng(9).poisson(np.exp(0.5 + 0.5 * TRAIN["size"].to_numpy()))
    return quick(likelihood="double_poisson", epochs=1).fit(TRAIN, y).fit_ood(KNOWN)


def test_flagged_rows_have_a_reason(model):
    reasons, flagged = model.ood_reasons(NEW_ROWS), model.is_ood(NEW_ROWS)
    assert all(reasons[row] for row in np.flatnonzero(flagged))
    general = np.array([COMBINATION in (row_reasons or [""])[0] for row_reasons in reasons])
    assert general.any()
    assert not (general & ~flagged).any()
    mixed = NEW_ROWS.head(20).with_columns(size=pl.lit(1.5), weight=pl.lit(-1.5))
    assert all(COMBINATION in row_reasons[0] for row_reasons in model.ood_reasons(mixed))


def test_tails_are_those_of_rows_that_a_summary_does_not_know():
    """All rows have names of their own, so rows that a summary left out have new ones."""
    table = pl.DataFrame({"name": [f"n{k}" for k in range(400)], "x": np.zeros(400)})
    profile = FeatureProfile.fit(table)
    training, new = (
        profile._measure_cells(next(profile._iter_scored_cells(profile.schema.parse(t))))[0]
        for t in (table, table.with_columns(name=pl.lit("?")))
    )
    assert training.max() < 1.0
    assert new.min() > 4.0
    assert profile.tails[0].edges.min() > 4.0


@pytest.mark.parametrize("names", [50, 500, 2000, 100_000])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_training_rows_calibrate_flags_of_new_rows_with_names(names, seed):
    """New names are as usual as they were in training, and levels that occur a few times are not more unusual."""
    rng = np.random.default_rng(seed)

    def draw(rows: int) -> pl.DataFrame:
        return pl.DataFrame({"name": [f"n{k}" for k in rng.integers(0, names, rows)], "x": rng.normal(size=rows)})

    profile, scores = FeatureProfile.cross_fit(draw(2000), None, np.arange(2000) % 5)
    assert (profile.rows, len(scores)) == (2000, 2000)
    flags = OODScores.fit(scores, 0.05)
    flagged = flags.is_ood(flags.pvalue(profile.measure(draw(4000)).score)).mean()
    # Three standard deviations: of the calibration rows, whose share is random, and of the new ones.
    assert flagged <= 0.05 + 3.0 * np.sqrt(0.05 * 0.95 * (1 / 2000 + 1 / 4000))


def test_joint_scores_of_training_rows_are_those_of_summaries_of_the_other_folds():
    """The largest distance is that of an outlier from rows without it, which is larger than from all rows."""
    rng, fold = np.random.default_rng(0), np.arange(60) % 5
    x = rng.normal(size=(60, 2))
    x[:, 1] = x[:, 0] + 0.1 * rng.normal(size=60)
    x[0] = [2.0, -2.0]
    profile, _ = FeatureProfile.cross_fit(x, None, fold)
    inputs, inside = profile._encode_inputs(profile.schema.parse(x)), fold == 0
    apart, _ = JointInputs.fit(inputs[~inside]).compute_distances(inputs[inside])
    among, _ = JointInputs.fit(inputs).compute_distances(inputs[inside])
    assert apart.max() > 1.2 * among.max()
    assert profile.tails[1].edges.max() == pytest.approx(apart.max())


def test_the_residual_of_a_column_is_that_of_least_squares():
    """Regress columns on the others, in units of the 99.5% quantile of their residuals."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3))
    x[:, 2] = 0.8 * x[:, 0] + 0.6 * x[:, 2]
    _, residual = JointInputs.fit(x.astype(np.float32)).compute_distances(x[:500].astype(np.float32))
    expected = []
    for k in range(3):
        others = np.delete(x, k, axis=1)
        left = np.abs(x[:, k] - others @ np.linalg.lstsq(others, x[:, k], rcond=None)[0])
        expected.append(left[:500] / np.quantile(left, 0.995))
    np.testing.assert_allclose(residual, np.max(expected, axis=0), rtol=0.2)


# Thresholds, by counting ----------------------------------------------------------------------------------------------


def test_a_reason_is_a_cell_that_one_of_twenty_rows_has_in_any_column():
    """Three levels of 100 have 6, 4 and 1 rows; 5% over four columns is 1.25% in a column."""
    rng = np.random.default_rng(0)
    columns = {f"c{j}": rng.permutation(["a"] * 959 + ["b"] * 20 + ["c"] * 15 + ["d"] * 6) for j in range(4)}
    profile = FeatureProfile.fit(pl.DataFrame(columns))
    row = pl.DataFrame({"c0": ["b"], "c1": ["c"], "c2": ["d"], "c3": ["?"]})
    # Levels that are as rare: 0.6% d; 2.1% c and d; 4.1% b, c and d.
    assert describe_unusual_cells(profile, row) == [["unseen level '?' of 'c3'", "unusual level 'd' of 'c2'"]]
    two = FeatureProfile.fit(pl.DataFrame({name: columns[name] for name in ("c0", "c1")}))
    assert describe_unusual_cells(two, row.select("c0", "c1")) == [["unusual level 'c' of 'c1'"]]
    one = FeatureProfile.fit(pl.DataFrame({"c0": columns["c0"]}))
    assert describe_unusual_cells(one, row.select("c0")) == [["unusual level 'b' of 'c0'"]]
    everything = pl.DataFrame({"c0": ["d"], "c1": ["?"], "c2": ["d"], "c3": ["?"]})
    assert [len(reasons) for reasons in describe_unusual_cells(profile, everything)] == [3]
    assert [reason[:6] for reason in describe_unusual_cells(profile, everything)[0]] == ["unseen", "unseen", "unusua"]


@pytest.mark.parametrize(("columns", "rows", "is_said"), [(1, 9, False), (1, 10, True), (2, 10, False), (2, 11, True)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rows_outside_the_range_are_said_where_one_of_a_thousand_tables_has_as_many(columns, rows, is_said, sign):
    """With as many new rows as in training, k values beyond all of these have a probability of 2^-k, in any column."""
    X = np.random.default_rng(0).normal(size=(100, columns))
    profile = FeatureProfile.fit(X)
    new = np.zeros((100, columns))
    new[:rows, 0] = 100.0 * sign
    states = profile.measure(new).states
    assert bool(describe_states(profile, states)) == is_said


@pytest.mark.parametrize(("missing", "is_said"), [(40, False), (64, False), (65, True), (200, True)])
def test_missing_values_are_said_four_standard_deviations_above_their_share(missing, is_said):
    """In 400 rows 40 are expected, with a standard deviation of 6."""
    profile = FeatureProfile.fit(np.r_[np.full(100, np.nan), np.arange(900.0)][:, None])
    states = profile.measure(np.where(np.arange(400) < missing, np.nan, 450.0)[:, None]).states
    assert bool(describe_states(profile, states)) == is_said


@pytest.mark.parametrize(
    ("names", "unseen", "is_said"), [("aaaab", 1, False), ("aaaab", 4, True), ("aaaaaabb", 1, True)]
)
def test_unseen_levels_are_said_where_they_are_more_than_expected(names, unseen, is_said):
    """Good and Turing expect a new name in a quarter of 4 later rows if one of five rows is alone with its name."""
    profile = FeatureProfile.fit(pl.DataFrame({"name": list(names)}))
    states = profile.measure(pl.DataFrame({"name": ["?"] * unseen + ["a"] * (4 - unseen)})).states
    assert bool(describe_states(profile, states)) == (is_said and unseen != 4)


def test_distances_are_those_of_the_covariance_of_ledoit_and_wolf():
    from sklearn.covariance import LedoitWolf

    x = np.random.default_rng(0).normal(size=(500, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])
    distance, _ = JointInputs.fit(x + 3.0).compute_distances(x + 3.0)
    expected = LedoitWolf().fit(x).mahalanobis(x) / 3
    np.testing.assert_allclose(distance, expected, rtol=0.02)
    constant = np.column_stack([x, np.full(500, 7.0)])
    assert np.isfinite(JointInputs.fit(constant).compute_distances(constant)).all()


def test_the_least_explained_column_is_that_with_the_largest_residual():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 4))
    x[:, 1] = x[:, 0] + 0.05 * rng.normal(size=2000)
    joint = JointInputs.fit(x)
    # The third and the fourth follow nothing, so that their residuals are their values.
    assert joint.find_least_explained_input(np.array([[0.0, 0.0, 4.0, 1.0], [0.0, 0.0, -1.0, 5.0]])).tolist() == [2, 3]
    assert set(joint.find_least_explained_input(np.array([[1.0, 0.0, 0.5, 0.5]]))) <= {0, 1}


def test_later_rows_are_measured_in_chunks_as_alone(profile):
    rows = pl.concat([NEW_ROWS] * 5)
    measured = profile.measure(rows)
    assert measured.score[:1000] == pytest.approx(profile.measure(NEW_ROWS).score, rel=1e-9)
    assert (measured.states == 5 * profile.measure(NEW_ROWS).states).all()
    assert measured.states.sum() == 5000 * 6


def test_days_outside_the_range_are_shown_as_dates():
    """Days are counted from 1970 on; 20089 is the first of 2025."""
    profile = FeatureProfile.fit(pl.DataFrame({"day": np.linspace(19000.0, 20000.0, 200)}))
    new = pl.DataFrame({"day": [20089.0, 18262.0]})
    assert describe_unusual_cells(profile, new, {"day"}) == [
        ["'day' above the training range: 2025-01-01 > 2024-10-04"],
        ["'day' below the training range: 2020-01-01 < 2022-01-08"],
    ]
    assert describe_unusual_cells(profile, new)[0] == ["'day' above the training range: 20089 > 20000"]
    far = pl.DataFrame({"day": [1e9]})
    assert describe_unusual_cells(profile, far, {"day"}) == [["'day' above the training range: 1e+09 > 2024-10-04"]]
