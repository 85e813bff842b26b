#!/usr/bin/python3
"""A program in Apptainer's place, where there is none: `exec` alone, with bubblewrap, as Clotho calls it."""

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

PREFIX = "APPTAINERENV_"
FLAGS = (
    "--containall",
    "--no-home",
    "--no-init",
    "--no-eval",
    "--no-umask",
    "--net",
    "--no-privs",
    "--userns",
)
VALUES = ("--network", "--no-mount", "--add-caps", "--pwd")
NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")


def parsed(words: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Options with a value, mounts, and the image with what is executed in it. Others are an error, as there."""
    options, mounts, left = {}, [], list(words)
    while left[0].startswith("-"):
        word = left.pop(0)
        if word == "--mount":
            mounts.append(left.pop(0))
        elif word in VALUES:
            options[word] = left.pop(0)
        elif word not in FLAGS:
            sys.exit(f"unknown flag: {word}")
    return options, mounts, left


def root(image: str) -> Iterator[str]:
    """The image, and room beside it for the places of mounts."""
    for name in sorted(os.listdir(image)):
        path = f"{image}/{name}"
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), f"/{name}")
        elif name not in ("dev", "proc", "tmp", "etc", "home", "root") and os.listdir(path):
            yield from ("--ro-bind", path, f"/{name}")
    yield from ("--dir", "/etc")
    for name in sorted(os.listdir(f"{image}/etc")):
        yield from ("--ro-bind", f"{image}/etc/{name}", f"/etc/{name}")


def bound(mount: str) -> Iterator[str]:
    (words,) = csv.reader([mount])
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    for parent in reversed(PurePath(fields["destination"]).parents[:-1]):
        yield from ("--dir", str(parent))
    yield from ("--ro-bind" if "ro" in words else "--bind", fields["source"], fields["destination"])


def variables(given: Mapping[str, str]) -> Iterator[str]:
    """Those that are to be handed on, beside some of its own, as Apptainer has."""
    own = {"APPTAINER_NAME": "image", "PS1": "Apptainer> ", "OF_IMAGE": "1", "LANG": "C"}
    handed = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    yield "--clearenv"
    for name, value in {"PATH": given["PATH"], **own, **handed}.items():
        yield from ("--setenv", name, value)


def main(words: Sequence[str]) -> None:
    quiet, verb, *rest = words
    if (quiet, verb) != ("--quiet", "exec"):
        sys.exit(f"not done here: {quiet} {verb}")
    options, mounts, (image, *command) = parsed(rest)
    rights = ["--cap-drop", "ALL"]
    for each in options.get("--add-caps", "").split(","):
        rights += ["--cap-add", each] if each else []
    users = rights if os.geteuid() == 0 else ["--unshare-user", *rights]
    binds = [part for mount in mounts for part in bound(mount)]
    folders = (
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--perms",
        "1777",
        "--tmpfs",
        "/tmp",
        "--perms",
        "1777",
        "--tmpfs",
    )
    arguments = [
        *NAMESPACES,
        *users,
        "--as-pid-1",
        *root(image),
        *folders,
        "/var/tmp",
        *binds,
        *variables(os.environ),
    ]
    os.execvp("bwrap", ["bwrap", *arguments, "--chdir", options["--pwd"], "--", *command])


if __name__ == "__main__":
    main(sys.argv[1:])
