"""Test that memory grows with the table by no more than a few copies of it, in fits and in predictions."""

import json
import subprocess
import sys

import pytest

#: Columns of the tables, all float32: four bytes per cell.
COLUMNS, BYTES = 20, 4

#: A process of its own, whose largest memory so far is read after each step: imports and compiled kernels come first.
SCRIPT = f"""
import json, resource, sys
import numpy as np
from ddpn import DDPNRegressor
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.networks.training import Runtime
from ddpn.rows.count_rows import CountRows

unit = 1 if sys.platform == "darwin" else 1024
rng = np.random.default_rng(0)

def table(rows):
    X = rng.standard_normal((rows, {COLUMNS}), dtype=np.float32)
    return X, rng.poisson(np.exp(0.5 + 0.4 * X[:, 0]))

# Hidden units take next to no memory.
small = dict(n_networks=1, hidden=(8,), epochs=1)

def fit_networks(rows):
    # Of more than 5,000 rows numbers become steps, the widest encoding.
    train, validation = (CountRows(X, y.astype(float)) for X, y in (table(rows), table(1000)))
    Networks.fit(train, validation, 0, options=NetworkOptions(**small), runtime=Runtime("cpu"))

def bytes_per_cell(step, sizes):
    peaks = []
    for rows in sizes:
        step(rows)
        peaks.append(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return (peaks[1] - peaks[0]) / ({COLUMNS} * (sizes[1] - sizes[0]))

model = DDPNRegressor(**small, random_state=0, device="cpu").fit(*table(6000))
model.predict_interval(table(6000)[0])
found = {{
    "predict": bytes_per_cell(lambda rows: model.predict_interval(table(rows)[0]), (8_000, 60_000)),
    "fit": bytes_per_cell(fit_networks, (25_000, 75_000)),
}}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def growth():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_predictions_take_at_most_eight_times_the_table(growth):
    # The table itself is one of the eight: rows are encoded and predicted in blocks of a fixed size.
    assert growth["predict"] <= 8 * BYTES


def test_fits_of_networks_take_at_most_eight_times_the_table(growth):
    # A number becomes its value and 12 steps. In float32 these would be 13 times the table, but a step takes a bit.
    assert growth["fit"] <= 8 * BYTES
