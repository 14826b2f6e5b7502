"""Ablations, studies, leaderboards, searches, and submissions."""
