"""Task folders that tests write."""

from pathlib import Path

TEST = "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"
IMAGE = '[environment]\ndocker_image = "busybox"\n'


def make_task(
    folder: Path, file: str = IMAGE, *, instruction: str = "Do it.\n", without: tuple[str, ...] = ()
) -> Path:
    """A task with an image; `without` leaves files out, by their paths in it."""
    files = {
        "task.toml": file,
        "instruction.md": instruction,
        "tests/test.sh": TEST,
        "solution/solve.sh": "#!/bin/sh\ntrue\n",
    }
    for name, text in files.items():
        if name not in without:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    return folder
