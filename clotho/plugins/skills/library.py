"""A rollout's skills: those of the run's folder, and over them the rollout's own changes.

A skill is a folder with a `SKILL.md`, whose front matter has its name and description, and further text files. It
lies in the run's folder or, below that, in one of a category. Changes are kept in the rollout's state: a skill that
is changed is copied there whole, so that nothing outside the rollout ever sees it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pydantic import JsonValue

from clotho.errors import HostUnavailable, InvalidInput, ServiceRejected
from clotho.frozen_model import FrozenModel
from clotho.host_failures import described
from clotho.plugins.skills.settings import SkillsSettings
from clotho.tools.tool import ToolSettings
from clotho.untrusted import Unreadable, load_yaml

SLOT = "skills"
MAIN = "SKILL.md"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MOST_SKILLS = 1_000
MOST_FILES = 200
"""Files of one skill."""
MOST_FILE_CHARS = 100_000
MOST_SKILL_CHARS = 200_000
MOST_CHANGED_CHARS = 256_000
"""Characters of all skills that a rollout has changed: each change is journalled with all of them."""
DESCRIPTION_CHARS = 1_024
MOST_FRONT_MATTER_CHARS = 8_000
"""Characters of a SKILL.md down to the end of its front matter, which takes 80 ms to parse."""
NOT_CONFIGURED = "the run names no folder of skills: set skills.folder"


class Changed(FrozenModel):
    """A skill as the rollout has written it."""

    category: str = ""
    files: dict[str, str]


@dataclass(frozen=True)
class Skill:
    name: str
    category: str
    folder: Path | None
    """Its folder on this host; None for one of the rollout's own."""
    own: Mapping[str, str]

    def files(self) -> list[str]:
        """The paths of its files, `SKILL.md` first."""
        if self.folder is None:
            found = sorted(self.own)
        else:
            # no links: they may lead out of the folder
            paths = [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]
            found = sorted(path.relative_to(self.folder).as_posix() for path in paths)[:MOST_FILES]
        return sorted(found, key=lambda path: (path != MAIN, path))

    def read(self, path: str) -> str | None:
        """The text of one of its files, cut at a bound; None where it has none of that name."""
        if path not in self.files():
            return None
        if self.folder is None:
            return self.own[path]
        with (self.folder / path).open(errors="replace") as file:
            return file.read(MOST_FILE_CHARS)

    @property
    def description(self) -> str:
        if self.folder is None:
            return _description(self.own.get(MAIN, ""))
        main = self.folder / MAIN
        found = main.lstat()
        return _description_of(main, found.st_mtime_ns, found.st_size)

    def copied(self) -> Changed:
        """The whole skill, to be changed. Raises InvalidInput for one that is too large."""
        files = {path: self.read(path) or "" for path in self.files()}
        if sum(map(len, files.values())) > MOST_SKILL_CHARS:
            raise InvalidInput(f"The skill {self.name} is too large to be changed")
        return Changed(category=self.category, files=files)


Library = dict[str, Skill]


def library(settings: ToolSettings, state: Mapping[str, JsonValue]) -> Library:
    """The rollout's skills by name. Raises ServiceRejected without a folder, HostUnavailable for one that fails."""
    skills = settings.of(SkillsSettings)
    if skills is None:
        raise ServiceRejected(NOT_CONFIGURED)
    try:
        shipped = _shipped(Path(skills.folder))
    except OSError as error:
        raise HostUnavailable(f"the folder of skills can't be read: {described(error)}") from error
    for name, changed in changes(state).items():
        shipped.pop(name, None)
        if changed is not None:
            shipped[name] = Skill(name, changed.category, None, changed.files)
    return dict(sorted(shipped.items()))


def changes(state: Mapping[str, JsonValue]) -> dict[str, Changed | None]:
    """The rollout's changes by name; None for a skill that it has deleted."""
    found = state.get(SLOT, {})
    assert isinstance(found, dict)
    return {name: None if each is None else Changed.model_validate(each) for name, each in found.items()}


def _shipped(folder: Path) -> Library:
    if not folder.is_dir():
        raise ServiceRejected(f"the folder of skills {folder} isn't there")
    mains = sorted([*folder.glob(f"*/{MAIN}"), *folder.glob(f"*/*/{MAIN}")])
    found: Library = {}
    for main in mains[:MOST_SKILLS]:
        category = "" if main.parent.parent == folder else main.parent.parent.name
        if NAME.fullmatch(main.parent.name):
            found.setdefault(main.parent.name, Skill(main.parent.name, category, main.parent, {}))
    return found


def front_matter(text: str) -> dict[str, str]:
    """The texts among the fields between the two `---` that a SKILL.md begins with; none where it has none."""
    head, fence, rest = text.replace("\r\n", "\n").partition("\n---")
    if not head.startswith("---\n") or not fence or not rest.strip():
        return {}
    if len(head) > MOST_FRONT_MATTER_CHARS:
        return {}
    try:
        fields = load_yaml(head.removeprefix("---\n"))
    except Unreadable:
        return {}
    if not isinstance(fields, dict):
        return {}
    return {str(name): value for name, value in fields.items() if isinstance(value, str)}


def _description(text: str) -> str:
    return front_matter(text).get("description", "")[:DESCRIPTION_CHARS]


@lru_cache(2 * MOST_SKILLS)
def _description_of(main: Path, changed_ns: int, size: int) -> str:
    """The description in a file as it was changed at `changed_ns`: parsing 300 of them takes half a second."""
    if main.is_symlink():
        return ""
    with main.open(errors="replace") as file:
        return _description(file.read(MOST_FRONT_MATTER_CHARS + DESCRIPTION_CHARS))


def require_skill(text: str) -> None:
    """Raise InvalidInput unless `text` is a SKILL.md with its fields."""
    missing = [name for name in ("name", "description") if not front_matter(text).get(name, "").strip()]
    if missing:
        raise InvalidInput(
            f"{MAIN} begins with front matter between two lines `---`, with a name and a description, and has a "
            f"text after it. Missing: {', '.join(missing)}"
        )


def require_path(path: str) -> str:
    """The path of a skill's file, made plain. Raises InvalidInput for one outside it."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or len(path) > 200 or not path.isprintable():
        raise InvalidInput(f"{path[:200]!r} is no path inside the skill's folder")
    return "/".join(parts)
