"""Files that were changed after a stream has noted them."""

from __future__ import annotations

import logging
from pathlib import Path

from include.folders import user_path
from include.sections import Streaming
from tasks.streaming.files import changed_files

log = logging.getLogger(__name__)


class Changes:
    """Says of each file once that it was changed, because what was added to it is not labeled.

    Attributes:
        names: The names of the files.

    Args:
        streaming: The experiment's streaming section.
        folder: The folder of the stream.
    """

    def __init__(self, streaming: Streaming, folder: Path) -> None:
        self.names: list[str] = []
        self._files = (user_path(streaming.folder), folder / "files.jsonl") if streaming.source == "files" else None

    def look(self) -> None:
        """Look for more of them."""
        for name in changed_files(*self._files) if self._files else ():
            if name not in self.names:
                self.names.append(name)
                log.warning(
                    "%s has another size than when the stream noted it: rows that were added after it was read are not "
                    "labeled; put new rows into a new file",
                    name,
                )
