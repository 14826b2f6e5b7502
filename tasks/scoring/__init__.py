"""Scoring of predictions: metrics, confidence intervals, slices, and the gate's verdict."""
