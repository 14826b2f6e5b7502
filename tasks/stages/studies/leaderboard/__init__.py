"""The stage leaderboard: compares the models of finished runs, task by task."""
