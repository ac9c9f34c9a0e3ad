"""What is predicted for some rows: `Prediction`, and `PredictionSpec`, which says what a table of it has."""
