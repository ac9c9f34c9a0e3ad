"""Tables of counts: read, check, split and encode them, in memory or in parts."""
