"""The report that compares the arms of an ablation."""

from __future__ import annotations

from pydantic import Field

from include.sections.base import Section


class Study(Section):
    """The arms that one report compares. The pipeline does not read this section."""

    name: str = Field(
        "",
        description="The name of the study: its task, followed by a digest of the overrides that all its arms share, "
        "if there are any.",
    )
