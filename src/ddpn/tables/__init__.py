"""Tables of counts: read, check, group and encode them, in memory or block by block."""
