"""Code in C++ for training on a CPU: compiled at set-up by build.py, and called through library.py."""
