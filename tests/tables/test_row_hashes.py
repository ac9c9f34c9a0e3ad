"""Test groups of rows that belong together, and rows of fit that are recognised in any order and format."""

import io

import numpy as np
import polars as pl
import pytest

from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import EQUAL_INPUTS
from ddpn.runtime.errors import InputError
from ddpn.tables.cells import MISSING
from ddpn.tables.groups import label_groups
from ddpn.tables.reading import read_table
from ddpn.tables.seen_rows import SeenRows, hash_sample_rows
from ddpn.workflow.config import FitConfig
from ddpn.workflow.preparing import compute_fingerprint, prepare


@pytest.fixture(scope="module")
def panel() -> pl.DataFrame:
    """60 persons in 5 years; `person` is a large number, as ids are."""
    rng = np.random.default_rng(0)
    person = np.repeat(10**15 + np.arange(60), 5)
    age = np.repeat(rng.normal(size=60).round(2), 5)
    year = np.tile(np.arange(2018, 2023), 60)
    return pl.DataFrame({"person": person, "year": year, "age": age, "visits": rng.poisson(2.0, 300)})


def group_alike(labels: np.ndarray, expected: np.ndarray) -> bool:
    """Return True if labels are equal exactly where the expected ones are."""
    pairs = np.unique(np.stack([labels.astype(np.uint64), expected.astype(np.uint64)]), axis=1).shape[1]
    return pairs == len(np.unique(labels)) == len(np.unique(expected))


def test_labels_follow_one_column_several_or_all_inputs(panel):
    X = panel.select("age")
    assert group_alike(label_groups(panel, ("person",), MISSING, X), panel["person"].to_numpy())
    assert group_alike(label_groups(panel, ("person", "year"), MISSING, X), np.arange(300))
    equal = panel["age"].rank("dense").to_numpy()
    assert group_alike(label_groups(panel, (EQUAL_INPUTS,), MISSING, X), equal)
    assert label_groups(panel, (), MISSING, X) is None
    assert label_groups(panel.drop("person"), ("person",), MISSING, X) is None


@pytest.mark.parametrize("cells", [["a", "b", "a", "NA", None, " a "], [1.0, 2.0, 1.0, float("nan"), None, 1.0]])
def test_rows_without_a_value_are_groups_of_their_own(cells):
    frame = pl.DataFrame({"person": cells})
    labels = label_groups(frame, ("person",), MISSING, frame)
    assert group_alike(labels, np.array([1, 2, 1, 3, 4, 1]))


def test_a_group_column_is_no_input_unless_asked(panel):
    result = prepare(panel, FitConfig(target="visits", group=("person",)))
    assert "person" not in result.sample.X.names
    assert '`use=["person"]`' in next(column.left_out for column in result.roles.columns if column.name == "person")
    assert group_alike(result.sample.group, panel["person"].to_numpy())
    kept = prepare(panel, FitConfig(target="visits", group=("person",), use=("person",)))
    assert "person" in kept.sample.X.names


def test_parts_have_different_groups(panel):
    result = prepare(panel, FitConfig(target="visits", group=("person",)))
    parts = [set(part.group.tolist()) for part in (result.train, result.validation, result.test)]
    assert len(set().union(*parts)) == sum(map(len, parts)) == 60
    equal = prepare(panel.drop("year"), FitConfig(target="visits", drop=("person",), group=(EQUAL_INPUTS,)))
    assert not set(equal.train_and_validation.X.column("age").values) & set(equal.test.X.column("age").values)
    assert "inputs" in equal.split.meaning


def test_missing_values_are_reported(panel):
    holes = panel.with_columns(person=pl.when(pl.col("year") == 2020).then(None).otherwise(pl.col("person")))
    result = prepare(holes, FitConfig(target="visits", group=("person",)))
    assert len(np.unique(result.sample.group)) == 60 + 60
    assert any("person is missing in 60 rows" in sentence for sentence in result.warnings)


