"""CSV input of any writer: dialects, headers, slices, and values that do not fit."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import gzip
import io
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, InputUnreadable, NotSupported, UnknownColumns
from commitlog.files import OUTPUT_FORMATS, Columns
from commitlog.files.csv import parser
from commitlog.files.csv.format import CsvInput
from support.input_files import pieces_of, pinned, records, slices
from support.output_files import read as read_output
from support.output_files import text_of

UTC = dt.UTC
STRINGS = pa.schema([("a", pa.string()), ("b", pa.string())])


def read(
    data: bytes,
    schema: pa.Schema = STRINGS,
    cuts: tuple[int, ...] = (),
    new: Any = "ignore",
    **options: str,
) -> list[tuple[Any, ...]]:
    """Return the values of each record, its offset, and its rescued values."""
    columns = Columns(schema=schema, new=new, offsets=True)
    found = records(CsvInput(options), pinned(data, "in/file.csv"), columns, cuts)
    return [(*(row.get(name) for name in schema.names), at, odd) for row, at, odd in found]


def values(data: bytes, schema: pa.Schema = STRINGS, **options: str) -> list[tuple[Any, ...]]:
    """Return the values of each record."""
    return [row[:-2] for row in read(data, schema, **options)]


def both(monkeypatch: pytest.MonkeyPatch, *args: Any, **options: Any) -> list[tuple[Any, ...]]:
    """Return the result of `values`; check that pyarrow and the parser of single lines agree."""
    with monkeypatch.context() as patch:
        patch.setattr(parser, "FEW", 1)
        quick = values(*args, **options)
        patch.setattr(parser, "FEW", 1 << 40)
        assert repr(values(*args, **options)) == repr(quick)
    return quick


CELLS = st.text(st.sampled_from('ab ,"\\\n\r\té\u2028#;'), max_size=6)
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=8)
CUTS = st.lists(st.integers(1, 60), max_size=4).map(tuple)


@example(rows=[("a", '"'), ("b", "x")], cuts=(), header=False, end="\n", few=1)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=8),
    cuts=CUTS,
    header=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    few=st.sampled_from([1, 1000]),
)
def test_rows_of_pythons_writer_are_read_once(
    rows: list[tuple[str, str]], cuts: tuple[int, ...], header: bool, end: str, few: int
) -> None:
    """They come in order, whatever the cuts; an empty field is null."""
    clean = [tuple("".join(text.splitlines()) for text in row) for row in rows]
    with io.StringIO(newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator=end)
        writer.writerows([("b", "a")] * header + clean)
        data = file.getvalue().encode()
    expected = [row[:: -1 if header else 1] for row in clean]
    with pytest.MonkeyPatch.context() as patch, pieces_of(7):
        patch.setattr(parser, "FEW", few)
        found = read(data, cuts=cuts, escape='"', header=str(header))
    assert [row[:2] for row in found] == [tuple(text or None for text in row) for row in expected]
    assert all(data[row[2] :].startswith(b'"') for row in found)


@given(rows=ROWS, few=st.sampled_from([1, 1000]), piece=st.integers(1, 50))
def test_line_ends_within_quotes_are_kept(rows: list[tuple[str, str]], few: int, piece: int) -> None:
    """This needs option multiLine."""
    with io.StringIO(newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
        data = file.getvalue()
    # A lone carriage return ends a line anywhere.
    data = data.replace("\r\n", "\0").replace("\r", "\n").replace("\0", "\r\n")
    clean = [
        tuple(t.replace("\r\n", "\0").replace("\r", "\n").replace("\0", "\r\n") for t in row)
        for row in rows
    ]
    with pytest.MonkeyPatch.context() as patch, pieces_of(piece):
        patch.setattr(parser, "FEW", few)
        found = read(data.encode(), escape='"', multiLine="true")
    assert [row[:2] for row in found] == [tuple(text or None for text in row) for row in clean]


LINES = st.text(st.sampled_from('ab01.- ,"\\\r\tx\xa0é'), max_size=14)
KINDS = st.sampled_from(
    [pa.string(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(4, 1), pa.bool_()]
)
WORDS = st.sampled_from(
    [
        *("1", "+1", "01", " 1", "0x1", "1.0", "1e2", "-0", "1_0", "NaN", "nan", "Inf", "inf", "1e400"),
        *("128", "true", "TRUE", "t", "1.05", "1000", '"1"', '""', "2013-01-01", "2013-01-01T00:00:00Z"),
    ]
)
TIMES = st.sampled_from([pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")])


@example(lines=['"a"",b'], kinds=(pa.string(), pa.string()), options={})
@example(lines=["a\\,b", '"a\\"",b', ""], kinds=(pa.string(), pa.string()), options={})
@given(
    lines=st.lists(LINES | st.tuples(WORDS, WORDS).map(",".join), max_size=5),
    kinds=st.tuples(KINDS | TIMES, KINDS | TIMES) | st.tuples(KINDS),
    options=st.fixed_dictionaries(
        {},
        optional={
            "nullValue": st.sampled_from(["1", "a"]),
            "escape": st.sampled_from(['"', ""]),
            "quote": st.just(""),
            "sep": st.sampled_from(["\\t", " ", ",,"]),
            "ignoreLeadingWhiteSpace": st.just("true"),
            "ignoreTrailingWhiteSpace": st.just("true"),
            "comment": st.just("a"),
            "multiLine": st.just("true"),
            "lineSep": st.just("\n"),
        },
    ),
)
def test_pyarrow_and_the_line_parser_agree(
    lines: list[str], kinds: tuple[pa.DataType, ...], options: dict[str, str]
) -> None:
    """They agree on invalid lines too."""
    schema = pa.schema([(name, kind) for name, kind in zip("ab", kinds, strict=False)])
    data = "\n".join(lines).encode()
    found = []
    for few in (1, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parser, "FEW", few)
            found.append(read(data, schema, new="rescue", **options))
    assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('"a","b"', ("a", "b")),
        ('"a""x",b', ('a"x', "b")),
        ('"a\\"x",b', ('a"x', "b")),
        ('"a\\\\",b', ("a\\", "b")),
        ('"a\\x",b', ("a\\x", "b")),
        ("a\\,b", ("a\\", "b")),
        ('a"x,""', ('a"x', None)),
        (' "a", b ', (' "a"', " b ")),
        ('"a" ,"b"', ("a", "b")),
        ('"",', (None, None)),
        ("é\u2028,\ufeff", ("é\u2028", "\ufeff")),
    ],
)
def test_the_default_dialect_is_that_of_spark(
    monkeypatch: pytest.MonkeyPatch, line: str, expected: tuple[str | None, str | None]
) -> None:
    """Escapes and doubled quotes count within quotes, and an empty field is null."""
    assert both(monkeypatch, line.encode()) == [expected]


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ('"";x', {"sep": ";", "nullValue": "x"}, ("", None)),
        ("a||b", {"delimiter": "||"}, ("a", "b")),
        ("a\t", {"sep": "\\t"}, ("a", None)),
        ("'a,'','b'", {"quote": "'"}, None),
        ("'a'',','b'", {"quote": "'"}, ("a',", "b")),
        ('"a,"b', {"quote": ""}, ('"a', '"b')),
        ('"a\\","b"', {"escape": '"'}, ("a\\", "b")),
        ('"a\\","b"', {"escape": ""}, ("a\\", "b")),
        ('"a~"","b"', {"escape": "~"}, ('a"', "b")),
        (' a ,\t"b "', {"ignoreLeadingWhiteSpace": "true"}, ("a ", "b ")),
        (" a , ", {"ignoreTrailingWhiteSpace": "true"}, (" a", None)),
        ('"#a",b', {"comment": "#"}, ("#a", "b")),
    ],
)
def test_options_set_the_dialect(
    monkeypatch: pytest.MonkeyPatch, line: str, options: dict[str, str], expected: Any
) -> None:
    """These are separator, quote, escape, null, white space and comments."""
    if expected is None:
        with pytest.raises(InputUnreadable, match="the quotes of field 1 do not match"):
            values(line.encode(), **options)
    else:
        assert both(monkeypatch, line.encode(), **options) == [expected]


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ('"a"\t', {"sep": "\\t"}, ("a", None)),
        ('"a" \t"b" ', {"sep": "\t"}, ("a", "b")),
        ('\t"b"', {"sep": "\t", "ignoreLeadingWhiteSpace": "true"}, (None, "b")),
        ('"a" ', {"sep": " "}, ("a", None)),
        ('"a"\t, "b"', {"sep": ", "}, ("a", "b")),
    ],
)
def test_white_space_that_separates_fields_is_not_skipped(
    monkeypatch: pytest.MonkeyPatch, line: str, options: dict[str, str], expected: Any
) -> None:
    """Beside quotes, only other spaces and tabs are left out."""
    assert both(monkeypatch, line.encode(), **options) == [expected]


@pytest.mark.parametrize("few", [1, 1000])
@pytest.mark.parametrize("sep", ["\t", " "])
@pytest.mark.parametrize(
    "options", [{}, {"multiLine": "true"}, {"comment": "#"}, {"header": "true"}, {"lineSep": "\n"}]
)
def test_a_row_of_nulls_between_separators_is_a_row(
    monkeypatch: pytest.MonkeyPatch, few: int, sep: str, options: dict[str, str]
) -> None:
    """A separator is no white space: it makes a record. Lines of other white space are none."""
    monkeypatch.setattr(parser, "FEW", few)
    white = {"\t": " ", " ": "\t"}[sep]
    header = f"a{sep}b\n" if "header" in options else ""
    odd = f'"x ""y"" \\"z"{sep}w\n'  # which is parsed alone
    for text, row in (("", []), (odd, [('x "y" "z', "w")])):
        data = f"{header}{text}{sep}\n\n{white}\n" + f"{sep}\n" * 300 + f"v{sep}\n{sep}"
        want = [*row, *[(None, None)] * 301, ("v", None), (None, None)]
        assert values(data.encode(), sep=sep, **options) == want
    assert CsvInput({"sep": sep}).infer(pinned(f"{sep}\na{sep}b".encode())).names == ["_c0", "_c1"]


@pytest.mark.parametrize("few", [1, 1000])
def test_an_empty_field_after_a_quoted_one_counts(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """A line with more fields than columns is not valid, though they are separated by tabs."""
    monkeypatch.setattr(parser, "FEW", few)
    with pytest.raises(InputUnreadable, match="it has 3 fields, and there are 2 columns"):
        values(b'"a"\t\tb', sep="\t")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"quote": "''"}, "option quote is \"''\": give one character"),
        ({"sep": ""}, "option sep is empty"),
        ({"sep": "\n"}, "option sep is"),
        ({"header": "yes"}, "option header is 'yes'"),
        ({"encoding": "latin1"}, "option encoding is 'latin1', and only UTF-8"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], named: str) -> None:
    """The error names the option."""
    with pytest.raises(ConfigurationError, match=named):
        CsvInput(options)


TYPED = pa.schema(
    [
        ("i", pa.int8()),
        ("f", pa.float32()),
        ("n", pa.decimal128(5, 2)),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("w", pa.timestamp("us")),
    ]
)


def test_types_are_read_as_in_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, booleans, dates and times; a time without a zone is in UTC."""
    lines = [
        "1,.5,1.5,true,2013-01-01,2013-01-01T01:00:00+01:00,2013-01-01 00:00",
        "+1,5.,1e1,TRUE,,2013-01-01,2013-01-01",
        '"-7",Inf,"-.01",False,,2013-01-01 05:00:00.1234567Z,',
        ",NaN,,,,,",
    ]
    found = both(monkeypatch, "\n".join(lines).encode(), TYPED)
    day, start = dt.date(2013, 1, 1), dt.datetime(2013, 1, 1)
    later = dt.datetime(2013, 1, 1, 5, 0, 0, 123456, UTC)
    number = decimal.Decimal
    assert found[0] == (1, 0.5, number("1.50"), True, day, start.replace(tzinfo=UTC), start)
    assert found[1] == (1, 5.0, number("10.00"), True, None, start.replace(tzinfo=UTC), start)
    assert found[2] == (-7, math.inf, number("-0.01"), False, None, later, None)
    assert repr(found[3]) == repr((None, math.nan, None, None, None, None, None))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        *((0, text) for text in ("128", "1.0", " 1", "0x1", "1_0", "x", "1e1")),
        *((1, text) for text in ("nan", "inf", "1d", " 1", "0x1p3", "-")),
        *((2, text) for text in ("1.555", "1000", "NaN", "1d")),
        *((3, text) for text in ("1", "yes", " true")),
        *((4, text) for text in ("2013-1-1", "2013-01-01T00:00", "20130101", "2013-02-29")),
        *((5, text) for text in ("5", "2013", "2013-01-01T24:00", "yesterday")),
        *((6, text) for text in ("2013-01-01T00:00:00Z", "5")),
    ],
)
def test_values_that_do_not_fit_are_refused_or_rescued(
    monkeypatch: pytest.MonkeyPatch, place: int, text: str
) -> None:
    """Reading stops at their line, or they are null and rescued."""
    line = ",".join(text if n == place else "" for n in range(len(TYPED)))
    data = f",,,,,,\n{line}\n1,,,,,,\n".encode()
    for few in (1, 1000):
        monkeypatch.setattr(parser, "FEW", few)
        with pytest.raises(InputUnreadable, match=f"byte 7: .* {TYPED.names[place]!r}") as caught:
            read(data, TYPED)
        assert caught.value.offset == 7
        rows = read(data, TYPED, new="rescue")
        assert [row[-2:] for row in rows] == [
            (0, None),
            (7, f'{{"{TYPED.names[place]}":"{text}"}}'),
            (8 + len(line), None),
        ]
        assert rows[1][:-2] == (None,) * len(TYPED)


