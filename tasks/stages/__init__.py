"""The stages, one package per stage. Its stage.py defines `fingerprint` and `run`. No stage imports another one."""
