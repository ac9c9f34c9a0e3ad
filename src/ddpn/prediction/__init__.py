"""`Prediction`: the predicted distributions of rows. `PredictionSpec`: the columns of a table of predictions."""
