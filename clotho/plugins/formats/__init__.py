"""Run results in the formats of other evaluation tools."""

from clotho.plugin import Exporter, Plugin

PLUGIN = Plugin(
    "formats",
    exporters={
        "inspect": Exporter(
            "clotho.plugins.formats.inspect_log:write_inspect_log",
            "a log of Inspect, such as run.eval, for its viewer",
        ),
        "harbor": Exporter(
            "clotho.plugins.formats.harbor_job:write_harbor_job",
            "a job folder of Harbor, with each rollout's trajectory (ATIF) and reward",
        ),
    },
)
