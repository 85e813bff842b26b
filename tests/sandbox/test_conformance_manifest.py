from clotho.sandbox.checkpoints import Manifest
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell

FILES = r"""mkdir -p a/b; echo 1 > a/one; echo 2 > a/b/two; ln -s one a/link; mkfifo pipe; : > empty
    touch $'new\nline' $'\xff'; echo x > closed; chmod 000 closed"""


async def manifest(shell: Shell) -> Manifest:
    found = await shell.sandbox.manifest()
    assert found is not None
    return found


def differences(first: Manifest, second: Manifest) -> tuple[str, ...]:
    """The paths of the workspace that aren't the same in both."""
    changed = {*first.listing.split(b"\0")} ^ {*second.listing.split(b"\0")}
    return tuple(sorted({line.split(b" ", 3)[3].removeprefix(b"work/").decode() for line in changed}))


async def test_tells_files_apart_by_mode_and_content(own: Shell) -> None:
    await own.run(FILES)
    first = await manifest(own)
    assert first.listing.count(b"\0") == 10
    assert await manifest(own) == first
    await own.run("touch -d 2001-01-01 a/one a; cp a/one x; cat x > a/one; rm x; cat a/b/two > /dev/null")
    assert await manifest(own) == first, "times are no difference"
    await own.run("chmod 600 a/one; ln -sf two a/link; rm empty; mkdir empty; touch new")
    second = await manifest(own)
    assert second.digest != first.digest
    assert differences(first, second) == ("a/link", "a/one", "empty", "new")
    assert await own.text("stat -c %a closed") == "0"


async def test_content_changed_behind_the_times_is_seen(own: Shell) -> None:
    """Same size and same modification time, and a digest that is remembered."""
    await own.run("echo 1 > file; touch -d 2001-01-01 file; sleep 0.05")
    seen = [await manifest(own) for _ in range(2)]
    for number in range(2, 9):
        await own.run(f"printf {number} 1<> file; touch -d 2001-01-01 file")
        seen.append(await manifest(own))
    assert seen[0] == seen[1]
    assert len({each.digest for each in seen}) == 8


async def test_is_the_same_in_a_copy(own: Shell, copies: Copies) -> None:
    await own.run(FILES)
    shell = await copies.copy(own)
    assert await manifest(shell) == await manifest(own)


async def test_of_files_that_are_being_written(own: Shell) -> None:
    writer = "while :; do seq 5000 > file; seq 5000 > file2; done"
    job = own.job(writer, session="writer")
    await own.sandbox.start(job)
    for _ in range(5):
        assert (await manifest(own)).digest
    await own.sandbox.kill(job.key)
