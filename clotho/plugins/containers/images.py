"""Images built from a Dockerfile: tagged by the content that they are built from, each built once on an engine."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.plugins.containers.engine import Engine, sdk
from clotho.sandbox.supervised.folders import lock

REPOSITORY = "localhost/clotho-build"
# without names that hold a variable: only the build knows their values
FROM = re.compile(r"^\s*FROM\s+(?:--platform=\S+\s+)?([^\s$]+)(?:\s|$)", re.IGNORECASE | re.MULTILINE)


def build(
    engine: Engine,
    context: Path,
    dockerfile: str,
    locks: Path,
    arguments: Mapping[str, str] | None = None,
    platform: str | None = None,
) -> str:
    """The name of the image built from folder `context`; unless the engine has it, one process builds it.

    `dockerfile` is a path inside `context`, and `locks` a folder of this host that all builders share. Raises
    InvalidInput with the end of the build's log where a step fails, SandboxUnavailable where the engine does.
    """
    if not (context / dockerfile).is_file():
        raise InvalidInput(f"no {dockerfile} in {context}")
    digest = content_digest(context, dockerfile, arguments or {}, platform)
    if bases := tuple(known_bases(engine, (context / dockerfile).read_text(errors="replace"))):
        digest = hashlib.sha256("\n".join((digest, *bases)).encode()).hexdigest()
    name = f"{REPOSITORY}-{digest[:24]}"
    if engine.has_image(name):
        return name
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock(locks / name.rpartition("/")[2]):
        if not engine.has_image(name):
            engine.build(context, dockerfile, name, dict(arguments or {}), platform)
    return name


def known_bases(engine: Engine, dockerfile: str) -> Iterator[str]:
    """The ids of the images that a Dockerfile begins from, as far as the engine has them: a name may come to mean
    another one, and what is built from it then is another image, too."""
    for name in dict.fromkeys(FROM.findall(dockerfile)):
        if (identity := engine.image_id(name)) is not None:
            yield f"{name} {identity}"


def content_digest(context: Path, dockerfile: str, arguments: Mapping[str, str], platform: str | None) -> str:
    """SHA-256 of what an image is built from: names, kinds, modes and contents of files, and arguments."""
    digest = hashlib.sha256(repr((dockerfile, sorted(arguments.items()), platform)).encode())
    for path in _files(context, dockerfile):
        status = path.lstat()
        digest.update(f"\0{path.relative_to(context)}\0{status.st_mode:o}\0".encode(errors="surrogateescape"))
        if stat.S_ISLNK(status.st_mode):
            digest.update(os.readlink(path).encode(errors="surrogateescape"))
        elif stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _files(context: Path, dockerfile: str) -> Iterator[Path]:
    """The files of a build's context, sorted by name, without those that .dockerignore leaves out."""
    # the package's own, by which it chooses the files that it sends to the engine
    exclude_paths = sdk().utils.build.exclude_paths

    ignored = context / ".dockerignore"
    patterns = ignored.read_text().splitlines() if ignored.is_file() else []
    kept = [line.strip() for line in patterns if line.strip() and not line.startswith("#")]
    for name in sorted(exclude_paths(str(context), kept, dockerfile=dockerfile)):
        yield context / name
