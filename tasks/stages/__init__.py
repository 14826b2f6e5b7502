"""The stages: a package each, whose stage.py has `fingerprint` and `run`. None of them imports another."""
