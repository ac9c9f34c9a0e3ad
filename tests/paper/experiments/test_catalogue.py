"""The catalogue: every file parses, and mistakes in a file are reported."""

import copy

import pytest

from ddpn.networks.heads import HEADS, Head
from ddpn.paper.experiments import catalogue
from ddpn.paper.experiments.catalogue import experiment, methods, names, parse, reference, select
from ddpn.paper.experiments.experiment import Training
from ddpn.runtime.errors import ConfigError

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "wave"},
    "methods": ["ddpn", "poisson"],
    "minutes": 1,
    "training": {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0},
}


def changed(*without, **changes):
    return {key: value for key, value in (copy.deepcopy(CONTENT) | changes).items() if key not in without}


def trained(**changes):
    return changed(training=CONTENT["training"] | changes)


@pytest.mark.parametrize("name", names())
def test_every_file_parses_and_its_heads_can_be_built(name):
    found = experiment(name)
    assert found.title
    assert found.minutes > 0
    assert all(isinstance(run.head, Head) for run in found.runs())
    folders = [run.name for run in found.runs()]
    assert len(set(folders)) == len(folders)


def test_methods_use_every_head_of_the_paper():
    found = methods()
    of_the_paper = {"double_poisson", "poisson", "negative_binomial"}
    of_the_paper |= {name for name in HEADS if "gaussian" in name}
    assert {method.head for method in found.values()} == of_the_paper
    assert {name for name, method in found.items() if method.is_continuous} == {
        name for name in found if "gaussian" in name
    }


def test_the_ten_methods_and_three_glms_of_the_paper_are_run_on_length_of_stay():
    found = experiment("length-of-stay")
    assert [m.exact for m in found.methods] == [False] * 10 + [True] * 3
    assert found.training.members == 5
    # 15 epochs of 80,000 rows in batches of 128; the 16,000 rows of the sample are seen 75 times.
    assert found.training.epochs_for(80_000) == 15
    assert found.training.epochs_for(16_000) == 75


DATA = {
    "shelves": {"name": "shelves", "beams": 9, "points": 4},
    "reviews": {"name": "reviews", "text": ["text"], "max_length": 9},
    "table": {"name": "bike_sharing", "features": "raw"},
}
ANALYTIC = {"title": "t", "paper": "p", "minutes": 1, "analytic": True, "figures": ["epsilon"]}


def of(data, backbone=None, **more):
    content = changed("simulation", data=DATA[data], **more)
    return content | ({} if backbone is None else {"backbone": {"name": backbone}})


