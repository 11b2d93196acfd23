"""The readers of JSON lines: the fast one returns the rows of the exact one, or none."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.files.json.exact import ExactReader
from commitlog.files.json.fast import FastReader
from commitlog.files.json.writer import json_objects
from commitlog.files.line_parser import table_of
from commitlog.files.timestamps import days_of, micros_of

KINDS = {
    "b": pa.bool_(),
    "i": pa.int8(),
    "l": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "n": pa.decimal128(5, 2),
    "s": pa.string(),
    "y": pa.date32(),
    "t": pa.timestamp("us", tz="UTC"),
    "w": pa.timestamp("us"),
    "a": pa.list_(pa.int64()),
    "o": pa.struct([("l", pa.int64()), ("y", pa.date32()), ("w", pa.list_(pa.timestamp("us")))]),
    "p": pa.list_(pa.struct([("s", pa.string())])),
}
TWO_DIGITS = st.sampled_from(["00", "01", "02", "12", "23", "24", "29", "30", "31", "59", "60"])
TIMES = st.from_regex(
    r"(0000|0001|1969|1970|2000|2001|9999)-(00|01|02|12|13)-(00|01|28|29|31|32)"
    r"([ T](00|12|23|24)(:(00|59|60)(:(00|59|60)(\.[0-9]{1,10})?)?)?)?"
    r"(Z|z|[+-](00|05|23|24)(:?(00|30|59|60))?)?",
    fullmatch=True,
)
NUMBERS = st.one_of(
    st.integers(-130, 130).map(str),
    st.sampled_from([2**63 - 1, -(2**63), 2**63, 10**20, 10**45]).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "0e5", "1e400", "1e39", "1e-400", "5e-3", "1E2"]),
    st.sampled_from(["1.005", "999.99", "999.995", "1000", "0.010", "01", "+1", "1.", ".5", "-"]),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "Inf", "-Inf", "nan"]),
)
TEXTS = st.one_of(
    st.text(max_size=5).map(json.dumps),
    st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
    TIMES.map(json.dumps),
    NUMBERS.map(json.dumps),
    st.sampled_from(
        ['"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00\\ud800"', '"\x00"', '"\t"', '"\\x"', '"']
    ),
)
WORDS = st.sampled_from(["null", "true", "false", "None", "{}", "[]", '{"l":1}', "[null]", "", "]", "}"])
SCALARS = NUMBERS | TEXTS | WORDS
NAMES = st.sampled_from([*KINDS, "new", "\\u0069"])
SPACE = st.sampled_from(["", "", "", " ", "\t "])


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of arrays."""
    return st.lists(inner, max_size=2).map(lambda values: "[" + ", ".join(values) + "]")


