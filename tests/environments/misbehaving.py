"""Environments whose code hangs, crashes, exhausts and leaks, each in its own way; an item says in which."""

import asyncio
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from typing import Any

from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    Item,
    StatefulTools,
    ToolContext,
    tool,
)

KEPT: list[Any] = []


class Misbehaving(Environment):
    async def setup(self) -> None:
        self.drawn = 0
        self.verified = 0

    async def get_next_item(self) -> Item | None:
        self.drawn += 1
        return {"number": self.drawn, "pid": 0} if self.drawn <= 5 else None

    def format_prompt(self, item: Item) -> str:
        return f"pid {os.getpid()}"

    def hidden_files(self, item: Item) -> dict[str, str | bytes]:
        return {"pid": str(os.getpid()), "bytes": bytes(range(256))}

    def verification_seconds(self, item: Item) -> float | None:
        asked = item.get("asks")
        return float(asked) if isinstance(asked, int | float) else None

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Any:
        self.verified += 1
        match item["does"]:
            case "hangs":
                time.sleep(3600)
            case "hangs in C":
                ctypes.CDLL(None).pause()
            case "leaves a child":
                child = subprocess.Popen(["sleep", "3600"])
                ctx.write_bytes("/work/child", str(child.pid).encode())
                time.sleep(3600)
            case "forks":
                child_pid = os.fork()
                if child_pid == 0:
                    time.sleep(3600)
                ctx.write_bytes("/work/child", str(child_pid).encode())
                ctypes.string_at(0)
            case "shares memory":
                KEPT.append(b"x" * (250 << 20))
                children: list[int] = []
                for _ in range(3):
                    if (child_pid := os.fork()) == 0:
                        time.sleep(3600)
                    children.append(child_pid)
                # its memory is looked at ten times a second
                time.sleep(1.0)
                for each in children:
                    os.kill(each, signal.SIGKILL)
                    os.waitpid(each, 0)
            case "sleeps":
                time.sleep(float(item["pause"]))  # type: ignore[arg-type]
            case "segfaults":
                ctypes.string_at(0)
            case "exits":
                sys.exit(3)
            case "ends":
                os._exit(0)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "allocates":
                KEPT.append(b"x" * (600 << 20))
                time.sleep(3600)
            case "runs out of memory":
                raise MemoryError
            case "raises EIO":
                raise OSError(errno.EIO, "Input/output error")
            case "opens":
                for _ in range(100_000):
                    KEPT.append(os.open("/dev/null", os.O_RDONLY))
            case "leaks":
                KEPT.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(40))
            case "asks":
                return self._asks(ctx)
            case "swallows":
                try:
                    ctx.terminal("true")
                except Exception:
                    return 1.0
            case "returns":
                return object()
            case "environment":
                return {"never": "a number"} if "CLOTHO_TEST_SECRET" in os.environ else 1.0
        return float(self.verified)

    def _asks(self, ctx: ToolContext) -> float:
        assert ctx.read_bytes("/work/none") is None
        ctx.write_bytes("/work/a", bytes(range(256)) * 4)
        assert ctx.read_bytes("/work/a") == bytes(range(256)) * 4
        assert ctx.terminal("echo a")["output"] == "a\n"
        assert ctx.hidden_files.startswith("/hidden of ")
        assert ctx.grading.read_bytes("/work/a") == b"of grading"
        return float(ctx.hidden_files == f"/hidden of {os.getpid()}")


class OnOneLoop(Misbehaving):
    """Keeps what belongs to an event loop between its calls."""

    max_processes = 1

    async def setup(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        assert (await ctx.aio.terminal("echo a"))["output"] == "a\n"
        return float(self.loop is asyncio.get_running_loop())


class Single(Misbehaving):
    max_processes = 1


class AloneConfig(EnvironmentConfig):
    lock: str


class Alone(Misbehaving):
    """Needs what one process at a time can have, as a GPU."""

    config_class = AloneConfig
    max_processes = 1

    async def setup(self) -> None:
        await super().setup()
        assert isinstance(self.config, AloneConfig)
        self.held = os.open(self.config.lock, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Tally(StatefulTools):
    total: int = 0

    @tool(idempotent=True)
    def add(self, number: int) -> int:
        """Add a number."""
        self.total += number
        return self.total


@tool
def misbehave(how: str, ctx: ToolContext) -> str:
    """Misbehave."""
    match how:
        case "crash":
            ctypes.string_at(0)
        case "raise":
            raise ValueError("no such thing")
        case "exit":
            sys.exit(3)
        case "pid":
            return str(os.getpid())
    return str(ctx.terminal(f"echo {how}")["output"])


@tool(seconds=0.5)
def hang() -> None:
    """Hang."""
    time.sleep(3600)