INVALID = {
    "unknown key": (changed(metods=[]), "Unknown key 'metods' in test.toml.* 'methods'"),
    "dry steps": (changed(dry_steps=3), "Unknown key 'dry_steps'"),
    "name": (changed(name="x"), "Unknown key 'name'"),
    "unknown method": (changed(methods=["dpn"]), "methods of test.toml must be one of .*'dpn'.* 'ddpn'"),
    "method twice": (changed(methods=["ddpn", "ddpn"]), "methods of test.toml must be unique, got 'ddpn'"),
    "training key": (trained(rate=1), r"Unknown key 'rate' in \[training\] of test.toml"),
    "simulation key": (changed(simulation={"nam": "wave"}), "Unknown key 'nam' in simulation"),
    "both sources": (changed(data=DATA["table"]), "either data or simulation"),
    "no source": (changed("simulation"), "either data or simulation"),
    "data key": (changed("simulation", data={"name": "bike_sharing"}), "Missing key 'features' in data"),
    "epochs and steps": (trained(steps=5), "either epochs or steps"),
    "grid value twice": (changed(grid={"epochs": [1, 1]}), r"epochs in \[grid\] of test.toml must be unique, got 1"),
    "grid value": (changed(grid={"members": [0]}), "members must be an integer of at least 1, got 0"),
    "grid of a glm": (changed(methods=["poisson_glm"], grid={"epochs": [1]}), "no .grid. with poisson_glm"),
    "grid of one value": (changed(grid={"seed": 3}), r"seed in \[grid\] .* must be a list .*, got 3"),
    "steps beside epochs": (changed(grid={"steps": [3]}), "either epochs or steps"),
    "members": (trained(members=0), "members must be an integer of at least 1, got 0"),
    "negative seed": (trained(seed=-1), "seed must be an integer from 0 to 2147483647, got -1"),
    "large seed": (trained(seed=10**22), "seed must be an integer from 0 to 2147483647, got 1000"),
    "hidden": (trained(hidden=[8, 0]), "width in hidden must be an integer of at least 1, got 0"),
    "no hidden layer": (trained(hidden=[]), "width in hidden must be"),
    "workers": (trained(workers=-1), "workers must be an integer of at least 0, got -1"),
    "flag": (changed(in_all="no"), "in_all of test.toml must be true or false, got 'no'"),
    "a word for a table": (changed(backbone="vit"), "backbone of test.toml must be a table, got 'vit'"),
    "backbone of a table": (of("table", "vit"), "no .backbone. for a table"),
    "no backbone": (of("shelves"), "backbone of test.toml must be 'countnet3d', got None"),
    "wrong backbone": (of("shelves", "vit"), "backbone of test.toml must be 'countnet3d', got 'vit'"),
    "no tokenizer": (of("reviews", "text"), "Missing key 'pretrained' in .backbone."),
    "ood rows": (
        of("shelves", "countnet3d", ood="bible"),
        "data of test.toml with ood must be 'reviews', got 'shelves'",
    ),
    "unknown ood rows": (of("shelves", "countnet3d", ood="koran"), "ood of test.toml must be 'bible', got 'koran'"),
    "table": (changed(reference={"table": "accuracy", "dataset": "reviews"}), "table of the paper must .*'accuracy'"),
    "its data set": (
        changed(reference={"table": "accuracy_calibration", "dataset": "review"}),
        "dataset of the table accuracy_calibration must .*'review'.* 'reviews'",
    ),
    "reference": (changed(reference={"table": "x"}), "Missing key 'dataset' in reference"),
    "view of another": ({"of": "reviews", "title": "t"}, "Missing key 'paper'"),
    "analytic with methods": (ANALYTIC | {"methods": ["ddpn"]}, "Unknown key 'methods'"),
    "analytic without figures": ({k: v for k, v in ANALYTIC.items() if k != "figures"}, "Missing key 'figures'"),
    "analytic as a word": (ANALYTIC | {"analytic": "yes"}, "Missing key 'methods'"),
    **{f"no {key}": (changed(key), f"Missing key '{key}'") for key in ("title", "paper", "methods", "minutes")},
    "no training": (changed("training"), "Missing key 'training'"),
    "no lr": (changed(training={"epochs": 3}), r"Missing key 'batch_size' in \[training\]"),
}


@pytest.mark.parametrize(("content", "message"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_file_is_reported(content, message):
    with pytest.raises(ConfigError, match=message):
        parse("test", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(grid={"initial_gama": [1.0]}), "initial_gama"),
        (changed(methods=["poisson"], grid={"initial_gamma": [1.0]}), "options of poisson|poisson"),
    ],
    ids=["unknown", "of another head"],
)
def test_a_grid_of_unknown_options_is_reported_when_heads_are_built(content, message):
    with pytest.raises(ConfigError, match=message):
        parse("test", content).runs()[0].as_dict()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "x"}, r"Missing key 'head' in \[new\] of methods.toml"),
        ({"label": "x", "head": "poisson", "opts": {}}, r"Unknown key 'opts' in \[new\] of methods.toml"),
        ({"label": "x", "head": "double_poisson", "exact": True, "options": {"beta": 1.0}}, "new must have no options"),
    ],
)
def test_an_invalid_method_is_reported(monkeypatch, row, message):
    monkeypatch.setattr(catalogue, "read", lambda name: {"new": row})
    with pytest.raises(ConfigError, match=message):
        methods()


