"""A namespace from an operator's view: its metadata store in the environment, and the command line."""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen
from click.testing import CliRunner, Result

from commitlog.cli import main
from commitlog.namespace import Namespace
from commitlog.namespaces import open_namespace
from commitlog.urls import parse_table_url

URL = "commitlog://lake"


@frozen(kw_only=True)
class Desk:
    """The command line, with the environment of its commands.

    Attributes:
        names: URL of the metadata store.
        store: URL of the content of the namespace ``lake``.
        env: further environment variables.
        secret: text that no command may print.
    """

    names: str
    store: str
    env: dict[str, str]
    secret: str = "geheim"

    def run(self, *words: str, stdin: bytes = b"") -> Result:
        """Run a command; check that it exits, and prints neither secrets nor terminal escapes."""
        env = {"COMMITLOG_METADATA": self.names, **self.env}
        done = CliRunner(env=env).invoke(main, list(words), input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert self.secret not in done.output
        assert "\x1b" not in done.output
        return done

    def ok(self, *words: str, stdin: bytes = b"") -> str:
        """Run a command that succeeds; return its output."""
        done = self.run(*words, stdin=stdin)
        assert done.exit_code == 0, done.output
        assert not done.stderr
        return done.stdout

    def refused(self, status: int, *words: str, stdin: bytes = b"") -> str:
        """Run a command that ends with `status`; return its standard error."""
        done = self.run(*words, stdin=stdin)
        assert done.exit_code == status, done.output
        assert "Traceback" not in done.stderr
        return done.stderr

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """Return the JSON objects that a command prints, one in each line."""
        return [json.loads(line) for line in self.ok(*words, "--json").splitlines()]

    def fill(self, **files: bytes) -> None:
        """Write files; ``__`` in a name stands for a slash."""
        with self.open() as lake:
            for name, body in files.items():
                lake.write(name.replace("__", "/"), body)

    def open(self) -> Namespace:
        """Open the namespace with the library."""
        return open_namespace("lake", metadata=parse_table_url(self.names))

    def tree(self, path: str = "") -> dict[str, bytes | None]:
        """Return the content of all files below a path, and None for directories, by the library."""
        with self.open() as lake:
            return {
                found.path: None if found.is_directory else lake.read(found.path)
                for found in lake.walk(path)
            }
