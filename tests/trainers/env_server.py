"""verifiers' environment server, in the interpreter that has verifiers: `env_server.py CONFIG ADDRESS WORKERS`."""

import sys

from verifiers.v1.serve import serve_env
from verifiers.v1.utils.loaders import resolve_env_config

from tests.trainers.wire import Config


def main() -> None:
    config = Config.model_validate_json(sys.argv[1])
    serve_env(
        config=resolve_env_config(config.model_dump()),
        address=sys.argv[2],
        max_workers=int(sys.argv[3]),
        elastic=False,
    )


if __name__ == "__main__":
    main()
