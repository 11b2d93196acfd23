"""Arguments with a choice among words, durations and sizes: the same messages everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from commitlog._util.parsing import parse_bytes, parse_seconds
from commitlog.aws.session import AwsOptions
from commitlog.commit import ConditionalStore
from commitlog.errors import ConfigurationError
from commitlog.ingest import IngestSettings
from commitlog.locks import FencedStore
from commitlog.outputs import Output
from commitlog.stores import MemoryStore
from commitlog.tabular.output_job import OutputWriter

STORE = ConditionalStore(MemoryStore())
OUTPUT = Output(STORE)
WRONG: Any = "Append"
NO_TEXT: Any = ["logged"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AwsOptions(addressing_style=WRONG), "addressing_style is 'Append'; .* auto, path, v"),
        (lambda: ConditionalStore(MemoryStore(), mode=WRONG), "mode is 'Append'; .* auto, native, "),
        (lambda: FencedStore(STORE, keep=WRONG), "keep is 'Append'; .* content, metadata"),
        (lambda: IngestSettings(source="s", clean=WRONG), "clean is 'Append'; .* off, delete, "),
        (lambda: OUTPUT.begin(mode=WRONG), "mode is 'Append'; .* append, error, overwrite, "),
        (lambda: OUTPUT.begin(visibility=NO_TEXT), r"visibility is \['logged'\]; .* listed, logged"),
        (lambda: OUTPUT.tail(on_rewrite=WRONG), "on_rewrite is 'Append'; .* fail, skip, added"),
        (lambda: OutputWriter.create("out", mode=WRONG), "mode is 'Append'; .* append, error, overw"),
        (lambda: OutputWriter.create("out", visibility=WRONG), "visibility is 'Append'; .* listed, l"),
    ],
)
def test_the_message_of_a_wrong_choice_names_the_allowed_ones(
    make: Callable[[], object], message: str
) -> None:
    """A word with other capitals is wrong, and so is a value that is no text."""
    with pytest.raises(ConfigurationError, match=message.replace(".*", "it must be one of")):
        make()


@pytest.mark.parametrize(("parse", "what"), [(parse_bytes, "size"), (parse_seconds, "duration")])
def test_a_number_beyond_all_floats_is_refused(parse: Callable[[str], object], what: str) -> None:
    """It is an error of the configuration, neither one of Python nor infinity."""
    with pytest.raises(ConfigurationError, match=f"is not a {what}"):
        parse("9" * 400)
