"""Access to AWS and to servers with the same protocols: credentials, endpoints, and signed requests.

The S3 store and the DynamoDB table use this package. The modules: `configuration` (settings of botocore
and boto3), `session` (resolved options), `credential_chain` (sessions with chosen sources), `signing`
(Signature Version 4), `connections` (HTTP), `client` (signed requests), `error_codes` (errors of all
services), `json_protocol` (answers in JSON), `sqs` (a queue of messages).
"""

from commitlog.aws.client import AwsClient
from commitlog.aws.configuration import Boto3Client, Boto3Session
from commitlog.aws.connections import ConnectionPool, PendingResponse, Response, parse_date
from commitlog.aws.error_codes import common_error, first_line
from commitlog.aws.session import AwsOptions, AwsSession, Credentials
from commitlog.aws.signing import encode_path

__all__ = [
    "AwsClient",
    "AwsOptions",
    "AwsSession",
    "Boto3Client",
    "Boto3Session",
    "ConnectionPool",
    "Credentials",
    "PendingResponse",
    "Response",
    "common_error",
    "encode_path",
    "first_line",
    "parse_date",
]
