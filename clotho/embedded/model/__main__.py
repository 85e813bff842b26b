"""`python -m clotho.embedded.model`: the model server as a process."""

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m clotho.embedded.model", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument(
        "--weights", type=Path, help="a Hugging Face Qwen2 folder; the bundled policy by default"
    )
    parser.add_argument("--model-name", default="clotho-tiny")
    arguments = parser.parse_args()

    # OpenBLAS reads this once, when numpy is imported: its threads cost more than they give at these sizes.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # transformers would warn that there is no torch; only its tokenizers are used.
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    from clotho.embedded.model.server import serve
    from clotho.embedded.model.weights import BUNDLED
    from clotho.errors import InvalidInput

    try:
        serve(arguments.host, arguments.port, arguments.weights or BUNDLED, arguments.model_name)
    except (OSError, InvalidInput) as error:
        sys.exit(f"model server: {arguments.host}:{arguments.port}: {error}")


if __name__ == "__main__":
    main()