def test_groups_are_part_of_the_fingerprint(panel):
    plan = FitConfig(target="visits", group=("person",))
    other = panel.with_columns(person=pl.col("person").reverse() // 2)
    assert compute_fingerprint(prepare(panel, plan).sample) != compute_fingerprint(prepare(other, plan).sample)


# Rows of fit ----------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)


def draw_continuous(rows, seed=0):
    rng = np.random.default_rng(seed)
    X = {"x": rng.normal(size=rows), "word": rng.choice(["a", "b", None], rows).tolist(), "yes": rng.random(rows) < 0.5}
    return CountRows(pl.DataFrame(X), rng.poisson(3.0, rows).astype(float), exposure=rng.uniform(1, 2, rows))


def draw_coarse(rows, seed=0):
    """Draw a table of few values, in which equal rows are ordinary."""
    rng = np.random.default_rng(seed)
    return CountRows(
        pl.DataFrame({"a": rng.integers(0, 6, rows), "b": rng.integers(0, 6, rows)}), rng.poisson(1.0, rows) * 1.0
    )


def concat_samples(*samples):
    exposure = None if samples[0].exposure is None else np.concatenate([sample.exposure for sample in samples])
    return CountRows(
        pl.concat([sample.X for sample in samples]), np.concatenate([sample.y for sample in samples]), None, exposure
    )


def parse_frame(sample):
    return sample.replace(X=read_table(sample.X))


def compute_hashes(sample):
    return hash_sample_rows(parse_frame(sample))


def fit_seen_rows(used, test):
    return SeenRows.from_sample(parse_frame(concat_samples(used, test)), len(used) + np.arange(len(test)))


def select_unseen(seen_rows, table):
    """Select the rows that were not seen, and return the sentence about the others."""
    mask, note = seen_rows.find_unseen(compute_hashes(table))
    return table.rows(mask), note


# Hashes --------------------------------------------------------------------------------------------------------------


def test_every_value_of_a_row_counts():
    one = draw_continuous(50)
    others = [
        one.replace(y=one.y + 1),
        one.replace(exposure=one.exposure + 1e-3),
        one.replace(exposure=None),
        one.replace(X=one.X.with_columns(x=pl.col("x") * 1.001)),
        one.replace(X=one.X.with_columns(word=pl.col("word").fill_null("c"))),
        one.replace(X=one.X.with_columns(yes=~pl.col("yes"))),
        one.replace(X=one.X.select("yes", "word", "x")),
    ]
    hashes = compute_hashes(one)
    assert hashes.dtype == np.uint64
    assert len(np.unique(hashes)) == 50
    for number, other in enumerate(others):
        equal = hashes == compute_hashes(other)
        assert equal.all() == (number == -1)
        assert equal.sum() == (0 if number != 4 else one.X["word"].is_not_null().sum()), number


def test_hashes_are_the_same_on_every_machine():
    sample = CountRows(
        pl.DataFrame({"x": [0.1, None, -0.0], "w": ["é", None, ""], "b": [True, None, False]}), np.arange(3.0)
    )
    assert [f"{value:016x}" for value in compute_hashes(sample).tolist()] == [
        "e42914cc0a575400",
        "cd9fae9e1b2ac54e",
        "38b926d19b65cde4",
    ]


@pytest.mark.parametrize("form", ["csv", "float32", "parquet", "integers"])
def test_formats_and_types_do_not_matter(form):
    one = draw_continuous(200)
    X = one.X.with_columns(number=pl.Series(RNG.integers(0, 9, 200)))
    if form == "csv":
        again = pl.read_csv(io.StringIO(X.write_csv()), null_values=[""])
    elif form == "float32":
        again = pl.read_csv(io.StringIO(X.with_columns(pl.col("x").cast(pl.Float32)).write_csv()))
    elif form == "parquet":
        X.write_parquet(content := io.BytesIO())
        again = pl.read_parquet(content.getvalue())
    else:
        again = X.with_columns(pl.col("number").cast(pl.Float64), pl.col("yes").cast(pl.Int8))
    assert (compute_hashes(one.replace(X=again)) == compute_hashes(one.replace(X=X))).all()


# Which rows are left out ---------------------------------------------------------------------------------------------


def test_sorted_or_partly_new_rows_are_recognised():
    used, test, new = draw_continuous(300), draw_continuous(60, 1), draw_continuous(100, 2)
    seen_rows = fit_seen_rows(used, test)
    table = concat_samples(used.rows(np.arange(100, 300)), test, new)
    order = np.random.default_rng(3).permutation(len(table))
    left, note = select_unseen(seen_rows, table.rows(order).replace(labels=order))
    assert sorted(left.labels.tolist()) == list(range(200, 360))
    assert note == "200 of 360 rows were used to fit the model and are left out of the scores."
    assert select_unseen(seen_rows, concat_samples(used.rows(slice(0, 1)), new))[1].startswith("1 of 101 rows was used")


def test_a_new_table_is_scored_whole():
    seen_rows = fit_seen_rows(draw_continuous(300), draw_continuous(60, 1))
    new = draw_continuous(100, 2)
    left, note = select_unseen(seen_rows, new)
    assert (left.y.tolist(), note) == (new.y.tolist(), "")


def test_a_table_of_known_rows_alone_is_refused():
    used = draw_continuous(300)
    with pytest.raises(InputError, match=r"^All 30 rows were used to fit the model.* not part of the fit\.$"):
        select_unseen(fit_seen_rows(used, draw_continuous(60, 1)), used.rows(np.arange(30)))


def test_equal_rows_of_a_new_table_of_few_values_are_chance():
    scored = 0
    for seed in range(40):
        seen_rows = fit_seen_rows(draw_coarse(400, seed), draw_coarse(100, 1000 + seed))
        left, note = select_unseen(seen_rows, draw_coarse(200, 2000 + seed))
        assert (len(left) == 200) == ("all rows are scored" in note)
        scored += len(left) == 200
    assert scored >= 38


def test_of_equal_rows_as_many_are_left_out_as_fit_had():
    """Whichever of equal rows these are, the re-sorted table of a fit has its test rows again."""
    used, test = draw_coarse(400), draw_coarse(100, 1)
    table = concat_samples(test, used)
    left, note = select_unseen(fit_seen_rows(used, test), table)
    assert note.startswith("400 of 500 rows were used")
    assert np.sort(compute_hashes(left)).tolist() == np.sort(compute_hashes(test)).tolist()
