"""Leaderboard, verdict, diagnosis, explanations, monitoring and the report of a fitted model."""