def test_invalid_toml_is_reported_with_its_line(monkeypatch, tmp_path):
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "bad.toml").write_text("title = 'a'\ntitle = 'b'\n")
    monkeypatch.setattr(catalogue, "files", lambda package: tmp_path)
    with pytest.raises(ConfigError, match=r"bad.toml is not valid TOML: .*line 2"):
        experiment("bad")


def test_an_experiment_of_figures_has_no_runs():
    found = experiment("moments")
    assert (found.runs(), found.needs, found.figures) == ([], "nothing", ("epsilon",))


def test_a_grid_reaches_head_and_training():
    content = changed(methods=["ddpn"], grid={"initial_gamma": [1.0, 10.0], "epochs": [2, 4]})
    runs = parse("test", content).runs()
    assert [run.name for run in runs] == [f"ddpn-initial_gamma={g}-epochs={e}" for g in ("1.0", "10.0") for e in (2, 4)]
    assert [(run.head.initial_gamma, run.training.epochs) for run in runs] == [
        (1.0, 2), (1.0, 4), (10.0, 2), (10.0, 4)
    ]  # fmt: skip


def test_a_glm_does_not_depend_on_how_networks_are_trained():
    few, many = (parse("test", changed(methods=["ddpn", "poisson_glm"])).with_training(members=m) for m in (2, 3))
    for_networks, for_glms = ([each.runs()[place].as_dict() for each in (few, many)] for place in (0, 1))
    assert for_networks[0] != for_networks[1]
    assert for_glms[0] == for_glms[1]


def test_a_batch_larger_than_the_rows_is_one_step():
    assert Training(batch_size=128, lr=1.0, weight_decay=0.0, steps=10).epochs_for(50) == 10


def test_a_quick_run_has_its_own_folder_and_a_tenth_of_the_steps():
    short = parse("test", trained(epochs=200, members=5)).quick()
    assert (short.name, short.training.epochs, short.training.members) == ("test-quick", 20, 2)
    assert parse("test", changed()).quick().training.epochs == 1
    assert experiment("beta").quick().grid == {"epochs": (20, 40, 60, 80, 100)}
    assert experiment("gamma").quick().grid == experiment("gamma").grid


def test_all_is_every_experiment_once():
    # A view of another experiment is run with it.
    own = [name for name in names() if name.startswith("paper-")]
    assert len(own) == 3
    every = [name for name in names() if name not in ("ood", *own)]
    assert sorted(each.name for each in select(["wave", "all"])) == every
    assert sorted(each.name for each in select(["all", own[0]])) == sorted([*every, own[0]])
    assert [each.name for each in select(["wave", "wave"])] == ["wave"]


def test_a_method_must_be_in_one_of_the_experiments():
    assert len(select(["wave", "length-of-stay"], only=["poisson_glm"])) == 2
    with pytest.raises(ConfigError, match=r"method in --only must be one of .*'poisson_glm'"):
        select(["wave"], only=["poisson_glm"])


def test_options_change_the_training():
    (found,) = select(["wave"], quick=True, members=3, seed=9)
    assert (found.name, found.training.members, found.training.seed) == ("wave-quick", 3, 9)


def test_dry_runs_of_different_lengths_are_different_runs():
    (two,), (five,) = (select(["wave"], max_steps=steps) for steps in (2, 5))
    assert two.runs()[0].as_dict() != five.runs()[0].as_dict()


def test_references_hold_both_kinds_of_every_method():
    kinds = {(kind, method) for kind, method, _ in reference("accuracy_calibration", "length_of_stay")}
    assert len(kinds) == 20


def test_ood_detection_is_there():
    found = reference("ood_detection")
    assert found["", "beta_ddpn_0.5", "auroc"] > found["", "poisson", "auroc"]
