"""Settings of a run's skills."""

from typing import Annotated, ClassVar

from pydantic import Field

from clotho.plugin_settings import RunPluginSettings


class SkillsSettings(RunPluginSettings):
    """Settings of the skills tools; without them, none is offered."""

    plugin: ClassVar[str] = "skills"
    folder: Annotated[str, Field(min_length=1)]
    """Folder of skills, at the same path on every worker."""
