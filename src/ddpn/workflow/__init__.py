"""From a table to a fitted and evaluated model folder, and from a model folder to predictions. Nothing is printed."""
