"""Atropos' BaseEnv around an environment, with Atropos' own command line: serve | process | evaluate.

python atropos_adapter.py serve --env.environment file_tasks --openai.base_url http://host:8000/v1 …
"""

from clotho.atropos.config import ClothoEnvConfig
from clotho.atropos.env import ClothoEnv
from clotho.atropos.main import main

__all__ = ["ClothoEnv", "ClothoEnvConfig", "main"]

if __name__ == "__main__":
    main(ClothoEnv)
