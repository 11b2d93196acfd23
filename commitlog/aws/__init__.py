"""The way to AWS, and to servers that speak its protocols: who we are, where it is, one request.

Business rules never import this package; the S3 store and the DynamoDB table do.
"""

from commitlog.aws.caller import Caller
from commitlog.aws.configuration import Boto3Client, Boto3Session
from commitlog.aws.faults import common_fault, first_line
from commitlog.aws.session import AwsOptions, AwsSession, Credentials
from commitlog.aws.signing import encode_path
from commitlog.aws.wire import InFlight, Response, Wire

__all__ = [
    "AwsOptions",
    "AwsSession",
    "Boto3Client",
    "Boto3Session",
    "Caller",
    "Credentials",
    "InFlight",
    "Response",
    "Wire",
    "common_fault",
    "encode_path",
    "first_line",
]
