"""The training engine. loop.py shows a step from batch to update; what it calls lies in a file that says its name."""
