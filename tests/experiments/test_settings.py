import copy

import pytest

from ddpn.errors import ConfigError
from ddpn.experiments import settings
from ddpn.experiments.experiment import Training
from ddpn.experiments.settings import experiment, methods, names, parse
from ddpn.heads import Head

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "wave"},
    "methods": ["ddpn", "poisson"],
    "minutes": 1,
    "training": {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0},
}


def changed(**changes):
    return copy.deepcopy(CONTENT) | changes


def trained(**changes):
    return changed(training=CONTENT["training"] | changes)


@pytest.mark.parametrize("name", names())
def test_every_file_of_the_catalogue_parses_and_its_heads_can_be_built(name):
    found = experiment(name)
    assert found.title
    assert found.minutes > 0
    assert all(isinstance(run.head, Head) for run in found.runs())
    folders = [run.name for run in found.runs()]
    assert len(set(folders)) == len(folders)


def test_the_paper_s_ten_methods_and_three_glms_are_run_on_length_of_stay():
    found = experiment("length-of-stay")
    assert [m.exact for m in found.methods] == [False] * 10 + [True] * 3
    assert found.training.members == 5
    # 15 epochs of 80,000 rows in batches of 128; the 16,000 rows of the sample are seen 75 times.
    assert found.training.epochs_for(80_000) == 15
    assert found.training.epochs_for(16_000) == 75


DATA = {
    "shelves": {"name": "shelves", "beams": 9, "points": 4},
    "reviews": {"name": "reviews", "text": ["text"], "max_length": 9},
}


def of(data, backbone, **more):
    content = changed(data=DATA[data], **more) | ({} if backbone is None else {"backbone": {"name": backbone}})
    del content["simulation"]
    return content


REFUSED = {
    "unknown key": (changed(metods=[]), r"keys in test.toml must be among .*methods.*, got 'metods'. Did you mean"),
    "unknown method": (changed(methods=["dpn"]), r"methods in test.toml .*, got 'dpn'. Did you mean \"ddpn\"\?"),
    "method twice": (changed(methods=["ddpn", "ddpn"]), "methods in test.toml must be named once, got 'ddpn' twice"),
    "training key": (trained(rate=1), r"keys of \[training\] in test.toml must be among .*lr.*, got 'rate'"),
    "simulation key": (changed(simulation={"nam": "wave"}), "keys of simulation in test.toml .*, got 'nam'"),
    "simulation": (changed(simulation={"name": "waves"}), "simulations in test.toml must be among .*, got 'waves'"),
    "both sources": (changed(data={"name": "bike_sharing", "features": "raw"}), "either data or simulation, got both"),
    "epochs and steps": (trained(steps=5), "either epochs or steps, got both"),
    "grid key": (changed(grid={"initial_gama": [1.0]}), r"keys of \[grid\] in test.toml for ddpn .*'initial_gama'"),
    "option of one head": (changed(grid={"initial_gamma": [1.0]}), "for poisson must be among .*, got 'initial_gamma'"),
    "grid value twice": (changed(grid={"epochs": [1, 1]}), "values of epochs in test.toml must be named once, got 1"),
    "grid value": (changed(grid={"epochs": [0]}), "epochs must be a whole number of at least 1, got 0"),
    "grid of a glm": (changed(methods=["poisson_glm"], grid={"epochs": [1]}), "no .grid. with the exact poisson_glm"),
    "members": (trained(members=0), "members must be a whole number of at least 1, got 0"),
    "lr": (trained(lr=0.0), "lr must be finite and positive, got 0.0"),
    "lr in words": (trained(lr="small"), "lr must be finite and positive, got 'small'"),
    "weight decay": (trained(weight_decay=-1.0), "weight_decay must be finite and at least 0, got -1.0"),
    "seed": (trained(seed=-1), "seed must be a whole number from 0 to 2147483647, got -1"),
    "great seed": (trained(seed=10**22), "seed must be a whole number from 0 to 2147483647, got 1000"),
    "hidden": (trained(hidden=[8, 0]), r"hidden must hold widths of at least 1, got \[8, 0\]"),
    "warmup": (trained(warmup=1.0), r"warmup must lie in \[0, 1\), got 1.0"),
    "precision": (trained(precision="fp16"), "precision must be float32 or bf16, got 'fp16'"),
    "grid of one value": (changed(grid={"seed": 3}), r"seed of \[grid\] in test.toml must be a list of .*, got 3"),
    "steps beside epochs": (changed(grid={"steps": [3]}), r"must have steps in \[training\] where \[grid\] has them"),
    "a word for a table": (changed(backbone="vit"), "backbone in test.toml must be a table, got 'vit'"),
    "network of a table": (changed(backbone={"name": "vit"}), "must have no .backbone. where rows are a table"),
    "no network": (of("shelves", None), "backbones for shelves in test.toml must be among countnet3d, got None"),
    "another network": (of("shelves", "vit"), "backbones for shelves in test.toml must be among countnet3d, got 'vit'"),
    "no tokenizer": (of("reviews", "text"), "must have the key pretrained, got none. Its tokenizer comes with it"),
    "outside": (of("shelves", "countnet3d", outside="bible"), "data with bible outside in test.toml must be among rev"),
    "table": (
        changed(reference={"table": "accuracy", "dataset": "reviews"}),
        "tables of the paper in test.toml must be among .*, got 'accuracy'. Choose one",
    ),
    "its data set": (
        changed(reference={"table": "accuracy_calibration", "dataset": "review"}),
        "data sets of the paper in test.toml must be among .*, got 'review'. Did you mean \"reviews\"",
    ),
    "reference": (changed(reference={"table": "x"}), "reference in test.toml must have the key dataset"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_makes_no_sense_is_told(content, message):
    with pytest.raises(ConfigError, match=message):
        parse("test", content)


@pytest.mark.parametrize("key", ["title", "paper", "methods", "training", "minutes"])
def test_a_missing_key_is_told(key):
    content = changed()
    del content[key]
    with pytest.raises(ConfigError, match=f"must have the key {key}"):
        parse("test", content)


def test_a_data_set_that_is_not_there_is_told():
    content = changed(data={"name": "bikes", "features": "raw"})
    del content["simulation"]
    with pytest.raises(ConfigError, match=r"data sets in test.toml must be among .*bike_sharing.*, got 'bikes'"):
        parse("test", content)


def test_an_unknown_experiment_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match=r"got 'wav'. Did you mean \"wave\""):
        experiment("wav")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "x"}, r"\[new\] in methods.toml must have the key head"),
        ({"label": "x", "head": "poisson", "opts": {}}, r"keys of \[new\] in methods.toml .*, got 'opts'"),
        ({"label": "x", "head": "poison"}, "likelihood must be one of"),
        ({"label": "x", "head": "double_poisson", "exact": True, "options": {"beta": 1.0}}, "must have no options"),
    ],
)
def test_a_method_that_makes_no_sense_is_told(monkeypatch, row, message):
    monkeypatch.setattr(settings, "_read", lambda name: {"new": row})
    with pytest.raises(ConfigError, match=message):
        methods()


