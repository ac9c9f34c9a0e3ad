"""Tables of many Parquet files, larger than memory: checks, uniform samples and shuffled streams of rows.

Imports no torch, so that a bad file is reported at once.
"""

from ddpn.tables.streaming.first_pass import Survey, survey
from ddpn.tables.streaming.parts import Parts, find_parts
from ddpn.tables.streaming.sampling import RowSample
from ddpn.tables.streaming.shuffling import shuffled_chunks

__all__ = ["Parts", "RowSample", "Survey", "find_parts", "shuffled_chunks", "survey"]
