"""The service: it answers over HTTP with the champion's package, and imports neither torch nor Spark."""
