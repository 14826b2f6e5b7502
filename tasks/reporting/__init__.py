"""What the stages' pages and plots have in common."""
