"""Make the bucket of the store, once its server answers."""

import os
from urllib.parse import urlsplit

import boto3

client = boto3.client("s3", endpoint_url=os.environ["CLOTHO_PLUGINS__S3__ENDPOINT"])
bucket = urlsplit(os.environ["CLOTHO_STORE"]).netloc
if bucket not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
    client.create_bucket(Bucket=bucket)
