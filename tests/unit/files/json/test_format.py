"""JSON input of any writer: lines and documents, slices, and values that do not fit."""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, InputUnreadable, NotSupported, UnknownColumns
from commitlog.files import Columns, line_parser
from commitlog.files.json.format import JsonInput
from support.input_files import pieces_of, pinned, records, slices

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("l", pa.list_(pa.int64())),
        ("o", pa.struct([("i", pa.int64()), ("s", pa.string())])),
    ]
)


def read(
    data: bytes,
    schema: pa.Schema = SCHEMA,
    cuts: tuple[int, ...] = (),
    new: Any = "ignore",
    **options: str,
) -> list[tuple[dict[str, Any], int | None, str | None]]:
    """Return the non-null values of each record, its offset, and its rescued values."""
    columns = Columns(schema=schema, new=new, offsets=True)
    found = records(JsonInput(options), pinned(data, "in/file.json"), columns, cuts)
    return [({k: v for k, v in row.items() if v is not None}, at, odd) for row, at, odd in found]


INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=5)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "i": INTEGERS,
        "s": TEXTS,
        "d": st.floats(allow_nan=False),
        "l": st.lists(INTEGERS | st.none(), max_size=3),
        "o": st.fixed_dictionaries({"i": INTEGERS | st.none(), "s": TEXTS | st.none()}),
    },
)
ANY = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)
ODD = st.fixed_dictionaries(
    {}, optional={"i": ANY, "s": ANY, "d": ANY, "l": ANY, "o": ANY, "new": ANY, "k": ANY}
)
CUTS = st.lists(st.integers(1, 200), max_size=5).map(tuple)
CHUNKS = st.sampled_from([1, 2, 128])


