"""Commands that name a path of the isolated view where there is none."""

import pytest

from clotho.sandbox.supervised.layout import Layout, PathUnseen

ALIASES = {"/work": "/s/box/work", "/home/agent": "/s/box/home"}
BARE = Layout("/s/box/work", "/s/box/home", "/s/box/tmp", False, ALIASES, bare=True)
NAMING = (
    "cat /work/answer", "cd /work", "ls /work/", "cat '/work/x'", "x > /work", "x>/work/y", "ls\n/work/run",
    "python3 -c \"open('/work/x')\"", "gcc -I/work/include x.c", "P=/work/bin:$P", "P=$P:/work", "cat /work;ls",
    "echo $(</work/x)", "cat /work/{a,b}", "curl -d @/work/x", "cat /home/agent/x", "see /work.",
)  # fmt: skip
OTHERS = (
    "cat work/answer", "cat ~/work/x", 'cat "$HOME"/work/x', "cat ${X}/work/x", "cat ../work/x", "ls /works",
    "ls /work-2", "ls /work.txt", "curl http://host/work/x", "ls /s/box/work/x", "ls /opt/work", "cat /home/agents",
)  # fmt: skip


@pytest.mark.parametrize("command", NAMING)
def test_a_command_that_names_one_is_refused(command: str) -> None:
    with pytest.raises(PathUnseen, match="without isolation there is no"):
        BARE.require_seen(command, "the command")


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_are_not(command: str) -> None:
    BARE.require_seen(command, "the command")


def test_a_folder_of_the_host_below_the_same_path_is_there() -> None:
    layout = Layout("/work/box/w", "/work/box/h", "/tmp", False, {"/work": "/work/box/w"}, bare=True)
    layout.require_seen("ls /work/box/w; cat /work/box/w/x", "the command")
    with pytest.raises(PathUnseen):
        layout.require_seen("ls /work/box", "the command")
