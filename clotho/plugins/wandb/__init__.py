"""Logs of runs at Weights & Biases."""

from clotho.plugin import Plugin, RunLog

PLUGIN = Plugin(
    "wandb",
    run_logs={
        "wandb": RunLog(
            "clotho.plugins.wandb.run_log:wandb_log",
            "Log to this project of Weights & Biases while the run is followed (extra wandb).",
            "PROJECT",
        )
    },
    needs={"wandb": "clotho-rollouts[wandb]"},
)
