"""ddpn data and ddpn likelihoods."""

import json
import re

from ddpn.networks.heads import DESCRIPTIONS, SHIPPED


def test_data_sets_are_listed_with_their_state(ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    (tmp_path / "bike_sharing").mkdir()
    (tmp_path / "bike_sharing" / "hour.csv").write_text("instant\n1\n")
    found = ddpn("data", "list")
    assert found.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in found.output.splitlines() if line.startswith("│")}
    assert re.search(r"20,190 .*public domain.* available", rows["rand_health"])
    assert re.search(r" - .*https://raw.*MIT.* missing", rows["length_of_stay"])
    assert re.search(r" - .*https://archive.*CC BY 4.0.* damaged: ", rows["bike_sharing"])
    assert re.search(r" - .*https://datarepo.* missing", rows["reviews"])
    assert re.search(r" - .*http://images.* missing", rows["coco_people"])


def test_getting_data(ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    assert ddpn("data", "get", "rand_health").output == "rand_health: 20,190 rows, inside statsmodels\n"
    unknown = ddpn("data", "get", "bike_share")
    assert unknown.exit_code == 2
    assert "got 'bike_share'. Did you mean 'bike_sharing'?" in unknown.stderr
    missing = ddpn("data", "get", "reviews")
    assert missing.exit_code == 1
    assert missing.stderr.startswith(f"Error: No reviews found: {tmp_path / 'reviews'} has neither")
    assert missing.stderr.count("\n") == 1


def test_likelihoods_are_listed(ddpn):
    assert set(DESCRIPTIONS) == set(SHIPPED)
    shown = ddpn("likelihoods").stdout
    assert all(name in shown for name in SHIPPED)
    assert "mixed (default)" in shown
    assert json.loads(ddpn("likelihoods", "--json").stdout) == DESCRIPTIONS
