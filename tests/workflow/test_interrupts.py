import signal
import threading

import pytest

from ddpn.workflow.fitting import Interrupts


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_step_and_those_that_follow():
    done = []
    with Interrupts() as interrupts:
        interrupts.hold()
        assert interrupts.step(lambda: done.append(1))
        assert not interrupts.step(lambda: (ctrl_c(), done.append(2)))
        assert not interrupts.step(lambda: done.append(3))
    assert (done, interrupts.stopped) == ([1], True)
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()  # as usual again


def test_ctrl_c_between_steps_is_remembered():
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()  # as usual, until it is held
        interrupts.hold()
        ctrl_c()
        assert not interrupts.step(lambda: pytest.fail("it was begun"))


def test_a_second_ctrl_c_does_not_hit_what_follows_a_step():
    def work():
        try:
            ctrl_c()
        finally:
            ctrl_c()

    with Interrupts() as interrupts:
        interrupts.hold()
        assert not interrupts.step(work)
        ctrl_c()


def test_errors_of_a_step_are_raised():
    with Interrupts() as interrupts, pytest.raises(ValueError, match="its own"):
        interrupts.step(lambda: (_ for _ in ()).throw(ValueError("its own")).__next__())


def test_other_threads_run_steps_as_they_are():
    found = []

    def work():
        with Interrupts() as interrupts:
            found.append(interrupts.step(lambda: None))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]
