"""Labels of groups, and how a table and its plan become samples that carry them."""

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.tables.cells import MISSING
from ddpn.tables.row_hashes import EQUAL_INPUTS, group_labels_of
from ddpn.workflow.plan import Plan, plan_from, plan_of
from ddpn.workflow.preparing import fingerprint, prepare


@pytest.fixture(scope="module")
def panel() -> pl.DataFrame:
    """60 persons in 5 years; `person` is a large number, as ids are."""
    rng = np.random.default_rng(0)
    person = np.repeat(10**15 + np.arange(60), 5)
    age = np.repeat(rng.normal(size=60).round(2), 5)
    year = np.tile(np.arange(2018, 2023), 60)
    return pl.DataFrame({"person": person, "year": year, "age": age, "visits": rng.poisson(2.0, 300)})


def same(labels: np.ndarray, expected: np.ndarray) -> bool:
    """Whether labels are equal exactly where the expected ones are."""
    pairs = np.unique(np.stack([labels.astype(np.uint64), expected.astype(np.uint64)]), axis=1).shape[1]
    return pairs == len(np.unique(labels)) == len(np.unique(expected))


def test_labels_follow_one_column_several_or_all_inputs(panel):
    X = panel.select("age")
    assert same(group_labels_of(panel, ("person",), MISSING, X), panel["person"].to_numpy())
    assert same(group_labels_of(panel, ("person", "year"), MISSING, X), np.arange(300))
    equal = panel["age"].rank("dense").to_numpy()
    assert same(group_labels_of(panel, (EQUAL_INPUTS,), MISSING, X), equal)
    assert group_labels_of(panel, (), MISSING, X) is None
    assert group_labels_of(panel.drop("person"), ("person",), MISSING, X) is None


def test_labels_do_not_depend_on_the_other_rows(panel):
    X = panel.select("age")
    whole = group_labels_of(panel, ("person",), MISSING, X)
    part = group_labels_of(panel[100:200], ("person",), MISSING, X[100:200])
    np.testing.assert_array_equal(part, whole[100:200])


@pytest.mark.parametrize("cells", [["a", "b", "a", "NA", None, " a "], [1.0, 2.0, 1.0, float("nan"), None, 1.0]])
def test_rows_without_a_value_are_groups_of_their_own(cells):
    frame = pl.DataFrame({"person": cells})
    labels = group_labels_of(frame, ("person",), MISSING, frame)
    assert same(labels, np.array([1, 2, 1, 3, 4, 1]))


def test_a_group_column_is_no_input_unless_asked(panel):
    found = prepare(panel, Plan(target="visits", group=("person",)))
    assert "person" not in found.sample.X.columns
    assert "--use person" in next(column.left_out for column in found.roles.columns if column.name == "person")
    assert same(found.sample.group, panel["person"].to_numpy())
    kept = prepare(panel, Plan(target="visits", group=("person",), use=("person",)))
    assert "person" in kept.sample.X.columns


def test_parts_have_different_groups(panel):
    found = prepare(panel, Plan(target="visits", group=("person",)))
    parts = [set(part.group.tolist()) for part in (found.train, found.validation, found.test)]
    assert len(set().union(*parts)) == sum(map(len, parts)) == 60
    equal = prepare(panel.drop("year"), Plan(target="visits", drop=("person",), group=(EQUAL_INPUTS,)))
    assert not set(equal.known.X["age"]) & set(equal.test.X["age"])
    assert "inputs" in equal.split.meaning


def test_missing_values_are_reported(panel):
    holes = panel.with_columns(person=pl.when(pl.col("year") == 2020).then(None).otherwise(pl.col("person")))
    found = prepare(holes, Plan(target="visits", group=("person",)))
    assert len(np.unique(found.sample.group)) == 60 + 60
    assert any("person is missing in 60 rows" in sentence for sentence in found.warnings)


def test_groups_are_part_of_the_fingerprint(panel):
    plan = Plan(target="visits", group=("person",))
    other = panel.with_columns(person=pl.col("person").reverse() // 2)
    assert fingerprint(prepare(panel, plan).sample) != fingerprint(prepare(other, plan).sample)


def test_options_and_files_name_groups(tmp_path, panel):
    (tmp_path / "plan.toml").write_text('target = "visits"\ngroup = ["person", "year"]\n')
    assert plan_of({}, tmp_path / "plan.toml").group == ("person", "year")
    plan = plan_of({"target": "visits", "group": "person, year"})
    assert plan.group == ("person", "year")
    assert plan_from(plan.as_dict()) == plan
    with pytest.raises(ConfigError, match="'visits' has more than one role"):
        Plan(target="visits", group=("visits",))
    with pytest.raises(InputError, match=r"No column named 'persn' \(`group`\)\. Did you mean 'person'"):
        prepare(panel, Plan(target="visits", group=("persn",)))
