"""URLs of objects on the command line, each split into the URL of a store and a path in it."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

from attrs import frozen

from commitlog.errors import ConfigurationError, InvalidPath
from commitlog.paths import check_path, check_prefix
from commitlog.urls import SECRET_OPTIONS, Url, check_name, parse_store_url

__all__ = ["Location", "refuse_secrets", "split", "split_directory", "without_credentials"]

#: A URL without its slashes, which would otherwise name a local file.
_WITHOUT_SLASHES = re.compile(r"(s3a?|memory|sqlite|dynamodb|https?):(?!//)", re.IGNORECASE)


@frozen(kw_only=True)
class Location:
    """The location of an object, or of all objects with a prefix.

    Attributes:
        store: the URL of the store, opened at its root.
        path: the path or prefix in that store.
    """

    store: Url
    path: str

    def url_of(self, path: str) -> str:
        """Return the URL of an object in the same store, without options."""
        within = f"{self.store.prefix}/{path}" if self.store.prefix else path
        return f"{self.store.scheme}://{quote(self.store.name)}/{quote(within)}"

    @property
    def url(self) -> str:
        """The URL of the location itself, without options."""
        return self.url_of(self.path)


def split(url: str, *, root: str | None = None, prefix: bool = False) -> Location:
    """Split `url` into the URL of a store and a path in it.

    The root of a store is a bucket or the name of a store in memory. For a local file, it is the
    directory above that holds the index of the store; if there is none, `root`; if that is not given,
    the parent directory of the file.

    Args:
        url: ``s3://bucket/key``, ``file:///dir/key``, ``memory://name/key`` or a local path.
        root: the root of a local store to which nothing has been written yet.
        prefix: whether `url` names all objects below it, and may be the root itself.

    Raises:
        ConfigurationError: `url` is not the URL of a store, or it contains credentials. Or `root` is not
            above the file, or would be a second root of an existing store.
        InvalidPath: an object cannot have this path.

    >>> split("s3://bucket/a/b%20c?region=eu-west-1")
    Location(store=Url(scheme='s3', name='bucket', prefix=''), path='a/b c')
    >>> split("s3://bucket", prefix=True).path
    ''
    """
    local = _local_path(url)
    if local is not None:
        return _split_local(local, root, prefix=prefix)
    scheme, _, rest = url.partition("://")
    key, mark, query = rest.partition("?")
    name, _, path = key.partition("/")
    store = parse_store_url(f"{scheme}://{name}{mark}{query}")
    refuse_secrets(store)
    path = _decoded(path)
    return Location(store=store, path=check_prefix(path) if prefix else _check_object(path, url))


def split_directory(url: str, *, root: str | None = None) -> Location:
    """Return the location of a whole store or output.

    On S3 the store is opened at `url` itself, so that no object above it is accessed. A local directory
    may be part of a larger store, whose root `split` finds.

    >>> location = split_directory("s3://bucket/out/")
    >>> str(location.store), location.path
    ('s3://bucket/out', '')
    """
    if _local_path(url) is not None:
        return split(url, root=root, prefix=True)
    store = parse_store_url(url)
    refuse_secrets(store)
    return Location(store=store, path="")


def refuse_secrets(url: Url) -> None:
    """Raise `ConfigurationError` if `url` contains credentials, which other processes could read."""
    secret = sorted(SECRET_OPTIONS.intersection(url.options))
    if secret:
        raise ConfigurationError(
            f"the URL contains {secret[0]}: the command line takes credentials only from the environment"
            " or a profile"
        )


def _local_path(url: str) -> str | None:
    """Return the path of a local file, given as a URL or as a path; None for any other URL."""
    if url[:5].lower() == "file:":
        return _decoded(url[5:].removeprefix("//"))
    scheme = _WITHOUT_SLASHES.match(url)
    if scheme is not None:
        raise ConfigurationError(
            f"write {scheme[1]}://, with two slashes, or ./{scheme[0]}… for a local file"
        )
    return None if "://" in url else url


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigurationError("the URL has a percent-encoding that is not UTF-8") from None


def _check_object(path: str, url: str) -> str:
    if not path or path.endswith("/"):
        raise InvalidPath(f"{url.partition('?')[0]!r} does not name an object: add a key")
    return check_path(path)


def _split_local(name: str, root: str | None, *, prefix: bool) -> Location:
    from commitlog.stores.local.scratch import find_base
    from commitlog.stores.local.tree import explained

    if not name:
        raise ConfigurationError("the path of a local file is empty")
    check_name("file", name)
    if name.endswith("/") and not prefix:
        raise InvalidPath(f"{name!r} names a directory, not an object")
    path = os.path.abspath(os.path.expanduser(name))
    # A directory can be the root itself; a file cannot.
    directory = prefix and os.path.isdir(path)
    lowest = os.path.realpath(path if directory else os.path.dirname(path))
    real = lowest if directory else os.path.join(lowest, os.path.basename(path))
    with explained(repr(path)):
        base = find_base(lowest, durable=True)
    top = lowest if base is None else base.tree.root
    if root is not None:
        root = os.path.realpath(os.path.expanduser(root))
        if base is not None and root != top:
            raise ConfigurationError(
                f"{path!r} is in the store at {top!r}, which cannot have another root: leave --root out"
            )
        top = root
    relative = "" if real == top else os.path.relpath(real, top)
    if relative.split(os.sep, 1)[0] == os.pardir:
        raise ConfigurationError(f"--root {top!r} is not above {path!r}")
    if relative and prefix and (directory or name.endswith("/")):
        relative += "/"
    store = Url(scheme="file", name=top)
    return Location(store=store, path=check_prefix(relative) if prefix else check_path(relative))


def without_credentials(url: str) -> str:
    """Return a URL for messages, which may not be valid, without user, password and options.

    >>> without_credentials("dynamodb://t?secret_access_key=x"), without_credentials("s3://me:x@b/a@b")
    ('dynamodb://t', 's3://…@b/a@b')
    """
    return re.sub(r"(?<=://)[^/?#]*@", "…@", url).partition("?")[0]
