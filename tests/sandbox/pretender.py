"""A program in the place of bubblewrap that runs its command without any isolation."""

import shutil
from pathlib import Path

from clotho.sandbox.local.bubblewrap import PROGRAM
from clotho.sandbox.supervisor import supervisor_path


def make_pretender(folder: Path, name: str = "pretender") -> Path:
    supervisor = shutil.copy(supervisor_path(), folder)  # users of sandboxes may not enter the checkout
    program = f'if [ "$1" = {PROGRAM} ]; then shift; set -- {supervisor} "$@"; fi'
    pretender = folder / name
    pretender.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; {program}; exec "$@"\n')
    pretender.chmod(0o755)
    return pretender
