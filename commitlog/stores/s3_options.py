"""Options of the objects that an S3 store writes: encryption, storage class, tags, ACL, checksum.

They become headers of a PUT, of the request that begins an upload, and of a copy; `request_payer` is a
header of every request. `dialect` selects the headers of conditions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from attrs import frozen

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.stores.api import Dialect
from commitlog.urls import OBJECT_OPTIONS, Url

__all__ = ["ObjectOptions"]

_KMS = ("aws:kms", "aws:kms:dsse")
_ENCRYPTIONS = ("AES256", *_KMS)
#: Classes whose objects have to be restored before they can be read.
_ARCHIVES = frozenset({"DEEP_ARCHIVE", "GLACIER"})
# What S3 takes ("Categorizing your objects using tags", Amazon S3 User Guide).
_MAX_TAGS = 10
_MAX_TAG_KEY = 128
_MAX_TAG_VALUE = 256
_PREFIX = "x-amz-"


@frozen(kw_only=True)
class ObjectOptions:
    """Options of stored objects. None: the default of the bucket.

    Attributes:
        storage_class: such as ``STANDARD_IA``; not one whose objects have to be restored before a read.
        server_side_encryption: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``.
        sse_kms_key_id: id or ARN of the KMS key; with ``aws:kms`` and ``aws:kms:dsse``.
        bucket_key: ``true`` or ``false``: whether S3 asks KMS once for many objects; with ``aws:kms``.
        tagging: tags as a query string, ``team=data&tier=hot``.
        acl: a canned ACL, such as ``bucket-owner-full-control``.
        request_payer: ``requester``: the account that asks pays, for reads as well.
        checksum: ``auto``: send the MD5 of a body to buckets that demand a checksum; ``md5``: always.
        dialect: ``auto``: the standard preconditions if the store honours them, else the headers of a
            vendor that it honours; or the value of a `commitlog.stores.Dialect`: only that one, and
            for conditions that the vendor has no header for, the standard ones.

    Raises `ConfigurationError` for a value that S3 does not take, or that another one excludes, and
    `NotSupported` for a storage class that this library could not read from.

    >>> ObjectOptions(server_side_encryption="aws:kms", storage_class="STANDARD_IA").of_new_objects
    {'x-amz-storage-class': 'STANDARD_IA', 'x-amz-server-side-encryption': 'aws:kms'}
    """

    storage_class: str | None = None
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None
    bucket_key: str | None = None
    tagging: str | None = None
    acl: str | None = None
    request_payer: str | None = None
    checksum: str = "auto"
    dialect: str = "auto"

    def __attrs_post_init__(self) -> None:
        self._choice("server_side_encryption", _ENCRYPTIONS)
        self._choice("bucket_key", ("true", "false"))
        self._choice("request_payer", ("requester",))
        self._choice("checksum", ("auto", "md5"))
        self._choice("dialect", ("auto", *(dialect.value for dialect in Dialect)))
        self._matches("storage_class", "[A-Z0-9_]{1,64}")
        self._matches("acl", "[a-z-]{1,64}")
        self._matches("sse_kms_key_id", "[!-~]{1,2048}")
        if self.storage_class in _ARCHIVES:
            raise NotSupported(
                f"storage_class {self.storage_class}: its objects cannot be read before they are"
                " restored, and logs must be readable; let a lifecycle rule archive old objects"
            )
        if self.sse_kms_key_id is not None and self.server_side_encryption not in _KMS:
            raise ConfigurationError("sse_kms_key_id needs server_side_encryption=aws:kms")
        if self.bucket_key is not None and self.server_side_encryption != "aws:kms":
            raise ConfigurationError("bucket_key needs server_side_encryption=aws:kms")
        if self.tagging is not None:
            _tags(self.tagging)

    @classmethod
    def from_url(cls, url: Url) -> ObjectOptions:
        """Return the options in the query of `url`."""
        return cls(**{name: value for name, value in url.options.items() if name in OBJECT_OPTIONS})

    @property
    def of_new_objects(self) -> Mapping[str, str]:
        """Headers of a PUT, and of the request that begins an upload."""
        headers = {
            "storage-class": self.storage_class,
            "server-side-encryption": self.server_side_encryption,
            "server-side-encryption-aws-kms-key-id": self.sse_kms_key_id,
            "server-side-encryption-bucket-key-enabled": self.bucket_key,
            "tagging": None if self.tagging is None else urlencode(_tags(self.tagging)),
            "acl": self.acl,
        }
        return {_PREFIX + name: value for name, value in headers.items() if value is not None}

    @property
    def of_copies(self) -> Mapping[str, str]:
        """Headers of a copy, which keeps the tags of its source unless there are others."""
        directive = {} if self.tagging is None else {f"{_PREFIX}tagging-directive": "REPLACE"}
        return {**self.of_new_objects, **directive}

    @property
    def of_all_requests(self) -> Mapping[str, str]:
        """Headers of every request."""
        payer = self.request_payer
        return {} if payer is None else {f"{_PREFIX}request-payer": payer}

    def _choice(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value is not None and value not in allowed:
            raise ConfigurationError(f"{name} is {value!r}; known: {', '.join(allowed)}")

    def _matches(self, name: str, pattern: str) -> None:
        value = getattr(self, name)
        if value is not None and not re.fullmatch(pattern, value):
            raise ConfigurationError(f"{name} is {value!r:.80}, which S3 does not take")


def _tags(tagging: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(tagging, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        raise ConfigurationError("tagging must be written as a query: name=value&name=value") from None
    tags = dict(pairs)
    if len(tags) != len(pairs) or len(tags) > _MAX_TAGS:
        raise ConfigurationError(f"tagging: at most {_MAX_TAGS} tags, each name once")
    if any(not 1 <= len(k) <= _MAX_TAG_KEY or len(v) > _MAX_TAG_VALUE for k, v in tags.items()):
        raise ConfigurationError(
            f"tagging: names have 1 to {_MAX_TAG_KEY} characters, values at most {_MAX_TAG_VALUE}"
        )
    return tags
