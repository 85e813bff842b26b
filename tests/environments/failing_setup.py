"""Environments that can't be set up."""

import os

from clotho.environment import Environment
from clotho.errors import InvalidInput


class Refuses(Environment):
    async def setup(self) -> None:
        raise InvalidInput("there is no such dataset")


class Raises(Environment):
    async def setup(self) -> None:
        raise ValueError("the author's mistake")


class Ends(Environment):
    async def setup(self) -> None:
        os._exit(1)
