"""The documentation: its examples run, its links are valid, and the names in it exist."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from commitlog import errors
from commitlog.cli import main
from commitlog.cli.lock import TOKEN_VARIABLE
from commitlog.spark.committer.jobs import JobCommitter
from support.commands import commands
from support.markdown import FENCE, broken_links, without_code
from support.project import ROOT

PAGES = sorted(
    [
        *(ROOT / "README.md", ROOT / "CHANGES.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    ]
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if ">>> " in page.read_text()], ids=_name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example that begins with a prompt has the result on the page, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_are_valid(page: Path) -> None:
    """Every relative link has an existing file as its target, and an existing heading in it."""
    assert not list(broken_links(page))


def test_json_and_python_parse() -> None:
    """JSON and Python blocks on the pages are valid."""
    for page in PAGES:
        for language, block in FENCE.findall(page.read_text()):
            if language == "json":
                json.loads(block)
            elif language == "python" and ">>> " not in block:
                compile(block, _name(page), "exec")


def _command_lines() -> Iterator[tuple[str, str]]:
    """Yield every use of the command in the pages: in code spans, and at prompts."""
    for page in PAGES:
        text = page.read_text()
        for language, block in FENCE.findall(text):
            if language == "console":
                yield from ((_name(page), line) for line in block.replace("\\\n", " ").splitlines())
        for span in re.findall(r"`([^`\n]+)`", without_code(text)):
            yield _name(page), f"$ {span}"


def _uses() -> list[tuple[str, list[str]]]:
    return [
        (page, line[len("$ commitlog ") :].split())
        for page, line in _command_lines()
        if line.startswith("$ commitlog ")
    ]


@pytest.mark.parametrize(
    ("page", "words"), _uses(), ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_commands_exist(page: str, words: list[str]) -> None:
    """Every command and option on the pages exists in the program."""
    command: click.Command = main
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"{page}: commitlog {' '.join(words)}"
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    own = takewhile(lambda word: word != "--", words)  # the rest is the command of `lock`
    used = {word.partition("=")[0] for word in own if word.startswith("--")}
    assert used <= known, f"{page}: {used - known}"


def test_options_named_alone_exist() -> None:
    """Every option that operations.md names without a command belongs to some command."""
    known = {"--help", "--version"} | set(_options(main))
    text = (ROOT / "docs/operations.md").read_text()
    spans = " ".join(re.findall(r"`(--[^`\n]+)`", without_code(text)))
    assert set(_OPTION.findall(spans)) <= known


def test_variables_named_in_the_docs_exist() -> None:
    """Every COMMITLOG_ variable on the pages is read by a command, or set for one; all are named."""
    known = {*_variables(main), TOKEN_VARIABLE}
    named = {name for page in PAGES for name in re.findall(r"(?<!_)COMMITLOG_[A-Z_]+", page.read_text())}
    assert named == known


def test_the_page_on_s3a_has_the_error_for_other_file_systems() -> None:
    """The text of the error on the page is that of the committer."""
    text = " ".join((ROOT / "docs/spark-s3a.md").read_text().split())
    request = {"path": "hdfs://namenode:8020/out", "options": {}, "replaced": [], "dynamic": False}
    with pytest.raises(errors.NotSupported) as caught:
        JobCommitter().begin(request)
    assert f"commitlog.errors.NotSupported: {caught.value}" in text


def test_operations_documents_every_error() -> None:
    """operations.md names each error that can reach a user."""
    text = (ROOT / "docs/operations.md").read_text()
    inner = {"CommitError", "TransactionCanceled"}
    assert not [name for name in errors.__all__ if name not in inner and f"`{name}`" not in text]


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted((ROOT / "commitlog").rglob("*.py")):
        yield _name(file), ast.parse(file.read_text())


def test_no_module_imports_boto3() -> None:
    """Decision 0002 says that no module of the package imports boto3."""
    importing = {
        name
        for name, module in _modules()
        for node in ast.walk(module)
        if (isinstance(node, ast.Import) and any(each.name.startswith("boto3") for each in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("boto3"))
    }
    assert not importing


def test_the_decision_names_all_modules_with_state() -> None:
    """Decision 0005 names every module that keeps module-level state: a registry, and its lock."""
    keeping = {
        name.removeprefix("commitlog/")
        for name, module in _modules()
        for node in module.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, ast.Call)
        and re.search(r"^(Weak|threading\.|local$|defaultdict|deque)", ast.unparse(node.value.func))
    }
    [decision] = (ROOT / "docs/decisions").glob("0005*")
    assert keeping == set(re.findall(r"`([\w/]+\.py)`", decision.read_text()))


def test_every_command_has_a_help_text() -> None:
    """Each command has a help text with an example, and each of its options has a help text."""
    for path, command in commands(main, "commitlog"):
        assert command.help, path
        if not isinstance(command, click.Group):
            assert f"Example:\n  {path}" in inspect.cleandoc(command.help), path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts}"


def _variables(command: click.Command) -> Iterator[str]:
    for _, each in commands(command, ""):
        for parameter in each.params:
            if isinstance(parameter.envvar, str):
                yield parameter.envvar


def _options(command: click.Command) -> Iterator[str]:
    for _, each in commands(command, ""):
        for parameter in each.params:
            yield from parameter.opts
