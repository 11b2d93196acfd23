"""What a URL on the command line points at: a store, and a path in it.

A library store is opened at a root; a command names one object by one URL. This is the one place
that cuts it in two.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

from attrs import frozen

from commitlog.errors import ConfigurationError, InvalidPath
from commitlog.paths import check_path, check_prefix
from commitlog.stores.local.scratch import find_base
from commitlog.stores.local.tree import explained
from commitlog.urls import SECRET_OPTIONS, Url, check_name, parse_store_url

__all__ = ["Place", "refuse_secrets", "split", "split_directory"]

#: What can only be meant as a URL, and would name a local file.
_SLIP = re.compile(r"(s3a?|memory|sqlite|dynamodb|https?):(?!//)", re.IGNORECASE)


@frozen(kw_only=True)
class Place:
    """One object, or the prefix of some.

    Attributes:
        store: URL of the store that holds it, opened at its root.
        path: path or prefix within that store.
    """

    store: Url
    path: str

    def url_of(self, path: str) -> str:
        """Return the URL of an object of the same store, without options."""
        within = f"{self.store.prefix}/{path}" if self.store.prefix else path
        return f"{self.store.scheme}://{quote(self.store.name)}/{quote(within)}"

    @property
    def url(self) -> str:
        """The URL of the place itself, without options."""
        return self.url_of(self.path)


def split(url: str, *, root: str | None = None, prefix: bool = False) -> Place:
    """Cut `url` into the URL of a store and a path in it.

    A bucket is a store's root, and so is a memory name. For a local file it is the directory above that
    holds the store's index, as the local store finds it; failing that `root`; failing that the file's
    parent directory.

    Args:
        url: ``s3://bucket/key``, ``file:///dir/key``, ``memory://name/key`` or a local path.
        root: root of a local store that nothing has been written to yet.
        prefix: `url` names all objects below it, and may be the root itself.

    Raises:
        ConfigurationError: not a URL of a store, or it bears credentials, or `root` is not above the
            file, or would be a second root of a store that is there.
        InvalidPath: the path is none that an object can have.

    >>> split("s3://bucket/a/b%20c?region=eu-west-1")
    Place(store=Url(scheme='s3', name='bucket', prefix=''), path='a/b c')
    >>> split("s3://bucket", prefix=True).path
    ''
    """
    local = _local_path(url)
    if local is not None:
        return _split_local(local, root, prefix=prefix)
    scheme, _, rest = url.partition("://")
    place, mark, query = rest.partition("?")
    name, _, path = place.partition("/")
    store = parse_store_url(f"{scheme}://{name}{mark}{query}")
    refuse_secrets(store)
    path = _decoded(path)
    return Place(store=store, path=check_prefix(path) if prefix else _check_object(path, url))


def split_directory(url: str, *, root: str | None = None) -> Place:
    """Return the place of a whole store or output.

    On S3 the store is opened at `url` itself, so that nothing above it is ever touched; a local
    directory may be part of a larger store, as `split` finds out.

    >>> place = split_directory("s3://bucket/out/")
    >>> str(place.store), place.path
    ('s3://bucket/out', '')
    """
    if _local_path(url) is not None:
        return split(url, root=root, prefix=True)
    store = parse_store_url(url)
    refuse_secrets(store)
    return Place(store=store, path="")


def refuse_secrets(url: Url) -> None:
    """Raise `ConfigurationError` if `url` bears credentials: everyone on the machine could read them."""
    secret = sorted(SECRET_OPTIONS.intersection(url.options))
    if secret:
        raise ConfigurationError(
            f"the URL gives {secret[0]}: the command line takes credentials from the environment "
            "or a profile only"
        )


def _local_path(url: str) -> str | None:
    """Return the path that a URL of a local file, or just a path, names; None for any other URL."""
    if url[:5].lower() == "file:":
        return _decoded(url[5:].removeprefix("//"))
    scheme = _SLIP.match(url)
    if scheme is not None:
        raise ConfigurationError(
            f"{url!r}: write {scheme[1]}://, with two slashes, or ./{scheme[0]}… for a local file"
        )
    return None if "://" in url else url


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigurationError("the URL has a percent-encoding that is not UTF-8") from None


def _check_object(path: str, url: str) -> str:
    if not path or path.endswith("/"):
        raise InvalidPath(f"{url.partition('?')[0]!r} names no object: put a key behind it")
    return check_path(path)


def _split_local(name: str, root: str | None, *, prefix: bool) -> Place:
    if not name:
        raise ConfigurationError("the path of a local file is empty")
    check_name("file", name)
    if name.endswith("/") and not prefix:
        raise InvalidPath(f"{name!r} names a directory, not an object")
    path = os.path.abspath(os.path.expanduser(name))
    # A directory that is listed may be the root itself; a file never is.
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
                f"{path!r} is in the store at {top!r}, which has its own lock and versions: leave "
                "--root out"
            )
        top = root
    relative = "" if real == top else os.path.relpath(real, top)
    if relative.split(os.sep, 1)[0] == os.pardir:
        raise ConfigurationError(f"--root {top!r} is not above {path!r}")
    if relative and prefix and (directory or name.endswith("/")):
        relative += "/"
    store = Url(scheme="file", name=top)
    return Place(store=store, path=check_prefix(relative) if prefix else check_path(relative))
