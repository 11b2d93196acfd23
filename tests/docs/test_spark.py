"""The Spark examples in README and docs run unchanged, in a separate process.

Each page makes a Spark session of its own. All pages use one Spark, except for the page that sets the
committer up in its first session.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.project import ROOT
from support.selection import wanted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_OF_SPARK = re.compile(r"[Ss]park|\.write\.|writeStream")
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Commands of a page that make the files of its examples.
_PREPARATION = re.compile(r"^\$ (mkdir .*)$", re.MULTILINE)

#: Pages with Spark examples, and the setup that their text assumes and no example does.
PAGES = {
    "README.md": "",
    "docs/quickstart.md": "import commitlog\nspark = commitlog.spark.session()\ndf = spark.range(3)\n",
    "docs/ingest.md": "",
    "docs/namespace.md": (
        "import commitlog\n"
        "spark = commitlog.spark.session()\n"
        "store, metadata = 's3://bucket/lake', 'dynamodb://lake'\n"
        "with commitlog.create_namespace('lake', store=store, metadata=metadata) as lake:\n"
        "    lake.write('a', b'rows')\n"
    ),
    "docs/operations.md": "import commitlog\nspark = commitlog.spark.session()\n",
    "docs/spark-s3a.md": "import commitlog\nspark = commitlog.spark.session()\n",
    "docs/spark.md": (
        "url = 's3://bucket/layout'\n"
        "def before(number, block):\n"
        "    global df\n"
        "    if 'sortWithinPartitions' in block:\n"
        "        df = df.selectExpr('id', 'id % 2 AS month', 'id % 7 AS day', '1.5 AS price')\n"
        "    elif 'stream.writeStream' in block and 'day' in block:\n"
        "        global stream\n"
        "        stream = spark.readStream.schema('id LONG, day INT').json('s3://landing/events')\n"
        "    elif 'commitlog://' in block:\n"
        "        df = spark.range(3)\n"
    ),
    "docs/switch-a-job.md": (
        "import commitlog\n"
        "from pyspark.sql import SparkSession\n"
        "spark = commitlog.spark.configure(SparkSession.builder).getOrCreate()\n"
    ),
}

#: The page that gets a Spark of its own. It comes last: the pages before it have no committer.
ALONE = "docs/switch-a-job.md"

#: Runs the blocks of pages, and prints for each page the number of blocks that ran, and the error.
_RUN = """
import json, sys, traceback

def run(page, came):
    names = {"__name__": "__main__"}
    exec(page["before"], names)
    for number, block in enumerate(page["blocks"]):
        names.get("before", lambda *_: None)(number, block)
        came["block"] = block
        exec(compile(block, f"block {number}", "exec"), names)
        for query in names["spark"].streams.active:
            query.processAllAvailable()
            query.stop()
        came["ran"] += 1

def leave_session(alone):
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None and alone:
        session.stop()
    elif session is not None:
        sessions = session._get_j_spark_session_class(session._jvm)
        sessions.clearDefaultSession()
        sessions.clearActiveSession()
        SparkSession._instantiatedSession = SparkSession._activeSession = None

results = []
for page in json.load(sys.stdin):
    leave_session(page["alone"])
    results.append({"ran": 0, "block": None, "error": None})
    try:
        run(page, results[-1])
    except BaseException:
        results[-1]["error"] = traceback.format_exc()
print(json.dumps(results))
"""


def _blocks(page: str) -> list[str]:
    found = _BLOCK.findall((ROOT / page).read_text())
    return [block for block in found if ">>> " not in block and _OF_SPARK.search(block)]


def _here(text: str, top: Path) -> str:
    """Return `text` with local directories below `top` in place of buckets and server paths."""
    text = re.sub(r"s3a://", f"file:{top}/s3/", text)
    text = re.sub(r"s3://", f"{top}/s3/", text)
    text = re.sub(r"dynamodb://(ingest|lake|restored)\b", rf"sqlite://{top}/\1.sqlite", text)
    return re.sub(r'"/(data|state|var)/', rf'"{top}/\1/', text)


def test_every_page_with_examples_is_run() -> None:
    """No page has a Spark example that no test runs."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert {str(p.relative_to(ROOT)) for p in pages if _blocks(str(p))} == PAGES.keys()


def _prepared(page: str, top: Path) -> dict[str, object]:
    """Make the places below `top` that a page needs; return its setup and its blocks."""
    for landing in ("data/landing", "s3/landing/events"):
        (top / landing).mkdir(parents=True)
        (top / landing / "one.json").write_text('{"id": 1}\n')
    (top / "var/lib/node_exporter").mkdir(parents=True)
    blocks = [_here(block, top) for block in _blocks(page)]
    assert blocks
    return {"before": _here(PAGES[page], top), "blocks": blocks, "alone": page == ALONE}


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """For each page the number of blocks that ran, the last one that began, and the error."""
    from commitlog.namespaces import create_namespace
    from commitlog.spark import committer_jar

    pages = [page for (page,) in wanted(request, test_examples_of_spark_run, "page")]
    where = tmp_path_factory.mktemp("pages")
    names = f"sqlite://{where}/names.sqlite"
    create_namespace("lake", store=str(where / "lake"), metadata=names)
    prepared = [_prepared(page, where / str(number)) for number, page in enumerate(pages)]
    for page in pages:
        # Relative paths are those of the JVM, and so the same for all pages.
        for command in _PREPARATION.findall((ROOT / page).read_text()):
            subprocess.run(command, cwd=where, shell=True, check=True)
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(prepared),
        cwd=where,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "COMMITLOG_METADATA": names,
            "PYSPARK_SUBMIT_ARGS": f"--conf spark.ui.enabled=false --master local[2]"
            f" --conf spark.sql.shuffle.partitions=4 --jars {committer_jar()} pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(zip(pages, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.all
@pytest.mark.parametrize("page", PAGES)
def test_examples_of_spark_run(page: str, results: dict[str, dict[str, Any]]) -> None:
    """Each example of the page runs without an error after the previous ones."""
    came = results[page]
    assert came["error"] is None, f"{came['error']}\n{came['block']}"
    assert came["ran"] == len(_blocks(page))
