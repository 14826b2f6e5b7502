"""The common parts of the stages' report pages and plots."""
