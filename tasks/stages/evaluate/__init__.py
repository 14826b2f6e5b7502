"""Evaluate: the dev split's metrics, what lies behind them, and a report to read."""
