"""Options of S3 objects: their headers, and refused values."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import commitlog
from commitlog.aws import AwsOptions
from commitlog.errors import CommitError, ConfigurationError, NotSupported
from commitlog.stores.open import open_store
from commitlog.stores.s3_options import ObjectOptions
from commitlog.urls import OBJECT_OPTIONS, parse_store_url, parse_table_url

ALL = {
    "storage_class": "STANDARD_IA",
    "server_side_encryption": "aws:kms",
    "sse_kms_key_id": "arn:aws:kms:us-east-1:123456789012:key/1",
    "bucket_key": "true",
    "tagging": "team=data%26more&tier=hot",
    "acl": "bucket-owner-full-control",
}


def test_options_become_headers_by_kind_of_request() -> None:
    """The tags of a copy replace those of its source. The payer is sent with each request."""
    options = ObjectOptions(**ALL, request_payer="requester")
    assert options.of_new_objects == {
        "x-amz-storage-class": "STANDARD_IA",
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id": ALL["sse_kms_key_id"],
        "x-amz-server-side-encryption-bucket-key-enabled": "true",
        "x-amz-tagging": "team=data%26more&tier=hot",
        "x-amz-acl": "bucket-owner-full-control",
    }
    assert options.of_copies == {**options.of_new_objects, "x-amz-tagging-directive": "REPLACE"}
    assert options.of_all_requests == {"x-amz-request-payer": "requester"}
    assert not ObjectOptions().of_copies and not ObjectOptions().of_all_requests


def test_every_option_has_a_header() -> None:
    """The options of a URL are those of the class."""
    assert {each.name for each in attrs.fields(ObjectOptions)} == OBJECT_OPTIONS


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"storage_class": "GLACIER"}, NotSupported),
        ({"storage_class": "DEEP_ARCHIVE"}, NotSupported),
        ({"storage_class": "a b"}, ConfigurationError),
        ({"server_side_encryption": "kms"}, ConfigurationError),
        ({"sse_kms_key_id": "key"}, ConfigurationError),
        ({"sse_kms_key_id": "key", "server_side_encryption": "AES256"}, ConfigurationError),
        ({"sse_kms_key_id": "a\nb", "server_side_encryption": "aws:kms"}, ConfigurationError),
        ({"bucket_key": "true", "server_side_encryption": "aws:kms:dsse"}, ConfigurationError),
        ({"bucket_key": "yes", "server_side_encryption": "aws:kms"}, ConfigurationError),
        ({"tagging": "team"}, ConfigurationError),
        ({"tagging": "a=1&a=2"}, ConfigurationError),
        ({"tagging": "&".join(f"k{n}=v" for n in range(11))}, ConfigurationError),
        ({"tagging": "k=" + "v" * 257}, ConfigurationError),
        ({"acl": "Public!"}, ConfigurationError),
        ({"request_payer": "owner"}, ConfigurationError),
        ({"checksum": "crc32"}, ConfigurationError),
        ({"sse_customer_key": "hush"}, NotSupported),
        ({"object_lock_mode": "COMPLIANCE"}, NotSupported),
        ({"grant_read": "id=1"}, NotSupported),
        ({"checksum_algorithm": "CRC32"}, NotSupported),
        ({"sse_kms_encryption_context": "{}"}, NotSupported),
        ({"storage_clas": "STANDARD"}, ConfigurationError),
    ],
    ids=str,
)  # fmt: skip
def test_options_that_cannot_be_honoured_are_refused(
    options: dict[str, str], error: type[CommitError]
) -> None:
    """They are refused before a request is sent, and the message has no secret."""
    for call in (
        lambda: open_store("s3://bucket", endpoint_url="http://127.0.0.1:1", **options),
        lambda: commitlog.connect("s3://bucket", endpoint_url="http://127.0.0.1:1", **options),
    ):
        with pytest.raises(error) as caught:
            call()
        assert "hush" not in str(caught.value)


def test_a_directory_bucket_is_refused() -> None:
    """It supports neither our signatures nor an MD5."""
    with pytest.raises(NotSupported, match="directory bucket"):
        open_store("s3://name--use1-az4--x-s3", region="us-east-1")


def test_options_of_objects_are_for_s3(tmp_path: Any) -> None:
    """A table and a local directory do not have them."""
    with pytest.raises(ConfigurationError, match="storage_class"):
        open_store(str(tmp_path), storage_class="STANDARD")
    with pytest.raises(ConfigurationError, match="storage_class"):
        parse_table_url("dynamodb://table?storage_class=STANDARD")
    url = parse_store_url("s3://bucket?storage_class=STANDARD&region=eu-west-1")
    assert ObjectOptions.from_url(url) == ObjectOptions(storage_class="STANDARD")
    assert AwsOptions.from_url(url) == AwsOptions(region="eu-west-1")
