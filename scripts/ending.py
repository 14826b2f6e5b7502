"""How the commands of the Makefile end: with the exit codes of the stages, and a line about what went wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable

from include.stages import ExitCode, StageError


def exit_code(main: Callable[[], int], again: str = "run the same command again to go on") -> int:
    """Return what a command returns, or else the code of its error, which is printed; `again` if it is interrupted."""
    try:
        return main()
    except (StageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, StageError) else ExitCode.TRANSIENT
    except KeyboardInterrupt:
        print(f"stopped: {again}", file=sys.stderr)
        return ExitCode.STOPPED