def objects(members: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[str]:
    """Return texts that are objects or similar to objects."""
    member = st.tuples(SPACE, members, SPACE).map(lambda m: f'{m[0]}"{m[1][0]}":{m[2]}{m[1][1]}')
    return st.lists(member, max_size=3).map(lambda members: "{" + ",".join(members) + "}")


#: Columns with values that often occur.
LIKELY = {
    **dict.fromkeys("ilfdn", NUMBERS),
    **dict.fromkeys("ytw", TIMES.map(json.dumps)),
    "b": st.sampled_from(["true", "false"]),
    "s": TEXTS,
    "a": arrays(NUMBERS | st.just("null")),
    "new": SCALARS,
}
LIKELY["o"] = objects(
    st.sampled_from(["l", "y", "new"]).flatmap(lambda n: st.tuples(st.just(n), LIKELY[n]))
)
LIKELY["p"] = arrays(objects(st.tuples(st.sampled_from(["s", "s", "new"]), TEXTS)))
MEMBERS = st.sampled_from(list(LIKELY)).flatmap(
    lambda name: st.tuples(st.just(name), st.just("null") | LIKELY[name])
)
VALUES = st.recursive(
    SCALARS, lambda inner: objects(st.tuples(NAMES, inner)) | arrays(inner), max_leaves=3
)
LINES = st.one_of(
    objects(MEMBERS),
    objects(MEMBERS | st.tuples(NAMES, VALUES)),
    st.tuples(objects(MEMBERS), st.sampled_from(["null", "{}", " ", "\x0b", "5", "\r"])).map("".join),
)


def texts(table: pa.Table) -> list[str]:
    """Return each row as text. As text, NaN equals NaN, and a year may be 0."""
    return [
        text
        for batch in table.to_batches()
        for text in json_objects(table.schema.names, batch.columns).to_pylist()
    ]


@example('{"d":Inf}')
@example('{"n":12345}')
@example('{"w":"2000-01-01T00:00Z"}')
@example('{"t":"0000-02-29"}')
@example('{"f":1.00000017881393421514957253748434595763683319091796875001}')
@example("{}null{}")
@example('{"b":true}{"b":true}')
@given(LINES)
def test_both_readers_agree(line: str) -> None:
    """The fast reader returns no rows if values do not fit or new members are reported."""
    schema = pa.schema(list(KINDS.items()))
    exact = ExactReader(schema)
    try:
        wanted = table_of([exact.row(line)], schema)
    except ValueError:
        wanted = None
    for all_known in (False, True):
        table = FastReader(schema, report_unknown=all_known).table(line.encode() + b"\n")
        if table is not None:
            assert table.schema == schema
            assert wanted is not None
            assert texts(table) == texts(wanted)
            assert not exact.misfits
            assert not (all_known and exact.unknown)


def test_plain_lines_are_read_fast() -> None:
    """They may have nulls in new members, either line end, and no end of the last line."""
    schema = pa.schema(list(KINDS.items()))
    lines = b'{"l":1,"t":"2000-01-01","new":null}\r\n{"o":{"y":"2000-01-01","z":null}}\n{}'
    quick = FastReader(schema, report_unknown=True)
    assert quick.table(lines).column("l").to_pylist() == [1, None, None]
    for news in (b'{"x":0}', b'{"o":{"x":0}}', b'{"p":[{"x":0}]}', b'{"l":2,"l":3}', b'{"s":5}'):
        assert quick.table(lines + b"\n" + news) is None


def test_deep_nesting_does_not_crash_the_process() -> None:
    """The nesting is in a new member, whose type pyarrow would infer."""
    code = """
import pyarrow as pa
from commitlog.files.json.fast import FastReader
quick = FastReader(pa.schema([("l", pa.int64())]), report_unknown=True)
deep = b'{"l":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
assert quick.table(b'{"l":1}\\n' + deep) is None
assert len(FastReader(pa.schema([("l", pa.int64())])).table(deep)) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "text",
    [
        "1e-44",
        "1E-999999999",
        '"1e-999999999"',
        '"1\\u0065-999999999"',
        '"1e\\u002d999999999"',
        "0." + "0" * 79 + "1",
        "0.0000000000000000000000000001e-9",
    ],
)
def test_the_smallest_decimals_are_not_read_fast(text: str) -> None:
    """pyarrow returns zero for some of them, and crashes on others."""
    for kind in (pa.decimal128(38, 5), pa.list_(pa.decimal128(5, 2))):
        value = f"[{text}]" if pa.types.is_list(kind) else text
        lines = f'{{"n":{value},"s":"x"}}\n{{"n":null}}\n'.encode()
        assert FastReader(pa.schema([("n", kind)])).table(lines) is None
    lines = b'{"n":1.25,"s":"1b4e28ba-2f3e-12d2-883e-0016d3cca427","o":"\\u00e9","d":0.1234567890123456}'
    assert FastReader(pa.schema([("n", pa.decimal128(5, 2))])).table(lines) is not None


@pytest.mark.parametrize(
    "lines",
    [
        b"null",
        b"",
        b"\n",
        b"{}\n\n{}",
        b"{}{}\n{",
        b'{"l":1}\nnull\n',
        b"{}null{}",
        b'{"s":"\xff"}',
        b" {}",
    ],
)
def test_lines_that_pyarrow_misreads_are_not_read_fast(lines: bytes) -> None:
    """pyarrow crashes on these lines, miscounts them, or does not check them."""
    assert FastReader(pa.schema([("s", pa.string()), ("l", pa.int64())])).table(lines) is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "1.50", "1.50"),
        (pa.string(), '{"b": 1.0,  "c":"\\u00e9"}', '{"b": 1.0,  "c":"\\u00e9"}'),
        (pa.string(), "1" * 5000, "1" * 5000),
        (pa.string(), "NaN", "NaN"),
        (pa.float64(), '"NaN"', math.nan),
        (pa.float64(), '"-INF"', -math.inf),
        (pa.float64(), "1e400", math.inf),
        (pa.float64(), "1" * 400, math.inf),
        (pa.binary(), '"AP8="', b"\x00\xff"),
        (pa.binary(), '""', b""),
        (pa.timestamp("us", tz="UTC"), "5", 5_000_000),
        (pa.map_(pa.string(), pa.int8()), '{"x":1,"":null,"x":2}', [("x", 2), ("", None)]),
        (pa.map_(pa.string(), pa.binary()), "{}", []),
        (pa.decimal128(5, 2), '" 1"', ...),
        (pa.decimal128(5, 2), '"1_0"', ...),
        (pa.decimal128(5, 2), "1.555", ...),
        (pa.decimal128(5, 2), "1000", ...),
        (pa.decimal128(5, 2), '"NaN"', ...),
        (pa.float64(), '"INF"', ...),
        (pa.float64(), '"1"', ...),
        (pa.float64(), "{}", ...),
        (pa.int8(), "128", ...),
        (pa.int64(), "1.0", ...),
        (pa.int64(), "true", ...),
        (pa.int64(), "9" * 5000, ...),
        (pa.bool_(), "1", ...),
        (pa.string(), '"\\ud800"', ...),
        (pa.binary(), '"AP8"', ...),
        (pa.binary(), "5", ...),
        (pa.date32(), "5", ...),
        (pa.date32(), '"2000-01-01T00:00"', ...),
        (pa.timestamp("us"), "5", ...),
        (pa.timestamp("us", tz="UTC"), "1" * 30, ...),
        (pa.timestamp("us", tz="UTC"), "1.5", ...),
        (pa.map_(pa.string(), pa.int8()), '{"\\ud800":1}', ...),
        (pa.map_(pa.string(), pa.int8()), "[]", ...),
        (pa.list_(pa.int8()), "{}", ...),
        (pa.struct([("a", pa.int8())]), "[]", ...),
    ],
)
def test_a_value_fits_or_is_rescued(kind: pa.DataType, text: str, value: Any) -> None:
    """A value that does not fit is rescued with its text."""
    schema = pa.schema([("x", kind), ("y", pa.int8())])
    reader = ExactReader(schema)
    row = reader.row(f'{{"x": {text} , "y":1}}')
    table_of([row], schema)
    assert reader.misfits == (["x"] if value is ... else [])
    assert reader.rescued == ({"x": text} if value is ... else {})
    assert repr(row) == repr([None if value is ... else value, 1])


def test_nested_values_that_do_not_fit_are_rescued() -> None:
    """Other values are kept. The text of the whole column is rescued, and each place reported."""
    kind = pa.struct([("a", pa.list_(pa.int8())), ("m", pa.map_(pa.string(), pa.int8()))])
    reader = ExactReader(pa.schema([("x", kind), ("s", pa.string())]))
    text = '{"a": [1,"?",null], "m":{"k":"?","l":2}, "new":0, "none":null}'
    row = reader.row(f'{{"x":{text},"s":"t","more":[],"\\u0065":{{}},"none":null}}')
    assert row == [{"a": [1, None, None], "m": [("k", None), ("l", 2)], "new": None, "none": None}, "t"]
    assert reader.misfits == ["x.a.element", "x.m.value"]
    assert reader.unknown == ["x.new", "more", "e"]
    assert reader.rescued == {"x": text, "more": "[]", "e": "{}"}
    reader.row("{}")
    assert (reader.misfits, reader.unknown, reader.rescued) == ([], [], {})


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "}", "null", "[]", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", '{"a":1}{}', '{"a":1]'),
        *("{1:1}", '{"b":[1}', '{"b":[1,]}', '{"a":01}', '{"a":"\n"}'),
        pytest.param('{"c":' + "[" * 10**5 + "]" * 10**5 + "}", id="deep"),
    ],
)
def test_invalid_lines_are_refused(line: str) -> None:
    """The error is a `ValueError`."""
    with pytest.raises(ValueError):
        ExactReader(pa.schema([("a", pa.int8()), ("b", pa.list_(pa.int8()))])).row(line)


@given(TIMES)
def test_times_are_parsed_as_in_arrow(text: str) -> None:
    """This holds for text that Arrow accepts."""
    for kind, ours in (
        (pa.date32(), days_of(text)),
        (pa.timestamp("us", tz="UTC"), micros_of(text, instant=True)),
        (pa.timestamp("us"), micros_of(text, instant=False)),
    ):
        try:
            arrows = pa.array([text]).cast(kind).cast(pa.int32() if kind == pa.date32() else pa.int64())
        except pa.ArrowInvalid:
            continue
        assert ours == arrows[0].as_py()


@given(st.binary(max_size=9))
def test_binary_is_base64(data: bytes) -> None:
    """This holds for any bytes."""
    row = ExactReader(pa.schema([("x", pa.binary())])).row(
        f'{{"x":"{base64.b64encode(data).decode()}"}}'
    )
    assert row == [data]
