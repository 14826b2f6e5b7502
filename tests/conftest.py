"""What all tests need of their process."""

from __future__ import annotations

import signal

# Whoever runs the tests in the background of a shell has SIGINT ignored, and so would every process that a test
# starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
