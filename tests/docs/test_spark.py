"""The Spark examples in README and docs run unchanged, page by page, in a separate process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

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
    "docs/switch-a-job.md": (
        "import commitlog\n"
        "from pyspark.sql import SparkSession\n"
        "spark = commitlog.spark.configure(SparkSession.builder).getOrCreate()\n"
    ),
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
}

#: Runs the blocks of one page, and prints their number. A failure prints the block.
_RUN = """
import json, sys

page = json.load(sys.stdin)
names = {"__name__": "__main__"}
exec(page["before"], names)
for number, block in enumerate(page["blocks"]):
    names.get("before", lambda *_: None)(number, block)
    try:
        exec(compile(block, f"block {number}", "exec"), names)
    except BaseException:
        print(block, file=sys.stderr)
        raise
    for query in names["spark"].streams.active:
        query.processAllAvailable()
        query.stop()
print(len(page["blocks"]))
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


@pytest.mark.all
@pytest.mark.parametrize("page", PAGES)
def test_examples_of_spark_run(page: str, tmp_path: Path) -> None:
    """Each example of the page runs without an error after the previous ones."""
    from commitlog.namespaces import create_namespace
    from commitlog.spark import committer_jar

    for landing in ("data/landing", "s3/landing/events"):
        (tmp_path / landing).mkdir(parents=True)
        (tmp_path / landing / "one.json").write_text('{"id": 1}\n')
    for command in _PREPARATION.findall((ROOT / page).read_text()):
        subprocess.run(command, cwd=tmp_path, shell=True, check=True)
    (tmp_path / "var/lib/node_exporter").mkdir(parents=True)
    names = f"sqlite://{tmp_path}/names.sqlite"
    create_namespace("lake", store=str(tmp_path / "lake"), metadata=names)
    blocks = [_here(block, tmp_path) for block in _blocks(page)]
    assert blocks
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps({"before": _here(PAGES[page], tmp_path), "blocks": blocks}),
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "COMMITLOG_METADATA": names,
            "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --master local[1]"
            " --conf spark.sql.shuffle.partitions=2"
            f" --jars {committer_jar()} pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert done.stdout.splitlines()[-1] == str(len(blocks))
