"""Challenge: hold the new model against the champion, on the same dev rows and within a stated margin."""
