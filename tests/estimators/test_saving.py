"""A saved model is the same model, and a damaged one is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ddpn import CountGLM, DDPNRegressor, InputError
from ddpn.members import MEMBERS
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import LargeNetworks
from ddpn.members.trees.member import JointTrees

FILES = {
    "model.json",
    "calibration.safetensors",
    "features.json",
    "features.safetensors",
    "networks/networks.json",
    "networks/networks.safetensors",
    "networks/encoder.json",
}


@pytest.fixture
def saved(fitted, tmp_path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_predictions_are_equal_bit_for_bit(exposed, counts, exposures, tmp_path):
    X, _ = counts
    exposed.save(tmp_path / "model")
    loaded = DDPNRegressor.load(tmp_path / "model")
    for exposure in (exposures, 2.0 * exposures):
        ours, theirs = (m.predict_distribution(X, exposure).components for m in (exposed, loaded))
        for name in ours.arg_constraints:
            assert (getattr(ours, name) == getattr(theirs, name)).all()
    ours, theirs = (m.predict_interval(X[:20], 0.9, exposures[:20]) for m in (exposed, loaded))
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": (), "random_state": np.random.RandomState(3)},
        {"numeric": "steps", "checkpoint": "somewhere", "verbose": True},
        {
            "likelihood": "double_poisson",
            "head_options": {"gamma": "shared"},
            "training_options": {"activation": "tanh"},
        },
    ],
    ids=["linear", "steps", "shared gamma"],
)
def test_every_kind_of_network_is_restored(quick, counts, tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(tmp_path)
    model = quick(**options).fit(*counts)
    model.save(Path("deep") / "model")
    loaded = DDPNRegressor.load("deep/model")
    assert (loaded.predict(counts[0]) == model.predict(counts[0])).all()
    kept = {name: None if name in ("checkpoint", "random_state") else v for name, v in model.get_params().items()}
    lost = {"verbose": False, "random_state": loaded.random_state if "random_state" not in options else None}
    assert loaded.get_params() == kept | lost


@pytest.fixture(scope="module")
def of_all(quick, larger) -> DDPNRegressor:
    """A model with every kind of member, calibrated."""
    X, y = larger
    ward = np.where(X[:, 1] > 0, "A", "B")
    frame = pd.DataFrame({"x": X[:, 0], "ward": ward, "age": np.where(y > 4, np.nan, y)})
    others = [name for name in MEMBERS if name != "networks"]
    few = NetworkOptions(members=2, hidden=(8,), epochs=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LargeNetworks, "like", lambda task: LargeNetworks(task.head, few))
        patch.setattr(JointTrees, "like", lambda task: JointTrees(leaves=(4,), rounds=30))
        model = quick(mix_with=others, epochs=2, training_options={"batch_size": 100}).fit(frame[:210], y[:210])
    return model.fit_intervals(frame[270:], y[270:]).fit_ood(frame[270:])


@pytest.fixture(scope="module")
def saved_of_all(of_all, tmp_path_factory) -> Path:
    """Its folder, for tests that only read."""
    folder = tmp_path_factory.mktemp("of_all") / "model"
    of_all.save(folder)
    return folder


def test_all_members_and_their_calibration_are_restored(of_all, saved_of_all):
    loaded = DDPNRegressor.load(saved_of_all)
    assert loaded.predictor_.weights == of_all.predictor_.weights
    assert loaded.predictor_.seconds == of_all.predictor_.seconds
    new = pd.DataFrame({"age": [np.nan, 44.0], "ward": ["unseen", "B"], "x": [0.5, np.nan]})
    assert (loaded.predict(new) == of_all.predict(new)).all()
    assert loaded.feature_names_in_.tolist() == ["x", "ward", "age"]
    for name in of_all.predictor_.members:
        ours, theirs = (model.predictor_.distribution(new, of=name) for model in (of_all, loaded))
        assert (ours.mean == theirs.mean).all()
        assert (ours.variance == theirs.variance).all()
    ours, theirs = (model.predict_interval(new, 0.7, kind="calibrated") for model in (of_all, loaded))
    assert (ours == theirs).all()
    assert (loaded.interval_level(0.9), loaded.is_ood(new).tolist()) == (
        of_all.interval_level(0.9),
        of_all.is_ood(new).tolist(),
    )
    with pytest.raises(InputError, match="'ward'"):
        loaded.predict(new[["age", "x"]])


def test_no_file_is_a_pickle(saved_of_all):
    for name in files_of(saved_of_all):
        content = (saved_of_all / name).read_bytes()
        if name.endswith(".json"):
            json.loads(content)
        elif name.endswith(".safetensors"):
            length = int.from_bytes(content[:8], "little")
            dtypes = {entry["dtype"] for entry in json.loads(content[8 : 8 + length]).values()}
            usual = {"features.safetensors": {"F32", "F64", "I64", "U64"}}
            usual |= {f"{kind}/networks.safetensors": {"F32"} for kind in ("networks", "large_networks")}
            assert dtypes <= usual.get(name, {"F64", "I32", "I64"})
        else:
            pytest.fail(f"{name} is neither JSON nor safetensors")


def test_facts_about_the_training_are_restored(fitted, saved):
    loaded = DDPNRegressor.load(saved)
    assert loaded.history_.as_dict() == fitted.history_.as_dict()
    assert (loaded.numeric_, loaded.n_rows_) == (fitted.numeric_, fitted.n_rows_)
    assert loaded.n_features_in_ == 3
    assert not hasattr(loaded, "interval_levels_")


def test_numbers_of_numpy_are_saved_as_plain_numbers(quick, counts, tmp_path):
    options = {
        "hidden": (np.int64(4),),
        "members": np.int64(2),
        "training_options": {"lr": np.float32(1e-3), "batch_size": np.int64(50)},
        "likelihood": "double_poisson",
        "head_options": {"beta": np.float32(0.5)},
    }
    quick(**options).fit(*counts).save(tmp_path / "model")
    loaded = DDPNRegressor.load(tmp_path / "model")
    assert loaded.hidden == (4,)
    assert loaded.training_options == {"lr": pytest.approx(1e-3), "batch_size": 50}
    assert loaded.fit(*counts).model_.members == 2


def test_options_changed_after_fitting_do_not_change_the_model(quick, counts, tmp_path):
    model = quick().fit(*counts)
    wanted = model.predict(counts[0])
    model.set_params(hidden=(64, 64), members=9, training_options__activation="tanh", likelihood="poisson")
    model.save(tmp_path / "model")
    assert (DDPNRegressor.load(tmp_path / "model").predict(counts[0]) == wanted).all()


def test_a_loaded_model_can_be_saved_again(fitted, saved, counts, tmp_path):
    DDPNRegressor.load(saved).save(tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(saved) == FILES
    for name in FILES - {"model.json"}:
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()
    assert (DDPNRegressor.load(tmp_path / "again").predict(counts[0]) == fitted.predict(counts[0])).all()


def test_an_unfitted_model_is_not_saved(quick, tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        quick().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [DDPNRegressor, CountGLM])
def test_a_new_fit_forgets_the_calibration_that_a_saved_model_keeps(quick, counts, tmp_path, kind):
    model = quick(epochs=1) if kind is DDPNRegressor else CountGLM(likelihood="poisson")
    model.fit(*counts).fit_intervals(*counts, prior_rows=20.0).fit_ood(counts[0], alpha=0.1)
    model.save(tmp_path / "model")
    again = kind.load(tmp_path / "model")
    X = 2.0 * counts[0]
    assert (
        model.predict_interval(X, 0.7, kind="calibrated") == again.predict_interval(X, 0.7, kind="calibrated")
    ).all()
    assert (model.ood_pvalue(X) == again.ood_pvalue(X)).all()
    assert 0.0 < again.is_ood(X).mean() < 1.0
    assert not hasattr(model.fit(*counts), "interval_levels_")


# Damage ----------------------------------------------------------------------------------------------------------


def test_the_manifest_describes_the_model(saved):
    manifest = json.loads((saved / "model.json").read_text())
    assert manifest["estimator"]["options"]["members"] == 3
    assert manifest["members"]["networks"]["facts"]["likelihood"] == "mixed"
    assert set(manifest["files"]) == FILES - {"model.json"}


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_a_damaged_file_is_refused(saved, name, damage):
    content = bytearray((saved / name).read_bytes())
    content[-4] ^= 1
    if damage == "missing":
        (saved / name).unlink()
    else:
        (saved / name).write_bytes(content if damage == "altered" else content[:-7])
    words = f"File not found: .*{name}" if damage == "missing" else f"{name} was truncated or changed"
    with pytest.raises(InputError, match=words):
        DDPNRegressor.load(saved)


def test_an_altered_manifest_is_refused(saved):
    manifest = (saved / "model.json").read_text()
    (saved / "model.json").write_text(manifest.replace('"members": 3', '"members": 2'))
    with pytest.raises(InputError, match=r"model.json was changed or damaged"):
        DDPNRegressor.load(saved)


def test_files_with_right_hashes_and_wrong_content_are_refused(saved, rewrite):
    known = json.loads((saved / "networks" / "networks.json").read_text())
    known["options"]["hidden"] = [9]
    rewrite(saved, {"networks/networks.json": json.dumps(known).encode()})
    with pytest.raises(InputError, match=r"networks.safetensors does not fit"):
        DDPNRegressor.load(saved)
    known["options"] = {"hiden": [8]}
    rewrite(saved, {"networks/networks.json": json.dumps(known).encode()})
    with pytest.raises(InputError, match="do not fit its manifest"):
        DDPNRegressor.load(saved)


def test_another_kind_of_estimator_is_reported(counts, tmp_path, saved):
    CountGLM(likelihood="poisson").fit(*counts).save(tmp_path / "glm")
    with pytest.raises(InputError, match=r"holds a CountGLM, not a DDPNRegressor. Use CountGLM.load"):
        DDPNRegressor.load(tmp_path / "glm")
    with pytest.raises(InputError, match=r"holds a DDPNRegressor, not a CountGLM"):
        CountGLM.load(saved)


def test_a_model_is_overwritten_on_request_only(quick, counts, saved, fitted):
    other = quick(random_state=7).fit(*counts)
    with pytest.raises(InputError, match="already exists"):
        other.save(saved)
    assert (DDPNRegressor.load(saved).predict(counts[0]) == fitted.predict(counts[0])).all()
    other.save(saved, overwrite=True)
    assert (DDPNRegressor.load(saved).predict(counts[0]) == other.predict(counts[0])).all()
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
