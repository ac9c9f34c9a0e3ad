"""Rows of a table and what belongs to them."""

from dataclasses import replace

import numpy as np
import polars as pl
from ddpn.workflow.sample import Sample

from ddpn.workflow import sample as module

ONE = Sample(pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]}), np.arange(3.0), None, np.array([1.0, 0.0, 2.0]))


def test_rows_keep_together():
    two = ONE.rows(np.array([2, 0]))
    assert two.X.rows() == [(3, "z"), (1, "x")]
    assert (two.y.tolist(), two.exposure, two.weight.tolist()) == ([2, 0], None, [2, 1])
    assert ONE.counted().tolist() == [True, False, True]
    assert replace(ONE, weight=None).counted().all()


def test_blocks_are_all_rows(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 2)
    blocks = list(ONE.blocks())
    assert [len(block) for block in blocks] == [2, 1]
    assert blocks[1].X.rows() == [(3, "z")]


def test_a_fingerprint_is_that_of_names_and_values():
    same = Sample(ONE.X.clone(), ONE.y.copy(), None, ONE.weight.copy())
    assert same.fingerprint() == ONE.fingerprint()
    others = [
        replace(ONE, y=ONE.y + 1),
        replace(ONE, exposure=np.ones(3)),
        replace(ONE, X=ONE.X.rename({"a": "c"})),
        ONE.rows(np.array([0, 2, 1])),
    ]
    assert len({ONE.fingerprint(), *(other.fingerprint() for other in others)}) == 5
