"""Ablations, studies, leaderboards and submissions."""
