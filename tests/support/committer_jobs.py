"""Jobs of Spark's file writers without Spark: the requests of a driver, and the files of its tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from commitlog.spark.committer.jobs import JobCommitter
from support.servers import Server

__all__ = ["Bucket", "Directory", "Driver", "agent"]


@contextmanager
def agent(**options: Any) -> Iterator[JobCommitter]:
    """Yield the jobs of one agent. At the end it dies: jobs under way are neither ended nor aborted."""
    jobs = JobCommitter(**options)
    try:
        yield jobs
    finally:
        for running in list(jobs._running.values()):
            running.resources.close()
        for store in jobs._stores.values():
            store.close()


@frozen
class Directory:
    """A local directory as the place of an output."""

    path: Path

    @property
    def url(self) -> str:
        """The URL in Hadoop's spelling."""
        return f"file:{self.path}"

    def settings(self) -> Mapping[str, str] | None:
        """Return the settings of S3A: none."""
        return None

    def write(self, answer: Mapping[str, Any], name: str, data: bytes) -> dict[str, Any]:
        """Write a file as a task does; return what the task reports."""
        assert answer["staging"] == "directory"
        path = self.path / answer["directory"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"name": name, "size": len(data)}

    def files(self) -> dict[str, bytes]:
        """Return the files that a reader of the directory reads, by their paths."""
        found = {file.relative_to(self.path): file for file in self.path.rglob("*") if file.is_file()}
        return {
            path.as_posix(): file.read_bytes()
            for path, file in found.items()
            if not path.parts[0].startswith(("_", "."))
        }


@frozen
class Bucket:
    """A directory in a bucket of an S3 server as the place of an output."""

    server: Server
    bucket: str

    @property
    def url(self) -> str:
        """The URL in Hadoop's spelling."""
        return f"s3a://{self.bucket}/out"

    @property
    def client(self) -> Any:
        """A client of boto3."""
        return self.server.client("s3")

    def settings(self) -> Mapping[str, str] | None:
        """Return the settings of S3A."""
        return {
            "fs.s3a.endpoint": self.server.endpoint_url,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": self.server.access_key_id,
            "fs.s3a.secret.key": self.server.secret_access_key,
        }

    def write(self, answer: Mapping[str, Any], name: str, data: bytes) -> dict[str, Any]:
        """Begin an upload as S3A does, and put its record; return what the task reports."""
        assert answer["staging"] == "magic"
        place = {"Bucket": self.bucket, "Key": f"out/{name}"}
        upload = self.client.create_multipart_upload(**place)["UploadId"]
        part = self.client.upload_part(**place, UploadId=upload, PartNumber=1, Body=data)
        record = f"out/{magic(answer['attempt'])}/tasks/__base/{name}.pending"
        self.client.put_object(Bucket=self.bucket, Key=record, Body=b"{}")
        etags = [part["ETag"]]
        return {"name": name, "size": len(data), "upload": upload, "etags": etags, "stored": True}

    def files(self) -> dict[str, bytes]:
        """Return the files that a reader of the directory reads, by their paths."""
        return {
            name: self.client.get_object(Bucket=self.bucket, Key=f"out/{name}")["Body"].read()
            for name in self.keys()
            if not name.startswith("_")
        }

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys below the directory, relative to it."""
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"out/{prefix}")
        return [each["Key"].removeprefix("out/") for each in found.get("Contents", ())]

    def uploads(self) -> list[str]:
        """Return the keys of the uncompleted uploads."""
        found = self.client.list_multipart_uploads(Bucket=self.bucket)
        return [each["Key"] for each in found.get("Uploads", ())]


def magic(attempt: str) -> str:
    """Return the directory of the magic paths of an attempt, relative to the output."""
    return f"__magic_job-{attempt}"


@frozen
class Driver:
    """A job as its driver knows it, whichever agent serves it.

    Attributes:
        place: the place of the output.
        answer: the answer to ``begin``.
        files: what the tasks have reported.
    """

    place: Directory | Bucket
    answer: Mapping[str, Any]
    files: list[Mapping[str, Any]] = field(factory=list)

    @classmethod
    def begin(
        cls,
        jobs: JobCommitter,
        place: Directory | Bucket,
        *,
        replaced: list[str] | None = None,
        dynamic: bool = False,
        exclusive: bool = False,
        schema: str | None = None,
        partition: list[str] | None = None,
        case_sensitive: bool = False,
        file_format: str | None = None,
        format_options: Mapping[str, str] | None = None,
        **options: str,
    ) -> Driver:
        """Begin a job with these options of a write."""
        request = {
            "path": place.url,
            "hadoop": place.settings(),
            "schema": schema,
            "format": file_format,
            "formatOptions": format_options or {},
            "replaced": replaced or [],
            "dynamic": dynamic,
            "exclusive": exclusive,
            "partition": partition,
            "caseSensitive": case_sensitive,
            "options": options,
        }
        return cls(place, json.loads(json.dumps(jobs.begin(request))))

    @property
    def attempt(self) -> str:
        """The name of the attempt."""
        name: str = self.answer["attempt"]
        return name

    def write(self, *names: str, suffix: str = "") -> None:
        """Write a file for each of `names`, such as ``day=1/a``, as tasks do."""
        for name in names:
            directory, _, task = name.rpartition("/")
            path = f"{directory}/{task}-{self.attempt}-0{suffix}".lstrip("/")
            self.files.append(self.place.write(self.answer, path, name.encode()))

    def request(self, **more: Any) -> dict[str, Any]:
        """Return the request that ends the job."""
        request = {"state": self.answer["state"], "files": self.files, **more}
        if self.answer["staging"] == "magic":
            request["magic"] = magic(self.attempt)
        found: dict[str, Any] = json.loads(json.dumps(request))
        return found
