"""Settings of Hadoop's S3A, with which this library reaches the same server."""

from __future__ import annotations

import pytest

import commitlog
from commitlog.errors import AccessDenied
from commitlog.spark.committer.s3a import s3_connection, s3_url
from commitlog.testing.proxy import Proxy
from support.servers import Seaweedfs

pytestmark = pytest.mark.servers


def _settings(server: Seaweedfs) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": server.endpoint_url,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": server.access_key_id,
        "fs.s3a.secret.key": server.secret_access_key,
    }


def test_objects_are_written_and_read_with_the_keys_of_s3a(seaweedfs: Seaweedfs) -> None:
    """A path of S3A names the same object, with spaces and percent signs; wrong keys are refused."""
    bucket = seaweedfs.new_bucket()
    settings = _settings(seaweedfs)
    url = s3_url(f"s3a://{bucket}/daily sales/50%/day=1")
    with commitlog.connect(url, **s3_connection(settings, bucket, environ={}).arguments()) as store:
        store.put("part-0", b"rows")
        assert store.get("part-0").data == b"rows"
    found = seaweedfs.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    assert [entry["Key"] for entry in found] == ["daily sales/50%/day=1/part-0"]
    settings[f"fs.s3a.bucket.{bucket}.secret.key"] = "wrong"
    wrong = s3_connection(settings, bucket, environ={}).arguments()
    with commitlog.connect(url, **wrong) as store, pytest.raises(AccessDenied):
        store.get("part-0")


@pytest.mark.all
def test_requests_go_through_the_proxy_of_s3a(seaweedfs: Seaweedfs) -> None:
    """Keys after a missing profile are found, too."""
    bucket = seaweedfs.new_bucket()
    with Proxy(seaweedfs.endpoint_url) as proxy:
        host, _, port = proxy.endpoint_url.removeprefix("http://").partition(":")
        settings = {
            **_settings(seaweedfs),
            "fs.s3a.proxy.host": host,
            "fs.s3a.proxy.port": port,
            "fs.s3a.aws.credentials.provider": (
                "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider,"
                "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
            ),
        }
        found = s3_connection(settings, bucket, environ={"AWS_PROFILE": "absent"})
        with commitlog.connect(s3_url(f"s3a://{bucket}/dir"), **found.arguments()) as store:
            store.put("part-0", b"rows")
            assert store.get("part-0").data == b"rows"
        # Requests to a proxy have the whole URL.
        url = f"{seaweedfs.endpoint_url}/{bucket}/dir/part-0"
        assert [request for request in proxy.requests() if request.endswith(url)] == [
            f"PUT {url}",
            f"GET {url}",
        ]
