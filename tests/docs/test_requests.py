"""Statements of the documentation about requests match the requests sent: costs and permissions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import pytest
from attrs import evolve
from click.testing import CliRunner

import commitlog
from commitlog.aws.connections import ConnectionPool
from commitlog.cli import main
from commitlog.commit.probe import ROUNDS, THREADS, probe
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.outputs import Mode, Output, Visibility
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.permissions import Needed, Sent, allows, needed_by
from support.project import ROOT
from support.selection import with_all
from support.servers import Juicefs, Ministack, Seaweedfs

pytestmark = pytest.mark.servers

DOCS = ROOT / "docs"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    """All requests to S3 and DynamoDB, in order."""
    requests: list[Sent] = []
    begin = ConnectionPool.begin

    def recording(
        self: ConnectionPool, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Any:
        names = {name.lower(): value for name, value in headers.items()}
        requests.append(Sent(method, target, names, bytes(body)))
        return begin(self, method, target, headers, body)

    monkeypatch.setattr(ConnectionPool, "begin", recording)
    return requests


# -- cost of a probe ---------------------------------------------------------------------------------


def _counted(
    server: Ministack | Seaweedfs | Juicefs, sent: list[Sent], kinds: Iterable[Kind] = tuple(Kind)
) -> dict[Kind, tuple[int, bool]]:
    """Return for each kind the number of requests of its probe, and whether it is proven."""
    counts = {}
    store = open_store(f"s3://{server.new_bucket()}/a", **server.options)
    with ThreadPoolExecutor(THREADS) as executor:
        for kind in kinds:
            sent.clear()
            probe_report = probe(
                store, kinds=[kind], executor=executor, clock=ManualClock(), rounds=ROUNDS
            )
            counts[kind] = len(sent), probe_report.proves(kind)
    store.close()
    return counts


@pytest.mark.all
def test_the_cost_of_a_probe_matches_the_page(
    ministack: Ministack, seaweedfs: Seaweedfs, juicefs: Juicefs, sent: list[Sent]
) -> None:
    """docs/protocol.md has the number of requests for each proven kind, and the sums."""
    text = (DOCS / "protocol.md").read_text()
    honoured: dict[Kind, int] = {}
    for server in (ministack, seaweedfs):
        rest = [kind for kind in Kind if kind not in honoured]
        honoured |= {kind: count for kind, (count, ok) in _counted(server, sent, rest).items() if ok}
    for kind in Kind:
        [row] = re.findall(rf"^\|.*`{kind.label}`.*\| ([\d, ]+) \|$", text, re.MULTILINE)
        in_row = re.findall(r"`([\w-]+)`", next(x for x in text.splitlines() if f"| {row} |" in x))
        stated = int(row.split(", ")[in_row.index(kind.label)].replace(",", ""))
        assert abs(stated - honoured[kind]) <= 0.02 * stated, f"{kind}: {honoured[kind]}"
    ignored = sum(count for count, _ in _counted(juicefs, sent).values())
    [(most, least)] = re.findall(
        r"([\d,]+) requests\s+if\s+the\s+store\s+honours\s+all.*?([\d,]+)\s+if", text, re.DOTALL
    )
    assert abs(int(most.replace(",", "")) - sum(honoured.values())) <= 0.02 * sum(honoured.values())
    assert abs(int(least) - ignored) <= 5, ignored


@pytest.mark.parametrize("mode", ["append", with_all("overwrite")])
def test_the_cost_of_a_job_without_a_table_matches_the_page(
    ministack: Ministack, sent: list[Sent], mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/spark.md has the number of requests of the probe for the first job, and for later ones."""
    [stated] = re.findall(
        r"([\d,]+) small requests for the first job of an output,\s+([\d,]+) for each later one",
        (DOCS / "spark.md").read_text(),
    )
    monkeypatch.setitem(probe.__kwdefaults__, "rounds", ROUNDS)
    monkeypatch.setattr("commitlog.commit.probe._CLOSE", math.inf)  # a race is not repeated

    def job(job_id: str, prefix: str, known: ProbeReport | None) -> tuple[int, ProbeReport]:
        store = commitlog.connect(f"s3://{bucket}/{prefix}", probe_report=known, **ministack.options)
        sent.clear()
        output = Output(store)
        job = output.begin(job_id, mode=mode)
        output.commit(job, [output.stage(job, job.file_name(0, suffix=".csv"), b"1")])
        store.close()
        return len(sent), store.probe_report

    bucket, known = ministack.new_bucket(), None
    for number, job_id in enumerate(("first", "second")):
        probing, found = job(job_id, "a", None)
        known = found if known is None else evolve(known, rows={*known.rows, *found.rows})
        without, _ = job(job_id, "b", known)
        assert abs(probing - without - int(stated[number].replace(",", ""))) <= 5, (probing, without)


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_the_writes_to_a_table_of_leases_match_the_page(
    ministack: Ministack, sent: list[Sent], visibility: Visibility
) -> None:
    """docs/switch-a-job.md has the number of writes to the table of a job with leases."""
    text = (DOCS / "switch-a-job.md").read_text()
    stated = re.findall(r"(\d+) writes to the table \(`listed`\), or (\d+) \(`logged`\)", text)[0]
    table = parse_table_url(f"dynamodb://{ministack.new_table_name()}").with_options(ministack.options)
    open_table(table, LEASE_SCHEMA).create()
    bucket = ministack.new_bucket()
    counts = []
    for number in range(10):
        store = commitlog.connect(f"s3://{bucket}/a", commit="lease", table=table, **ministack.options)
        sent.clear()
        output = Output(store)
        job = output.begin(str(number), visibility=visibility)
        output.commit(job, [output.stage(job, job.file_name(0, suffix=".csv"), b"1")])
        store.close()
        counts.append(sum(each.headers.get("x-amz-target", "").endswith("PutItem") for each in sent))
    usual = int(stated[visibility == "logged"])
    assert counts == [usual] * 9 + [usual + 2]  # the tenth writes a checkpoint


