"""What the agent does to its disk and its folders, so that verification can't be done."""

import pytest

from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import Fresh, needs_root
from tests.sandbox.shell import Shell
from tests.sandbox.verifying import looking

SPOILS = {
    "its workspace closed": "chmod 000 /work",
    "its home closed": "chmod 000 ~",
    "its /tmp closed": "chmod 000 /tmp",
    "all closed": "chmod 000 /work ~ /tmp",
    "its workspace without a way in": "chmod 600 /work",
    "its home removed": "rm -rf ~ ~/.*",
    "its workspace removed": "rm -rf /work",
    "its shell in a closed folder": "mkdir -p deep/er; cd deep/er; chmod 000 ../../deep",
    "its shell in a removed folder": "mkdir gone; cd gone; rmdir ../gone",
}


@pytest.mark.attack("verification", "the agent's folders closed or removed, so that verification can't start")
@pytest.mark.parametrize("spoil", SPOILS)
async def test_a_verifier_can_enter_what_the_agent_closed(
    local: LocalBackend, isolated: Shell, lease: str, spoil: str
) -> None:
    last = isolated.job(f"{SPOILS[spoil]}; true")
    await isolated.sandbox.start(last)
    await isolated.ended(last.key)
    ctx = looking(local, lease, {"expected": b"1"}, after=last.key)
    ran = await ctx.terminal("echo 1 > mine && cat mine && echo 2 > ~/mine && echo 3 > /tmp/mine && pwd")
    assert (ran["exit_code"], ran["output"].splitlines()[0]) == (0, "1"), ran
    await ctx.write_bytes("~/written", b"2")
    assert await ctx.read_bytes("~/written") == b"2"
    assert await ctx.read_bytes("mine") == b"1\n"


FILL = "for d in /work ~ /tmp; do head -c 300M /dev/zero > $d/fill; echo x > $d/fill2; done 2>/dev/null"
FILL_NODES = """python3 - <<'E'
import itertools, os
os.mkdir("many")
try:
    for n in itertools.count():
        if n % 1000 == 0: os.mkdir(f"many/{n}"); folder = f"many/{n}"
        os.close(os.open(f"{folder}/{n}", os.O_CREAT))
except OSError as error: print(error.errno)
E"""


@needs_root
@pytest.mark.attack("verification", "a full disk, so that verification can't start")
@pytest.mark.parametrize("fill", [FILL, FILL_NODES], ids=["blocks", "inodes"])
async def test_a_verifier_has_room_on_a_full_disk(
    local: LocalBackend, fresh: Fresh, lease: str, fill: str
) -> None:
    agent = await fresh(disk_mb=64)
    await agent.run(fill)
    assert (await agent.run("echo x > /work/more")).code != 0
    ctx = looking(local, lease, {"expected": bytes(100_000)})
    ran = await ctx.terminal(
        "for n in $(seq 100); do echo $n > /work/$n.txt || exit 1; done; head -c 2M /dev/zero > ~/b"
    )
    assert ran["exit_code"] == 0, ran
    await ctx.write_bytes("/work/tests/test_it.py", bytes(100_000))
    assert (
        await ctx.terminal("head -c 50M /dev/zero > $TMPDIR/x && cat $CLOTHO_HIDDEN_FILES/expected | wc -c")
    )["output"].strip() == "100000"


@needs_root
@pytest.mark.attack("verification", "the room that is kept for the verifier, found and used by the agent")
async def test_the_reserve_is_out_of_the_agents_reach(fresh: Fresh) -> None:
    agent = await fresh(disk_mb=64)
    assert await agent.text("ls -a / | grep -c reserve; find / -name blocks -size +1000 2>/dev/null") == "0"