def test_invalid_lines_are_refused_or_rescued() -> None:
    """The error has their offset, and all lines before are read."""
    data = b'1,2\n\n3\n4,5,6\n"7"8,9\n\xff,0\n"8,9\n'
    assert read(data, new="rescue") == [
        ("1", "2", 0, None),
        (None, None, 5, '{"_corrupt_record":"3"}'),
        (None, None, 7, '{"_corrupt_record":"4,5,6"}'),
        (None, None, 13, '{"_corrupt_record":"\\"7\\"8,9"}'),
        (None, None, 20, '{"_corrupt_record":"\\\\xff,0"}'),
        (None, None, 24, '{"_corrupt_record":"\\"8,9"}'),
    ]
    file = pinned(data)
    found = CsvInput({}).decode(file, *slices(file.file), Columns(schema=STRINGS))
    assert next(found).batch.to_pylist() == [{"a": "1", "b": "2"}]
    with pytest.raises(InputUnreadable, match="byte 5: it has 1 fields, and there are 2") as caught:
        next(found)
    assert caught.value.offset == 5


def test_columns_are_known_by_the_header() -> None:
    """Each file and each slice is matched by its own header."""
    data = b"\xef\xbb\xbf#x\n\n#y\nb,more,a\n1,2,3\n#z\n4,,6\n"
    for cut in range(len(data)):
        assert read(data, cuts=(cut,), new="rescue", header="true", comment="#") == [
            ("3", "1", 19, '{"more":"2"}'),
            ("6", "4", 28, None),
        ]
    assert values(b"b\n1", header="true") == [(None, "1")]
    assert (
        values(b"", header="true")
        == values(b"\n \n", header="true")
        == values(b"a,b", header="true")
        == []
    )
    assert values(
        b'"a\nx",b\n1,2', pa.schema([("a\nx", pa.string())]), header="true", multiLine="true"
    ) == [("1",)]
    with pytest.raises(UnknownColumns, match="'more'"):
        read(data, new="fail", header="true", comment="#")
    with pytest.raises(InputUnreadable, match=r"the line at byte 0 of .* is not valid CSV"):
        read(b'"a"x,b\n1,2\n', header="true")


