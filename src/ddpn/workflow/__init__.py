"""From a file to a fitted, judged model folder, and from that to predictions. Nothing is printed here."""
