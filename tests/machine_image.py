"""An image for tests, made from this machine's own programs: no registry is asked."""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from tests.support import PATIENCE_SECONDS

IMAGE = "localhost/clotho-test-machine"
PROGRAMS = """
awk bash base64 basename cat chgrp chmod chown cmp comm cp cut date dd df diff dirname du echo env expr false find
getent grep gzip head hostname id install kill ln ls mkdir mkfifo mknod mktemp mount mv nohup nproc od paste printf
pgrep pkill ps pwd python3 readlink realpath rm rmdir sed seq setsid sh sha256sum sleep sort split stat stty
su sync tail tar tee test timeout touch tr true truncate tty umount uname uniq unshare wc which xargs yes
"""
LIBRARIES = ("libgcc_s.so.1", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1")
"""Those that any image has, and the wheels of Python packages need."""
LEFT_OUT = (
    "dist-packages",
    "test",
    "idlelib",
    "__pycache__",
    "ensurepip",
    "tkinter",
    "lib2to3",
    "pydoc_data",
)
PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"
WORKDIR = "/app"
"""The image's working directory, which holds a file and a folder."""


def machine_image(client: docker.DockerClient | None = None) -> str:
    """The image's name; it is made once for an engine, by default the one that DOCKER_HOST names."""
    client = client or docker.from_env(timeout=round(PATIENCE_SECONDS))
    try:
        client.images.get(IMAGE)
    except ImageNotFound:
        tar = io.BytesIO()
        write_root(tar)
        changes = [f"WORKDIR {WORKDIR}", "ENV FROM_IMAGE=1"]
        client.api.import_image_from_data(tar.getvalue(), repository=IMAGE, changes=changes)
    return IMAGE


def write_root(to: io.BytesIO) -> None:
    with tarfile.open(fileobj=to, mode="w") as tar:
        for name in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
        python = tarfile.TarInfo("usr/bin/python")
        python.type, python.linkname = tarfile.SYMTYPE, "python3"
        tar.addfile(python)
        for name, mode in {
            "tmp": 0o1777,
            "root": 0o700,
            "etc": 0o755,
            "usr/sbin": 0o755,
            "app/empty": 0o755,
        }.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "etc/passwd", PASSWD)
        _add(tar, "etc/group", GROUP)
        _add(tar, "app/from-the-image", "1\n")
        for path in sorted(set(_files())):
            tar.add(path, str(path).lstrip("/"), recursive=False)


def _add(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))


def _files() -> Iterator[Path]:
    programs = [
        path for name in PROGRAMS.split() if (path := Path("/usr/bin", name)).exists() or path.is_symlink()
    ]
    real = [path.resolve() for path in programs]
    yield from programs
    for path in programs:
        while path.is_symlink():
            path = Path(os.path.normpath(path.parent / path.readlink()))
            yield path
    modules = next(Path("/usr/lib").glob("python3.*[0-9]"))
    found = [path for path in modules.rglob("*") if path.is_file() and not set(path.parts) & set(LEFT_OUT)]
    yield from found
    yield from (path for name in LIBRARIES for path in Path("/usr/lib").glob(f"*/{name}"))
    yield from _libraries([*real, *(path for path in found if path.suffix == ".so")])


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    for word in listed.split():
        if word.startswith("/") and not word.endswith(":"):
            path = Path("/usr" + word if word.startswith("/lib") else word)
            yield path
            if path.is_symlink():
                yield path.resolve()
