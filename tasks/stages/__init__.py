"""The stages, one package per stage. tasks/runner.py says which modules it has. No stage imports another one."""
