"""Thread pools for blocking calls to sandboxes, apart from the loop's own, which waiting callers may fill.

A sandbox can make the calls to it hang. It has a few threads at most, those of calls that were given up among them,
and so holds up no thread that serves another sandbox.

All calls to sandboxes of this host are made through here. This is where the host's own failures become
SandboxUnavailable: no descriptors, a full or broken disk, no memory. A failure by a command's fault is never an
OSError here: a supervisor answers it.
"""

import asyncio
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from clotho.errors import SandboxUnavailable
from clotho.host_failures import described, is_host_failure

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

THREADS_PER_SANDBOX = 4
_files = ThreadPoolExecutor(64, thread_name_prefix="sandbox-files")
_archives = ThreadPoolExecutor(16, thread_name_prefix="sandbox-archives")
_sandboxes = ThreadPoolExecutor(64, thread_name_prefix="sandboxes")
_hosts = ThreadPoolExecutor(8, thread_name_prefix="sandbox-hosts")
_leases = ThreadPoolExecutor(4, thread_name_prefix="sandbox-leases")
_relays = ThreadPoolExecutor(64, thread_name_prefix="sandbox-relay-leases")
_images = ThreadPoolExecutor(64, thread_name_prefix="sandbox-images")


async def with_files(sandbox: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run a short operation on files."""
    return await _bounded(_files, THREADS_PER_SANDBOX, sandbox, function, *arguments)


async def with_sandbox(lease: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run the making or ending of a sandbox, which is slow and waits for others."""
    return await _bounded(_sandboxes, THREADS_PER_SANDBOX, lease, function, *arguments)


async def with_host(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run an operation on all sandboxes of a host."""
    with _failures_of_the_host():
        return await asyncio.get_running_loop().run_in_executor(_hosts, function, *arguments)


async def with_leases(of: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Look at leases, or renew them. Nothing slow may take these threads: unrenewed sandboxes end."""
    return await _bounded(_leases, 1, of, function, *arguments)


async def with_relay(lease: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Renew a lease elsewhere. Commands there can delay it until it times out."""
    return await _bounded(_relays, 1, lease, function, *arguments)


async def with_image(image: Hashable, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run a step that sandboxes of `image` wait for, such as its build: once for all concurrent callers."""
    with _failures_of_the_host():
        with _preparing:
            running = _prepared.get(image)
            if running is None or running.done():
                running = _prepared[image] = _images.submit(function, *arguments)
                running.add_done_callback(lambda _: _forget_prepared(image))
        # A caller that is cancelled must not take the build away from the others that wait for it.
        result: T = await asyncio.shield(asyncio.wrap_future(running))
        return result


# reentrant: a build that is over calls its callback at once, in the thread that holds the lock
_preparing = threading.RLock()
_prepared: dict[Hashable, Future[Any]] = {}


def _forget_prepared(image: Hashable) -> None:
    with _preparing:
        # another build of the same image may have begun since
        if image in _prepared and _prepared[image].done():
            del _prepared[image]


async def with_archives(sandbox: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run a checkpoint or restore, which keeps a core busy."""
    return await _bounded(_archives, 1, sandbox, function, *arguments)


# weak: a share lives as long as calls hold it, those included that were given up and go on
_Shares = WeakValueDictionary[tuple[ThreadPoolExecutor, str], asyncio.Semaphore]
_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shares] = WeakKeyDictionary()


async def _bounded(
    pool: ThreadPoolExecutor, threads: int, sandbox: str, function: Callable[[*Ts], T], *arguments: *Ts
) -> T:
    loop = asyncio.get_running_loop()
    shares = _shares.setdefault(loop, WeakValueDictionary())
    share = shares.setdefault((pool, sandbox), asyncio.Semaphore(threads))
    await share.acquire()
    result: asyncio.Future[T] = loop.create_future()

    def settle(ended: Future[T]) -> None:
        share.release()
        if result.cancelled() or ended.cancelled():
            return
        if (error := ended.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(ended.result())

    def tell(ended: Future[T]) -> None:
        """Wake the loop once: a wake-up costs more than most calls that are made here."""
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(settle, ended)

    with _failures_of_the_host():
        try:
            running = pool.submit(function, *arguments)
        except BaseException:
            share.release()
            raise
        running.add_done_callback(tell)
        try:
            return await result
        except asyncio.CancelledError:
            # Only what no thread has begun yet. A call that hangs goes on, and keeps its share until it ends.
            running.cancel()
            raise


@contextmanager
def _failures_of_the_host() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxUnavailable(f"this host: {error}") from error
    except (MemoryError, RuntimeError) as error:
        if is_host_failure(error):
            raise SandboxUnavailable(f"this host: {described(error)}") from error
        raise
