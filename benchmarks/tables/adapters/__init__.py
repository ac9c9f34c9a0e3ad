"""One module per kind of model, run as `python -m benchmarks.tables.adapters.NAME JOB.json` by the model's own Python.

An adapter may import numpy, scipy, `common` and the packages of its own environment, nothing else of this repository.
"""