# -- permissions -------------------------------------------------------------------------------------


def _policy(bucket: str, table: str) -> list[dict[str, Any]]:
    """Return the statements of the policy in docs/operations.md, for a bucket and a table."""
    text = (DOCS / "operations.md").read_text()
    section = text.split("## Permissions", 1)[1]
    policy = re.findall(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
    policy = policy.replace("arn:aws:s3:::bucket", f"arn:aws:s3:::{bucket}")
    policy = re.sub(
        r"dynamodb:[\w-]+:\d+:table/commits", f"dynamodb:REGION:ACCOUNT:table/{table}", policy
    )
    statements: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return statements


def test_the_policy_of_the_page_allows_all_requests(
    ministack: Ministack, sent: list[Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This covers commands and jobs under a prefix, with and without a table, and their probes."""
    bucket, name = ministack.new_bucket(), ministack.new_table_name()
    place = f"endpoint_url={ministack.endpoint_url}&region={ministack.region}"
    table = f"dynamodb://{name}?{place}"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ministack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ministack.secret_access_key)
    monkeypatch.setenv("COMMITLOG_ENDPOINT_URL", ministack.endpoint_url)
    monkeypatch.setenv("COMMITLOG_REGION", ministack.region)

    def run(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, list(words), input=b"1")
        assert done.exit_code == status, done.output
        return done.stdout

    run("table", "create", table)
    sent.clear()
    for number, how in enumerate(([], ["--table", table], ["--commit", "lease", "--table", table])):
        url = f"s3://{bucket}/prefix/{number}"
        etag = run("put", "-", f"{url}/a", "--if-absent", *how).strip()
        run("put", "-", f"{url}/a", "--if-absent", *how, status=3)
        run("put", "-", f"{url}/a", "--if-match", etag, *how)
        run("stat", f"{url}/none", *how, status=1)
        run("cp", f"{url}/a", f"{url}/b", *how)
        run("mv", f"{url}/b", f"{url}/c", *how)
        run("ls", f"{url}/", *how)
        run("rm", f"{url}/c", *how)
        store = commitlog.connect(url, table=table if how else None, **ministack.options)
        output = Output(store)
        job = output.begin("job", mode="overwrite")
        output.stage(job, job.file_name(1, suffix=".csv"), b"left behind")
        output.commit(job, [output.stage(job, job.file_name(0, suffix=".csv"), b"1")])
        output.begin("dead")
        store.close()
        run("output", "recover", url, "--older-than", "0s", *how)
        run("output", "gc", url, "--older-than", "0s", *how)
        run("output", "log", url, *how)
    policy = _policy(bucket, name)
    refused = {
        needed
        for each in sent
        for needed in needed_by(each)
        if not any(allows(statement, needed) for statement in policy)
    }
    assert not refused
    assert any(f"/{bucket}/.commitlog-probe-" in unquote(each.target) for each in sent)


def test_the_policy_of_the_page_is_limited() -> None:
    """It is limited to region, account, table, and listed prefixes."""
    statements = _policy("bucket", "commits")
    outside = [
        Needed("s3:GetObject", "arn:aws:s3:::bucket/other/a"),
        Needed("s3:ListBucket", "arn:aws:s3:::bucket", "other/"),
        Needed("s3:ListBucket", "arn:aws:s3:::bucket"),
        Needed("dynamodb:PutItem", "arn:aws:dynamodb:REGION:ACCOUNT:table/other"),
        Needed("dynamodb:PutItem", "arn:aws:dynamodb:eu-south-9:ACCOUNT:table/commits"),
    ]
    assert not [each for each in outside if any(allows(one, each) for one in statements)]
