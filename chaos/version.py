"""Which code was measured: results of two versions are never mixed."""

import hashlib
from pathlib import Path

SOURCES = ("worker.py", "workflows", "activities", "clotho", "environments", "chaos")
SUFFIXES = (".py", ".safetensors", "-x86_64", "-aarch64")


def code_version() -> str:
    """A digest of everything that runs in a cell, found from a checkout's folder."""
    files = sorted(file for source in SOURCES for file in (Path(source), *Path(source).rglob("*")))
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and file.name.endswith(SUFFIXES):
            digest.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
