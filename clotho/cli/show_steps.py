"""A rollout printed as its journal grows: the prompt, then each turn and its tool results."""

from rich.console import Console

from clotho.cli.show import show_call, show_message, show_turn
from clotho.identifiers.ids import call_id
from clotho.identifiers.rollout_keys import call_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.rollouts.call import CallEntry
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry


class StepPrinter:
    """Prints what it hasn't printed yet, in order."""

    def __init__(self, console: Console, journal: Journal, rollout: str) -> None:
        self._console = console
        self._journal = journal
        self._rollout = rollout
        self._prompted = False
        self._turns = 0
        self._calls_left: list[str] = []

    async def print_new(self) -> None:
        """Print everything that the journal has by now."""
        if await self._print_prompt():
            while await self._print_calls() and await self._print_turn():
                pass

    async def _print_prompt(self) -> bool:
        if not self._prompted and (prompt := await self._journal.read(prompt_key(self._rollout), Prompt)):
            self._prompted = True
            for message in prompt.messages:
                show_message(self._console, message)
        return self._prompted

    async def _print_calls(self) -> bool:
        """Whether all calls of the last turn are printed."""
        while self._calls_left:
            call = await self._journal.read(call_key(self._rollout, self._calls_left[0]), CallEntry)
            if call is None:
                return False
            del self._calls_left[0]
            show_call(self._console, call)
        return True

    async def _print_turn(self) -> bool:
        turn = await self._journal.read(turn_key(self._rollout, self._turns), TurnEntry)
        if turn is None:
            return False
        show_turn(self._console, self._turns, turn)
        self._calls_left = [call_id(self._turns, index) for index in range(len(turn.tool_calls))]
        self._turns += 1
        return True
