"""Tables of many Parquet files, larger than memory: checks, uniform samples and shuffled streams of rows.

Imports no torch, so that a bad file is reported at once.
"""

from ddpn.streaming.first_pass import Survey, survey
from ddpn.streaming.parts import Parts, find_parts
from ddpn.streaming.sampling import RowSample
from ddpn.streaming.shuffling import shuffled_chunks

__all__ = ["Parts", "RowSample", "Survey", "find_parts", "shuffled_chunks", "survey"]
