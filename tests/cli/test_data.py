"""ddpn data."""

import re


def test_data_are_listed_with_what_is_here(ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    found = ddpn("data", "list")
    assert found.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in found.output.splitlines() if line.startswith("│")}
    assert re.search(r"20,190 .*public domain.* here", rows["rand_health"])
    assert re.search(r" - .*https://raw.*MIT.* absent", rows["length_of_stay"])
    assert re.search(r" - .*https://archive.*CC BY 4.0.* absent", rows["bike_sharing"])
    assert re.search(r" - .*https://datarepo.* absent", rows["reviews"])
    assert re.search(r" - .*http://images.* absent", rows["coco_people"])


def test_damaged_data_are_listed_as_damaged(ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    (tmp_path / "bike_sharing").mkdir()
    (tmp_path / "bike_sharing" / "hour.csv").write_text("instant\n1\n")
    found = ddpn("data", "list")
    assert found.exit_code == 0
    assert len(re.findall("damaged: ", found.output)) == 1
    (row,) = [line for line in found.output.splitlines() if "bike_sharing " in line]
    assert re.search(r" - .*damaged: ", row)


def test_getting_data(ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    assert ddpn("data", "get", "rand_health").output == "rand_health: 20,190 rows, inside statsmodels\n"
    unknown = ddpn("data", "get", "bike_share")
    assert unknown.exit_code == 2
    known = "rand_health, length_of_stay, bike_sharing, reviews, coco_people"
    assert f"must be one of {known}, got 'bike_share'. Did you mean" in unknown.stderr
    absent = ddpn("data", "get", "reviews")
    assert absent.exit_code == 1
    assert absent.stderr.startswith(f"Error: reviews must lie in {tmp_path / 'reviews'}, got neither")
    assert absent.stderr.count("\n") == 1
