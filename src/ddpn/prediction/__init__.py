"""`Prediction`: predicted distributions of rows; `PredictionSpec`: the contents of a table of predictions."""
