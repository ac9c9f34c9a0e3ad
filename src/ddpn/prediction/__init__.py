"""`Prediction`, the predicted distributions of rows, and `PredictionSpec`, the columns of a prediction table."""
