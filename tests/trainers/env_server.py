"""verifiers' environment server, in the interpreter that has verifiers: `env_server.py CONFIG ADDRESS`."""

import asyncio
import sys

from verifiers.v1.serve import EnvServer
from verifiers.v1.utils.loaders import resolve_env_config

from tests.trainers.wire import Config


def main() -> None:
    config = Config.model_validate_json(sys.argv[1])
    asyncio.run(EnvServer(resolve_env_config(config.model_dump()), sys.argv[2]).run())


if __name__ == "__main__":
    main()