def fits(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value has a type, without new members, nulls aside."""
    if value is None or pa.types.is_string(kind):
        return True
    if pa.types.is_struct(kind):
        return isinstance(value, dict) and all(
            value[name] is None or (name in kind.names and fits(value[name], kind.field(name).type))
            for name in value
        )
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(fits(each, kind.value_type) for each in value)
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float if pa.types.is_floating(kind) else int)


@given(
    rows=st.lists(FITTING, max_size=8),
    cuts=CUTS,
    ends=st.sampled_from(["\n", "\r\n", "\n\n \t\n", "\r"]),
    space=st.sampled_from(["", " "]),
    ascii=st.booleans(),
    chunk=CHUNKS,
    piece=st.sampled_from([5, 1000]),
    feeds=st.booleans(),
)
def test_each_record_is_read_once(
    rows: list[dict[str, Any]],
    cuts: tuple[int, ...],
    ends: str,
    space: str,
    ascii: bool,
    chunk: int,
    piece: int,
    feeds: bool,
) -> None:
    """Records come in order with their offsets, whatever the cuts, line ends, notation and reads."""
    lines = [space + json.dumps(row, ensure_ascii=ascii) + space for row in rows]
    data = ends.join(lines).encode()
    with pytest.MonkeyPatch.context() as patch, pieces_of(piece):
        patch.setattr(line_parser, "CHUNK", chunk)
        found = read(data, cuts=cuts, **{"lineSep": "\n"} if feeds and ends != "\r" else {})
    assert [row for row, _, _ in found] == rows
    places = [at for _, at, _ in found]
    assert [json.JSONDecoder().raw_decode(data[at:].decode().strip())[0] for at in places] == rows


@example(rows=[{"k": 1, "s": [1, {"a": 2}]}, {"o": {"x": None}}], cuts=(), chunk=1)
@given(rows=st.lists(FITTING | ODD, max_size=8), cuts=CUTS, chunk=CHUNKS)
def test_values_that_do_not_fit_are_rescued(
    rows: list[dict[str, Any]], cuts: tuple[int, ...], chunk: int
) -> None:
    """New members, and columns with a value that does not fit, are rescued; other values are kept."""
    data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode(
        "utf-8", "surrogatepass"
    )
    columns = Columns(schema=SCHEMA, new="rescue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_parser, "CHUNK", chunk)
        found = records(JsonInput({}), pinned(data), columns, cuts)
    for row, (got, _, rescued) in zip(rows, found, strict=True):
        known = {name: row.get(name) for name in SCHEMA.names}
        odd = {
            name: value
            for name, value in row.items()
            if value is not None
            and (name not in SCHEMA.names or not fits(value, SCHEMA.field(name).type))
        }
        assert json.loads(rescued or "{}") == odd
        for name, value in known.items():
            if name not in odd and name not in ("s", "o", "d"):
                assert got[name] == value
            if name == "s" and value is not None:
                assert got[name] == (
                    value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                )


@given(rows=st.lists(FITTING | ODD, max_size=6), chunk=CHUNKS)
def test_reading_stops_at_the_first_value_that_does_not_fit(
    rows: list[dict[str, Any]], chunk: int
) -> None:
    """All records before it are read, and the error has its offset. New members do not matter."""
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    file = pinned(b"".join(lines))
    bad = [n for n, row in enumerate(rows) if not _fits_without_new_members(row)]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_parser, "CHUNK", chunk)
        reading = (
            JsonInput({}).decode(file, *slices(file.file), Columns(schema=SCHEMA)) if rows else iter(())
        )
        with pytest.raises(InputUnreadable) if bad else contextlib.nullcontext() as caught:
            for part in reading:
                found += part.batch.to_pylist()
    if caught is not None:
        assert caught.value.offset == sum(map(len, lines[: bad[0]]))
    assert len(found) == (bad[0] if bad else len(rows))


def _fits_without_new_members(row: dict[str, Any]) -> bool:
    for name in SCHEMA.names:
        value = row.get(name)
        if name == "o" and isinstance(value, dict):
            value = {key: value[key] for key in value if key in ("i", "s")}
        if not fits(value, SCHEMA.field(name).type):
            return False
    return True


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"x",
        b"[]",
        b"{",
        b'{"i":1}{"i":2}',
        b'{"i":1} x',
        b"5",
        b'{"s":"\xff"}',
        b'{"i":01}',
        b"\x0c{}",
    ],
)
def test_invalid_lines_are_refused_or_rescued(line: bytes) -> None:
    """The error has the offset of the line, or the other lines are read."""
    data = b'{"i":1}\n' + line + b'\n{"i":2}'
    with pytest.raises(
        InputUnreadable, match=r"'in/file.json' cannot be read further than to byte 8: "
    ) as caught:
        read(data)
    assert caught.value.offset == 8
    corrupt = json.dumps({"_corrupt_record": line.decode(errors="backslashreplace")})
    assert [(row, json.loads(odd or "{}")) for row, _, odd in read(data, new="rescue")] == [
        ({"i": 1}, {}),
        ({}, json.loads(corrupt)),
        ({"i": 2}, {}),
    ]


def test_rescued_text_is_unchanged() -> None:
    """Digits, spaces and escapes are kept; NaN, which is not JSON, becomes a string."""
    line = b'{"i": 1.50, "new": {"a":  [1.0, "\\u00e9"]}, "more": 1e3, "odd": NaN, "none": null}'
    ((row, _, odd),) = read(line, new="rescue")
    assert row == {}
    assert (
        odd is not None
        and '{"a":  [1.0, "\\u00e9"]}' in odd
        and '"i":1.50' in odd
        and '"more":1e3' in odd
    )
    assert json.loads(odd, parse_constant=pytest.fail)["odd"] == "NaN"


def test_new_members_are_ignored_or_refused() -> None:
    """The policy for new columns decides which."""
    data = b'{"i":1,"new":null}\n{"o":{"x":0}}\n'
    assert [row for row, _, _ in read(data)] == [{"i": 1}, {"o": {"i": None, "s": None}}]
    for lines, named in ((data, "'o.x'"), (data[:19] + b'{"y":"","x":{}}', "'y', 'x'")):
        columns = Columns(schema=SCHEMA, new="fail")
        with pytest.raises(UnknownColumns, match=named):
            records(JsonInput({}), pinned(lines), columns)
    columns = Columns(schema=SCHEMA, new="fail")
    assert len(records(JsonInput({}), pinned(data[:19]), columns)) == 1


def test_a_byte_order_mark_and_compression() -> None:
    """The mark is skipped. A compressed file is one slice; offsets are in its content."""
    line = b'\xef\xbb\xbf{"i":1}\n{"i":"x"}'
    assert read(line, new="rescue")[0] == ({"i": 1}, 3, None)
    file = pinned(gzip.compress(line), "in/x.json.gz")
    assert JsonInput({}).splits("x.json") and not JsonInput({}).splits("x.json.gz")
    with pytest.raises(InputUnreadable, match="byte 11") as caught:
        records(JsonInput({}), file, Columns(schema=SCHEMA))
    assert caught.value.offset is None


def test_other_line_separators() -> None:
    """With option lineSep, a line may contain line feeds."""
    data = b'{"i":\n1}|{"i":2}\n{"i":3}|{"i":4}'
    found = read(data, new="rescue", lineSep="|")
    assert [row for row, _, _ in found] == [{"i": 1}, {}, {"i": 4}]
    assert found[1][1:] == (9, '{"_corrupt_record":"{\\"i\\":2}\\n{\\"i\\":3}"}')


def test_a_query_without_columns_counts_lines() -> None:
    """The query has one record for each line."""
    for line in (b'{"a":1}\n', b' {"a":1}\n'):
        for count in (3, 30):
            found = records(JsonInput({}), pinned(line * count), Columns(schema=pa.schema([])))
            assert found == [({}, None, None)] * count


DOCUMENTS = [
    (b'[{"i":1},\n {"i"\n:2} ]', [({"i": 1}, 1, None), ({"i": 2}, 11, None)]),
    (b'\xef\xbb\xbf {"i":\n1}', [({"i": 1}, 4, None)]),
    (b'{"i":1}{"i":2}\n[{"i":3}]', [({"i": 1}, 0, None), ({"i": 2}, 7, None), ({"i": 3}, 16, None)]),
    ('[{"s":"é"},{"s":"\\n"}]'.encode(), [({"s": "é"}, 1, None), ({"s": "\n"}, 12, None)]),
    (b"[]", []),
    (b" ", []),
    (b"", []),
]


@pytest.mark.parametrize(("data", "expected"), DOCUMENTS)
def test_documents_are_read(data: bytes, expected: list[Any]) -> None:
    """With option multiLine, each object of a file is a record, in arrays or not."""
    assert read(data, multiLine="true") == expected
    assert not JsonInput({"multiLine": "true"}).splits("x.json")
    file = pinned(data + b"    ")
    parts = slices(file.file, [1])
    assert (
        not list(JsonInput({"multiLine": "true"}).decode(file, parts[-1], Columns(schema=SCHEMA)))
        or not data
    )


@pytest.mark.parametrize(
    ("data", "place", "corrupt"),
    [
        (b'{"i":1} 5', 8, "5"),
        (b'[{"i":1}, 5]', 10, "5"),
        (b'[{"i":1} 5]', 9, "5]"),
        (b'[{"i":1},]', 9, "]"),
        (b'[{"i":1}', 0, "["),
        (b'[{"i":1},', 0, "["),
        (b'[{"i":1}, {"i":', 10, '{"i":'),
    ],
)
def test_objects_before_damage_in_documents_are_read(data: bytes, place: int, corrupt: str) -> None:
    """The error has the offset of the damage."""
    found = read(data, new="rescue", multiLine="true")
    assert found[0][0] == {"i": 1}
    assert found[1] == ({}, place, json.dumps({"_corrupt_record": corrupt}, separators=(",", ":")))
    with pytest.raises(InputUnreadable) as caught:
        read(data, multiLine="true")
    assert caught.value.offset == place
    with pytest.raises(InputUnreadable, match="utf-8"):
        read(b"[{}, \xff]", multiLine="true")


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}])
def test_a_name_that_is_not_unicode_is_no_column(options: dict[str, str]) -> None:
    """It may be inside a struct. Its value is a new one, which is rescued, or named by the error."""
    data = b'{"\\ud800":1,"i":2,"o":{"\\udfff":3,"i":4}}'
    schema = JsonInput(options).infer(pinned(data))
    assert schema == pa.schema([("i", pa.int64()), ("o", pa.struct([("i", pa.int64())]))])
    [(row, _, rescued)] = read(data, schema, new="rescue", **options)
    assert row["i"] == 2
    assert json.loads(rescued or "") == {"\ud800": 1, "o": {"\udfff": 3, "i": 4}}
    with pytest.raises(UnknownColumns, match=r"ud800"):
        read(data, schema, new="fail", **options)


def test_columns_are_inferred() -> None:
    """Types are those of Spark; columns are in the order of their appearance."""

    def infer(data: bytes, **options: str) -> pa.Schema:
        return JsonInput(options).infer(pinned(data))

    element = pa.field("element", pa.float64())
    expected = pa.schema(
        [
            ("b", pa.float64()),
            ("a", pa.string()),
            ("o", pa.struct([("l", pa.list_(element)), ("t", pa.string()), ("n", pa.null())])),
            ("w", pa.decimal128(20, 0)),
            ("x", pa.float64()),
            ("y", pa.bool_()),
            ("z", pa.null()),
        ]
    )
    lines = [
        b'{"b":1,"a":{"b":1},"o":{"l":[1]},"w":12345678901234567890,"x":1' + b"0" * 60 + b"}",
        b"neither \xff",
        b'{"b":1.5,"a":2,"o":{"t":"2013-01-01","l":[null,NaN],"n":null},"w":1,"y":true,"z":null}',
    ]
    assert infer(b"\n".join(lines)) == expected
    assert infer(b"[" + lines[0] + b",\n" + lines[2] + b"]", multiLine="true") == expected
    assert infer(b"") == infer(b"\n \n") == infer(b"{}") == pa.schema([])
    with pytest.raises(InputUnreadable, match="'in/file' has no line that is an object"):
        infer(b"[1]\n")


def test_invalid_options_and_columns_are_refused() -> None:
    """These are encodings other than UTF-8, invalid flags, and maps without string keys."""
    for options in ({"encoding": "UTF-16"}, {"charset": "latin1"}, {"multiLine": "1"}, {"lineSep": ""}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            JsonInput(options)
    JsonInput({"encoding": "utf8"}).check(Columns(schema=SCHEMA))
    kind = pa.list_(pa.map_(pa.int8(), pa.int8()))
    with pytest.raises(NotSupported, match="column 'm' has a map with keys of type int8"):
        JsonInput({}).check(Columns(schema=pa.schema([("m", kind)])))


def test_times_without_a_zone_are_in_utc() -> None:
    """The time zones of the machine and of the session do not matter."""
    schema = pa.schema(
        [("t", pa.timestamp("us", tz="UTC")), ("w", pa.timestamp("us")), ("d", pa.date32())]
    )
    moment = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    for text in ("2013-01-01T05:00:00", "2013-01-01 05:00", "2013-01-01T01:30:00-03:30"):
        for more in ({}, {"new": 1}):
            ((row, _, _),) = read(json.dumps({"t": text, **more}).encode(), schema, new="rescue")
            assert row == {"t": moment}
    with pytest.raises(InputUnreadable, match="'w'"):
        read(b'{"w":"2013-01-01T05:00:00Z"}', schema)
    with pytest.raises(InputUnreadable, match="'d'"):
        read(b'{"d":"2013-01-01T05:00:00"}', schema)


def test_the_memory_of_documents_is_bounded() -> None:
    """The decompressed content may not be larger than option maxRecordBytes."""
    data = gzip.compress(b"[" + b" " * 100_000 + b"]")
    columns = Columns(schema=SCHEMA)
    for bound, enough in (("100002", True), ("100001", False)):
        input = JsonInput({"multiLine": "true", "maxRecordBytes": bound})
        with (
            contextlib.nullcontext() if enough else pytest.raises(InputUnreadable, match=r"raise option")
        ):
            assert records(input, pinned(data, "in/file.json.gz"), columns) == []
        with (
            contextlib.nullcontext() if enough else pytest.raises(InputUnreadable, match=r"raise option")
        ):
            input.infer(pinned(data, "in/file.json.gz"))