def test_a_header_without_a_column_of_the_query_is_an_error() -> None:
    """It names the file. Under ``rescue``, no value is lost; a query may read no column."""
    for more in ({}, {"multiLine": "true"}):
        with pytest.raises(InputUnreadable, match=r"header of 'in/file.csv' has none .* 'c', 'd'"):
            read(b"c,d\n1,2\n", header="true", **more)
    assert read(b"c\n1\n", new="rescue", header="true") == [(None, None, 2, '{"c":"1"}')]
    assert len(read(b"c\n1\n2", pa.schema([]), header="true")) == 2


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("few", [1, 1000])
def test_an_empty_last_field_is_null(monkeypatch: pytest.MonkeyPatch, few: int, ending: bytes) -> None:
    """So it is at the end of a file, of a block, and of the lines that are parsed at once."""
    monkeypatch.setattr(parser, "FEW", few)
    data = b'"x",\n' * 300
    strange = b'"a ""b"" \\"c",1\n'  # so that pyarrow parses the lines in small groups
    for lines in (data, strange + data):
        got = values(lines.removesuffix(b"\n") + ending, nullValue="NULL")
        assert got[-300:] == [("x", None)] * 300


@pytest.mark.parametrize("few", [1, 1000])
def test_a_carriage_return_within_quotes_is_kept(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Outside of quotes it ends a record, also alone. Offsets are those of the file."""
    monkeypatch.setattr(parser, "FEW", few)
    data = b'1,"a\rb"\r2,"c\r\nd"\r\n\r3,"\re\nf\r"\n4,g\r'
    for size in (1, 5, 1 << 20):
        with pieces_of(size):
            assert read(data, multiLine="true") == [
                ("1", "a\rb", 0, None),
                ("2", "c\r\nd", 8, None),
                ("3", "\re\nf\r", 19, None),
                ("4", "g", 29, None),
            ]


@pytest.mark.parametrize("few", [1, 1000])
def test_names_in_headers_are_matched_as_in_parquet(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Letter case and surrounding white space do not matter; an equal name goes first."""
    monkeypatch.setattr(parser, "FEW", few)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    for header in (b"Id, Name", b"ID\t,name ", b'"id"," Name"'):
        assert values(header + b"\n1,x\n2,y", schema, header="true") == [(1, "x"), (2, "y")]
        assert CsvInput({"header": "true"}).infer(pinned(header + b"\n1,x")).names == [
            name.strip().strip('"').strip() for name in header.decode().split(",")
        ]
    assert read(b"Id, More\n1,x", schema, new="rescue", header="true") == [(1, None, 9, '{"More":"x"}')]
    # A schema that an earlier version inferred has the white space of its header.
    assert values(b"id, name\n1,x", pa.schema([(" name", pa.string())]), header="true") == [("x",)]


@pytest.mark.parametrize("header", [b"id,id,name", b"id,name,ID ", b"id,,_c1"])
@pytest.mark.parametrize("new", ["ignore", "fail", "rescue"])
def test_a_header_with_a_name_twice_is_refused(header: bytes, new: str) -> None:
    """Each policy and inference refuse it: a value would be lost, or be in the wrong column."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with pytest.raises(InputUnreadable, match=r"'(id|_c1)' is there twice"):
        read(header + b"\n1,2,3", schema, new=new, header="true")
    with pytest.raises(InputUnreadable, match="is there twice"):
        CsvInput({"header": "true"}).infer(pinned(header + b"\n1,2,3"))


def test_compressed_files_and_queries_without_columns() -> None:
    """A compressed file is one slice. Without columns, rows are counted."""
    file = pinned(gzip.compress(b"a,b\n1,x\n2\n"), "in/x.csv.gz")
    columns = Columns(schema=pa.schema([("a", pa.int8())]))
    assert not CsvInput({}).splits("x.csv.gz") and CsvInput({}).splits("x.csv")
    assert not CsvInput({"multiLine": "true"}).splits("x.csv")
    with pytest.raises(InputUnreadable, match="byte 8:") as caught:
        records(CsvInput({"header": "true"}), file, columns)
    assert caught.value.offset is None
    lines = b"a,b\n" + b"1,x\n" * 40
    empty = Columns(schema=pa.schema([]))
    assert records(CsvInput({"header": "true"}), pinned(lines), empty) == [({}, None, None)] * 40
    assert records(CsvInput({"header": "true"}), pinned(lines[:12]), empty) == [({}, None, None)] * 2


def test_columns_are_inferred() -> None:
    """They are strings with the names of the header or their number; an option infers types."""

    def infer(data: bytes, **options: str) -> dict[str, pa.DataType]:
        schema = CsvInput(options).infer(pinned(data))
        return dict(zip(schema.names, schema.types, strict=True))

    text = pa.string()
    assert infer(b"a,b,\n1,2,3\n", header="true") == {"a": text, "b": text, "_c2": text}
    assert infer(b"\n1,2\n") == {"_c0": text, "_c1": text}
    assert infer(b"") == infer(b" \n", header="true") == {}
    data = b"n,d,t,b,x,m,e,l\n1,2013-01-01,2013-01-01 00:00:00,true,a,1,,1\n"
    data += b'"q"x\n2.5,,,,,z,,99999999999999999999\n'
    assert infer(data, header="true", inferSchema="true") == {
        "n": pa.float64(),
        "d": pa.date32(),
        "t": pa.timestamp("us", tz="UTC"),
        "b": pa.bool_(),
        "x": text,
        "m": text,
        "e": pa.null(),
        "l": pa.decimal128(20, 0),
    }


def test_types_that_csv_cannot_hold_are_refused() -> None:
    """The error names the column."""
    with pytest.raises(NotSupported, match="column 'x' is of type list"):
        CsvInput({}).check(Columns(schema=pa.schema([("x", pa.list_(pa.int8()))])))


def collect(rows: list[dict[str, Any]], data: bytes, path: str, **options: str) -> None:
    """Add the records of a file to `rows`."""
    file = pinned(data, path)
    for part in CsvInput(options).decode(file, *slices(file.file), Columns(schema=STRINGS)):
        rows += part.batch.to_pylist()


def test_records_before_damage_are_read() -> None:
    """The damage is in compressed data, or is a record that is too long."""
    data = gzip.compress(b"a,b\n" + b"1,x\n" * 10)[:-9]
    for breaks in ("false", "true"):
        rows: list[dict[str, Any]] = []
        with pytest.raises(InputUnreadable, match="cannot be decompressed"):
            collect(rows, data, "in/x.csv.gz", header="true", multiLine=breaks)
        assert rows
    rows = []
    with pytest.raises(InputUnreadable, match="a record of more than 6 bytes from byte 4 on"):
        collect(rows, b'1,2\n"3\n4\n5",6\n', "in/x.csv", multiLine="true", maxRecordBytes="6")
    assert rows == [{"a": "1", "b": "2"}]


def test_the_time_to_read_a_header_is_linear_in_its_columns() -> None:
    """A hundred thousand columns take less than a second."""
    data = ",".join(f"c{number}" for number in range(100_000)).encode()
    schema = CsvInput({"header": "true"}).infer(pinned(data + b"\n", "in/file.csv"))
    assert schema.names[99_999] == "c99999"


def test_a_file_may_have_no_header() -> None:
    """This holds for slices of any size, in files of white space or of a byte order mark."""
    for data in (b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\n\n \n"):
        assert read(data, cuts=(1, 2), header="true") == []


def test_the_smallest_decimals_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decimal with too many places is not read as zero, and does not crash the process."""
    schema = pa.schema([("n", pa.decimal128(38, 5))])
    assert both(monkeypatch, b"1e-5\n0.00001\n", schema) == [(decimal.Decimal("0.00001"),)] * 2
    for text in ("1e-44", "1E-999999999", "0." + "0" * 79 + "1"):
        for few in (1, 1 << 40):
            monkeypatch.setattr(parser, "FEW", few)
            with pytest.raises(InputUnreadable, match="not of its type"):
                values(text.encode() + b"\n", schema)


# -- files of outputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "begins"),
    [(["a", "b\rc"], False), (["a\nb\rc"], False), (["a\rb\nc", "d"], True), (["a\r\n"], True)],
)
def test_the_first_line_end_of_a_file_is_a_line_feed(texts: list[str], begins: bool) -> None:
    """Readers that look for the end of lines, also within quotes, find it: if need be, an empty line."""
    batch = pa.record_batch({"t": texts, "n": range(len(texts))})
    parts = [text_of(OUTPUT_FORMATS["csv"], batch), text_of(OUTPUT_FORMATS["csv"], *[batch] * 2)]
    for number, data in enumerate(parts):
        assert data.startswith(b"\n") is begins
        assert data.count(b"\n\n") == 0
        assert read_output(OUTPUT_FORMATS["csv"], data, batch.schema).to_pylist() == [
            *batch.to_pylist() * (number + 1)
        ]
