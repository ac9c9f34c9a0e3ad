import pytest

from ddpn.data import DATASETS, load
from ddpn.errors import InputError


def test_options_go_to_the_loader(tmp_path):
    assert not (load("rand_health", seed=1).split.train == load().split.train).all()
    for name in ("length_of_stay", "bike_sharing"):
        with pytest.raises(InputError, match="a download was not allowed"):
            load(name, folder=tmp_path, may_download=False)


def test_a_name_that_is_not_there():
    with pytest.raises(InputError, match="name must be one of rand_health, length_of_stay, bike_sharing, got 'iris'"):
        load("iris")
    assert "iris" not in DATASETS
