"""From a file to a fitted and evaluated model folder, and from that to predictions. Nothing is printed here."""
