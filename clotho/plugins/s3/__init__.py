"""Stores in S3."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "s3",
    stores={"s3": "clotho.plugins.s3.store:open_s3"},
    settings="clotho.plugins.s3.settings:S3Settings",
    needs={"boto3": "clotho-rollouts[s3]"},
)
