"""The way to AWS, and to servers that speak its protocols: who we are, where it is, one request.

Business rules never import this package; the S3 store and the DynamoDB table do. Imports botocore.
"""

from commitlog.aws.caller import Caller
from commitlog.aws.faults import common_fault, first_line
from commitlog.aws.session import AwsOptions, AwsSession, Boto3Session, Credentials
from commitlog.aws.signing import encode_path
from commitlog.aws.wire import Pending, Response, Wire

__all__ = [
    "AwsOptions",
    "AwsSession",
    "Boto3Session",
    "Caller",
    "Credentials",
    "Pending",
    "Response",
    "Wire",
    "common_fault",
    "encode_path",
    "first_line",
]
