"""Refusals of S3 servers, and the remedy for each."""

from botocore.exceptions import (
    BotoCoreError,
    CapacityNotAvailableError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    ParamValidationError,
)
from botocore.parsers import ResponseParserError

Failure = ClientError | BotoCoreError | ResponseParserError
"""The exceptions of the client library."""
FAILURES = (ClientError, BotoCoreError, ResponseParserError)

BROKEN_BODIES = (HTTPClientError, IncompleteReadError, FlexibleChecksumError)
OUTAGES = (
    *BROKEN_BODIES,
    ConnectionError,
    ResponseParserError,
    CapacityNotAvailableError,
    CredentialRetrievalError,
    MetadataRetrievalError,
)

NO_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role"
WRONG_CREDENTIALS = "check the AWS credentials and configuration of this process"
EXPIRED_CREDENTIALS = "renew the AWS credentials (those in environment variables need a new process)"
PERMISSIONS = (
    "allow s3:ListBucket on the bucket and s3:GetObject, s3:PutObject, s3:DeleteObject on its objects"
)
WRONG_REGION = "set s3.region (CLOTHO_PLUGINS__S3__REGION) to the bucket's region"
WRONG_CLOCK = "set this machine's clock: it is more than 15 minutes off"
WRONG_BUCKET = "create the bucket, or mend its name in the store's location"
UNSUITABLE_SERVER = "use a server with conditional writes (If-None-Match on PUT)"
OTHER_REFUSAL = "check the store's location, s3.endpoint and s3.region"

REMEDIES = {
    "InvalidAccessKeyId": WRONG_CREDENTIALS,
    "SignatureDoesNotMatch": WRONG_CREDENTIALS,
    "InvalidToken": WRONG_CREDENTIALS,
    "ExpiredToken": EXPIRED_CREDENTIALS,
    "ExpiredTokenException": EXPIRED_CREDENTIALS,
    "TokenRefreshRequired": EXPIRED_CREDENTIALS,
    "AccessDenied": PERMISSIONS,
    "PermanentRedirect": WRONG_REGION,
    "AuthorizationHeaderMalformed": WRONG_REGION,
    "IllegalLocationConstraintException": WRONG_REGION,
    "RequestTimeTooSkewed": WRONG_CLOCK,
    "NoSuchBucket": WRONG_BUCKET,
    "InvalidBucketName": WRONG_BUCKET,
    "NotImplemented": UNSUITABLE_SERVER,
}
TRANSIENT_STATUSES = (408, 409, 425, 429)


def remedy(error: Failure) -> str | None:
    """The remedy for a refusal; None for an outage, which passes."""
    match error:
        case ClientError():  # Of status 200 for one of many keys that couldn't be deleted.
            refused = 300 <= status_of(error) < 500 and status_of(error) not in TRANSIENT_STATUSES
            return REMEDIES.get(code_of(error), OTHER_REFUSAL if refused else None)
        case NoCredentialsError():
            return NO_CREDENTIALS
        case ParamValidationError():
            return WRONG_BUCKET
    return None if isinstance(error, OUTAGES) else WRONG_CREDENTIALS


def concerns_credentials(error: Failure) -> bool:
    """Whether reading the credentials again may help."""
    return isinstance(error, CredentialRetrievalError) or remedy(error) in (
        NO_CREDENTIALS,
        WRONG_CREDENTIALS,
        EXPIRED_CREDENTIALS,
    )


def code_of(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def has_readable_code(error: ClientError) -> bool:
    """Whether the refusal's body was readable; else the client library puts the status in the code's place."""
    return code_of(error) != str(status_of(error))


def status_of(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]