def test_toml_that_is_none_is_told(monkeypatch, tmp_path):
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "bad.toml").write_text("title = 'a'\ntitle = 'b'\n")
    monkeypatch.setattr(settings, "files", lambda package: tmp_path)
    with pytest.raises(ConfigError, match=r"bad.toml must be TOML, got .*line 2"):
        experiment("bad")


def test_a_grid_reaches_head_and_training():
    content = changed(methods=["ddpn"], grid={"initial_gamma": [1.0, 10.0], "epochs": [2, 4]})
    runs = parse("test", content).runs()
    assert [run.name for run in runs] == [f"ddpn-initial_gamma={g}-epochs={e}" for g in ("1.0", "10.0") for e in (2, 4)]
    assert [(run.head.initial_gamma, run.training.epochs) for run in runs] == [
        (1.0, 2), (1.0, 4), (10.0, 2), (10.0, 4)
    ]  # fmt: skip


def test_what_a_glm_depends_on_is_not_how_networks_are_trained():
    few, many = (parse("test", changed(methods=["ddpn", "poisson_glm"])).with_training(members=m) for m in (2, 3))
    for_networks, for_glms = ([each.runs()[place].as_dict() for each in (few, many)] for place in (0, 1))
    assert for_networks[0] != for_networks[1]
    assert for_glms[0] == for_glms[1]


def test_only_some_methods_keep_the_experiment_s_order():
    found = parse("test", changed()).with_methods(["poisson", "ddpn"])
    assert [m.name for m in found.methods] == ["ddpn", "poisson"]
    with pytest.raises(ConfigError, match="methods in test must be among ddpn, poisson, got 'nb'"):
        found.with_methods(["nb"])


def test_a_batch_larger_than_the_rows_is_one_step():
    assert Training(batch_size=128, lr=1.0, weight_decay=0.0, steps=10).epochs_for(50) == 10
