"""Users of an image: who runs its commands, and where that user is at home, as a plain container has it."""

from collections.abc import Mapping

from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.holdings import Image
from clotho.sandbox.places import AGENT_HOME, PATH, SYSTEM

PASSWD_BYTES = 1 << 20


def named_user(config: DockerConfig, image: Image) -> str:
    """The user of commands, by name or id."""
    return config.user or image.user.partition(":")[0] or "0"


def home_in(engine: Engine, config: DockerConfig, image: Image, labels: Mapping[str, str]) -> str:
    """The user's home by the image's HOME, else by its accounts, for which a container with `labels` is made."""
    if home := image.environment.get("HOME"):
        return _own_folder(home)
    name = named_user(config, image)
    accounts = engine.text_in(image.id, "/etc/passwd", PASSWD_BYTES, labels)
    entries = (line.split(":") for line in accounts.splitlines())
    homes = (each[5] for each in entries if len(each) > 5 and name in (each[0], each[2]))
    return _own_folder(next(homes, ""))


def _own_folder(path: str) -> str:
    """`path`, unless it can't be a folder of its own, such as `/` for a user whom the image doesn't know."""
    return path if PATH.fullmatch(path) and path.split("/")[1] not in SYSTEM else AGENT_HOME
