import signal
import threading
import time

import pytest

from ddpn.tuning.deadline import TimeUpError, check_deadline, shielded, stopped_at


def work_forever():
    while True:
        sum(range(1000))


def lose_the_first(lost):
    while True:
        try:
            time.sleep(5.0)
        except BaseException as error:
            lost.append(error)
            if len(lost) == 2:
                raise


def test_work_is_stopped_in_the_middle():
    began, before = time.monotonic(), signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeUpError), stopped_at(began + 0.1):
        work_forever()
    assert 0.1 <= time.monotonic() - began < 2.0
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_it_is_raised_again_where_a_library_loses_it():
    lost: list[BaseException] = []
    with pytest.raises(TimeUpError), stopped_at(time.monotonic() + 0.05):
        lose_the_first(lost)
    assert len(lost) == 2


def test_what_is_shielded_ends_first():
    done = []

    def work():
        with stopped_at(time.monotonic() + 0.05):
            with shielded():
                time.sleep(0.15)
                done.append("written")
            time.sleep(5.0)

    with pytest.raises(TimeUpError):
        work()
    assert done == ["written"]


def test_what_is_quick_or_has_no_deadline_goes_on():
    with stopped_at(time.monotonic() + 60):
        pass
    with stopped_at(None):
        check_deadline(None)
    with pytest.raises(TimeUpError), stopped_at(time.monotonic() - 1):
        pytest.fail("the deadline has passed")


def test_other_threads_have_the_checks_alone():
    found = []

    def work():
        try:
            with stopped_at(time.monotonic() + 0.05):
                time.sleep(0.1)
                check_deadline(time.monotonic() - 1)
        except TimeUpError:
            found.append("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["stopped"]
