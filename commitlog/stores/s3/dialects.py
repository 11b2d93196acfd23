"""The headers by which vendors of S3-compatible stores let a request carry a condition.

Most stores know ``If-None-Match: *`` and ``If-Match``. These vendors have headers of their own:

* Alibaba Cloud OSS: ``x-oss-forbid-overwrite: true`` for PutObject, CopyObject and
  CompleteMultipartUpload, refused with 409 ``FileAlreadyExists``. "PutObject" (OSS API reference) says
  that the header has no effect if versioning is enabled or suspended for the bucket. The S3 API of OSS
  answers 501 ``NotImplemented`` to ``If-None-Match`` and ``If-Match``. There is no update by etag.
  https://www.alibabacloud.com/help/en/oss/developer-reference/putobject,
  https://help.aliyun.com/en/oss/user-guide/0026-00000002 (PutObject, CopyObject) and
  https://help.aliyun.com/en/oss/user-guide/0042-00000214 (CompleteMultipartUpload).
* Tencent Cloud COS: ``x-cos-forbid-overwrite: true`` for PUT Object, PUT Object - Copy and Complete
  Multipart Upload, refused with 409 ``FileAlreadyExists``. It has no effect once versioning was enabled
  for the bucket. https://cloud.tencent.com/document/product/436/7749 ("PUT Object").
* Cloudflare R2: ``cf-copy-destination-if-none-match: *`` for CopyObject, refused with 412
  ``PreconditionFailed``. PutObject takes the standard headers.
  https://developers.cloudflare.com/r2/api/s3/extensions/ ("Conditional operations in CopyObject for the
  destination object").
* Google Cloud Storage, XML API: ``x-goog-if-generation-match`` with a generation, or with 0 if there
  must be no object; for PUT, copies and DELETE, refused with 412. ``If-Match`` and ``If-None-Match`` are
  for reads only. https://docs.cloud.google.com/storage/docs/request-preconditions. Completing a
  multipart upload overwrites: https://docs.cloud.google.com/storage/docs/multipart-uploads. A request
  may not have both ``x-amz-`` and ``x-goog-`` headers (400 ``ExcessHeaderValues``), so this one is sent
  with ``x-goog-`` headers only, and signed as `commitlog.aws.signing.GOOG4` says.

None of these stores is tested here; see docs/stores.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from commitlog.errors import NotSupported
from commitlog.stores.api import Condition, Dialect, IfAbsent, IfMatch, WriteOperation

__all__ = ["EXISTS", "condition_headers", "spoken"]

_Kind: TypeAlias = type[IfAbsent] | type[IfMatch]

#: Error codes of a request that must not overwrite, and would have.
EXISTS = frozenset({"FileAlreadyExists"})

_WRITES = (WriteOperation.PUT, WriteOperation.COPY, WriteOperation.PUBLISH)
_GENERATION = "x-goog-if-generation-match"

#: The header of each dialect, and its value for `IfAbsent`. It is "" for `IfMatch`: the generation.
_HEADERS: Mapping[tuple[Dialect, WriteOperation, _Kind], tuple[str, str]] = MappingProxyType(
    {
        **{(Dialect.OSS, each, IfAbsent): ("x-oss-forbid-overwrite", "true") for each in _WRITES},
        **{(Dialect.COS, each, IfAbsent): ("x-cos-forbid-overwrite", "true") for each in _WRITES},
        (Dialect.R2, WriteOperation.COPY, IfAbsent): ("cf-copy-destination-if-none-match", "*"),
        (Dialect.GCS, WriteOperation.PUT, IfAbsent): (_GENERATION, "0"),
        (Dialect.GCS, WriteOperation.COPY, IfAbsent): (_GENERATION, "0"),
        (Dialect.GCS, WriteOperation.PUT, IfMatch): (_GENERATION, ""),
        (Dialect.GCS, WriteOperation.COPY, IfMatch): (_GENERATION, ""),
        (Dialect.GCS, WriteOperation.DELETE, IfMatch): (_GENERATION, ""),
    }
)


def spoken(choice: str) -> Mapping[tuple[WriteOperation, _Kind], tuple[Dialect, ...]]:
    """Return the dialects for each operation and kind of condition, those to prefer first.

    Args:
        choice: ``auto`` for all, or the value of a `Dialect`. A vendor's replaces the standard one where
            the vendor has a header.

    >>> spoken("r2")[WriteOperation.COPY, IfAbsent], spoken("r2")[WriteOperation.PUT, IfAbsent]
    ((<Dialect.R2: 'r2'>,), (<Dialect.STANDARD: 'standard'>,))
    """
    found: dict[tuple[WriteOperation, _Kind], tuple[Dialect, ...]] = {}
    kinds: tuple[_Kind, ...] = (IfAbsent, IfMatch)
    for operation in WriteOperation:
        for kind in kinds:
            common = (Dialect.STANDARD,) if kind is IfAbsent else (Dialect.STANDARD, Dialect.BARE)
            own = tuple(each for each in Dialect if (each, operation, kind) in _HEADERS)
            if choice == "auto":
                found[operation, kind] = common + own
            elif Dialect(choice) in own or Dialect(choice) in common:
                found[operation, kind] = (Dialect(choice),)
            elif Dialect(choice) is Dialect.BARE:
                found[operation, kind] = (Dialect.STANDARD,)
            else:
                found[operation, kind] = common
    return found


def condition_headers(
    operation: WriteOperation, condition: Condition, generation: str | None
) -> Mapping[str, str]:
    """Return the header of a request with `condition`, its name in lower case.

    Args:
        operation: the kind of request.
        condition: the condition, in a dialect.
        generation: for `IfMatch` in the dialect of GCS: the generation of the object with that etag.

    Raises `NotSupported` if the dialect has none; nothing was sent.

    >>> condition_headers(WriteOperation.PUT, IfAbsent(Dialect.OSS), None)
    {'x-oss-forbid-overwrite': 'true'}
    """
    if not condition.dialect.is_vendors:
        if isinstance(condition, IfAbsent):
            return {"if-none-match": "*"}
        return {"if-match": condition.etag}
    header = _HEADERS.get((condition.dialect, operation, type(condition)))
    if header is None:
        raise NotSupported(
            f"{condition.dialect.value} has no header for {operation.value} with "
            f"{type(condition).__name__}; nothing was sent"
        )
    name, value = header
    return {name: value or generation or ""}
