"""Test that small work uses one thread, large work the user's number, and that the user's setting comes back."""

from threading import Event, Thread

import pytest
import torch
from threadpoolctl import threadpool_info

from ddpn.runtime import threads
from ddpn.runtime.threads import (
    MIN_THREADED_CELLS,
    MIN_THREADED_MULTIPLY_ADDS,
    limit_torch_threads,
    limit_tree_threads,
    single_thread,
)


@pytest.fixture(autouse=True)
def set_three_threads():
    """Set three threads, as a user may, and restore the setting afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def get_settings():
    return torch.get_num_threads(), torch.backends.mkldnn.enabled


def test_small_operations_have_one_thread_and_large_ones_the_users():
    for work, inside in ((MIN_THREADED_MULTIPLY_ADDS - 1, 1), (MIN_THREADED_MULTIPLY_ADDS, 3), (float("inf"), 3)):
        with limit_torch_threads(work):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3


def test_the_setting_is_restored_after_an_error_and_by_nested_blocks():
    before = get_settings()
    with single_thread():
        with single_thread(), limit_torch_threads(MIN_THREADED_MULTIPLY_ADDS):
            assert torch.get_num_threads() == 1, "what is large within small work may not have more"
        assert torch.get_num_threads() == 1
    assert get_settings() == before
    with pytest.raises(ZeroDivisionError), single_thread():
        1 / torch.get_num_threads() / 0
    assert get_settings() == before


@pytest.mark.parametrize("apart", [True, False])
def test_onednn_is_left_out_where_it_keeps_its_own_threads(monkeypatch, apart):
    monkeypatch.setattr(threads, "_ONEDNN_IGNORES_TORCH", apart)
    before = get_settings()
    with single_thread():
        assert torch.backends.mkldnn.enabled is (before[1] and not apart)
    assert get_settings() == before


def test_onednn_comes_back_when_the_last_python_thread_leaves(monkeypatch):
    monkeypatch.setattr(threads, "_ONEDNN_IGNORES_TORCH", True)
    before, entered, leave = get_settings(), Event(), Event()

    def another():
        with single_thread():
            entered.set()
            leave.wait(10)

    thread = Thread(target=another)
    with single_thread():
        thread.start()
        assert entered.wait(10)
    assert not torch.backends.mkldnn.enabled, "the other thread is still inside"
    leave.set()
    thread.join()
    assert get_settings() == before


def test_trees_and_blas_have_one_thread_for_small_tables():
    before = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    with limit_tree_threads(MIN_THREADED_CELLS):
        assert {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()} == before
    with limit_tree_threads(MIN_THREADED_CELLS - 1):
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    assert {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()} == before
