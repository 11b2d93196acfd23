"""Text as records: one for each line, or one for each file."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, InputUnreadable, NotSupported, UnknownColumns
from commitlog.files import INPUT_FORMATS, Columns
from commitlog.files.text import TextInput
from support.input_files import pieces_of, pinned, records, slices

STRING = pa.schema([("value", pa.string())])


@given(
    lines=st.lists(st.text("aé€\x00 ", max_size=5), max_size=20),
    cuts=st.lists(st.integers(1, 60), max_size=4),
    piece=st.integers(1, 20),
)
def test_each_line_is_read_once(lines: list[str], cuts: list[int], piece: int) -> None:
    """Lines come in order with their offsets, whatever the cuts."""
    data = "".join(line + "\n" for line in lines).encode()
    with pieces_of(piece):
        got = records(TextInput({}), pinned(data), Columns(schema=STRING, offsets=True), cuts)
    assert [each["value"] for each, _, _ in got] == lines
    assert [data[at:].split(b"\n")[0].decode() for _, at, _ in got] == lines


def test_text_is_a_format() -> None:
    """It has the name of Spark's format, and its columns need no inference."""
    text = INPUT_FORMATS["text"]({})
    assert text.fixed == STRING == text.infer(pinned(b""))
    assert text.splits("in/a.txt")
    assert not text.splits("in/a.txt.gz")
    assert not TextInput({"wholetext": "true"}).splits("in/a.txt")


def test_a_file_can_be_one_record() -> None:
    """This needs option wholetext; an empty file is a record too."""
    text = TextInput({"wholetext": "true"})
    columns = Columns(schema=STRING, offsets=True)
    for data, path in ((b"a\r\nb\n", "in/a"), (b"", "in/b"), (gzip.compress(b"c"), "in/c.gz")):
        content = gzip.decompress(data) if path.endswith("gz") else data
        got = records(text, pinned(data, path), columns)
        assert got == [({"value": content.decode()}, 0, None)]
    with pytest.raises(InputUnreadable, match="maxRecordBytes"):
        records(TextInput({"wholetext": "true", "maxRecordBytes": "3"}), pinned(b"1234"), columns)


def test_invalid_utf8_is_replaced_or_kept() -> None:
    """A string gets the replacement character; binary keeps the bytes."""
    source = pinned(b"caf\xe9\ncaf\xc3\xa9\n")
    got = [row["value"] for row, _, _ in records(TextInput({}), source, Columns(schema=STRING))]
    assert got == ["caf\N{REPLACEMENT CHARACTER}", "café"]
    binary = Columns(schema=pa.schema([("value", pa.binary())]))
    assert [row["value"] for row, _, _ in records(TextInput({}), source, binary)] == [
        b"caf\xe9",
        b"caf\xc3\xa9",
    ]


def test_line_sep_is_the_only_line_end() -> None:
    """Line feeds are part of the text."""
    got = records(TextInput({"lineSep": "||"}), pinned(b"a\n||b||"), Columns(schema=STRING))
    assert [row["value"] for row, _, _ in got] == ["a\n", "b"]


def test_a_query_without_the_value_counts_lines() -> None:
    """Records have no columns. The value is ignored, unless the policy is to rescue."""
    nothing = pa.schema([])
    source = pinned(b"a\nb\n")
    text = TextInput({})
    assert records(text, source, Columns(schema=nothing)) == [({}, None, None)] * 2
    got = records(text, source, Columns(schema=nothing, new="rescue"))
    assert [rescued for _, _, rescued in got] == ['{"value":"a"}', '{"value":"b"}']
    with pytest.raises(UnknownColumns, match="value"):
        records(text, source, Columns(schema=nothing, new="fail"))


def test_other_types_and_invalid_options_are_refused() -> None:
    """The type of the value must be string or binary."""
    with pytest.raises(NotSupported, match="int64"):
        TextInput({}).check(Columns(schema=pa.schema([("value", pa.int64())])))
    TextInput({}).check(Columns(schema=pa.schema([("value", pa.binary()), ("day", pa.int64())])))
    for wrong in ({"wholetext": "yes"}, {"lineSep": ""}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            TextInput(wrong)


def test_batches_are_bounded() -> None:
    """Many short lines make several batches."""
    source = pinned(b"\n" * 100_000)
    sizes = [
        len(each)
        for each in TextInput({}).decode(source, slices(source.file)[0], Columns(schema=STRING))
    ]
    assert sum(sizes) == 100_000
    assert max(sizes) <= 65_536
