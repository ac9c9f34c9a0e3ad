"""Analysis of a fitted model: leaderboard, verdict, diagnosis of counts, explanations, monitoring and reports."""
