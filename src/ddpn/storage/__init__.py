"""Files, folders and locks on disk."""
