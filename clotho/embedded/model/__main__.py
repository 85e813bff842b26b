"""`python -m clotho.embedded.model`: the model server as a process."""

import argparse
import os
import socket
import sys
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.listeners.listening import listen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m clotho.embedded.model", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument(
        "--weights", type=Path, help="a Hugging Face Qwen2 folder; the bundled policy by default"
    )
    parser.add_argument("--model-name", default="clotho-tiny")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        help="another host name that requests may be addressed to; '*' for any",
    )
    arguments = parser.parse_args()
    try:
        bound = listen(arguments.host, arguments.port)
    except InvalidInput as error:
        sys.exit(f"model server: {error}")
    with bound:
        _serve(bound, arguments.weights, arguments.model_name, arguments.allow_host)


def _serve(bound: socket.socket, weights: Path | None, model_name: str, hosts: list[str]) -> None:
    # OpenBLAS reads this once, when numpy is imported: its threads cost more than they give at these sizes.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from clotho.embedded.model.bundled import BUNDLED
    from clotho.embedded.model.http.app import serve
    from clotho.listeners.access import Access

    try:
        serve(bound, weights or BUNDLED, model_name, Access(hosts))
    except (OSError, InvalidInput) as error:
        sys.exit(f"model server: {error}")


if __name__ == "__main__":
    main()
