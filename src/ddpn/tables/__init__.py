"""Tables of counts: read, check, split and encode them, in memory or block by block."""
