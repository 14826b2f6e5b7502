"""The stage stream: labels rows as they arrive, each exactly once."""
