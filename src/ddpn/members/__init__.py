"""What can be part of a predictor: each member turns inputs into count distributions."""
