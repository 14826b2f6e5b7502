"""The search for good settings: what is tried, what is promoted, and what is kept of it."""
