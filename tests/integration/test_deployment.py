"""The templates in `deploy` for CloudFormation and Terraform, and the lifecycle rule.

The library makes its tables itself. Here they are made from the templates, and must be the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import hcl2
import pytest
from attrs import evolve
from botocore.exceptions import ClientError
from hcl2 import SerializationOptions

from commitlog.aws.connections import ConnectionPool
from commitlog.cli.table import create
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.ingest import INGEST_SCHEMA
from commitlog.namespace import NAMESPACE_SCHEMA
from commitlog.namespace.jobs.committer import STAGING_AGE
from commitlog.tables.api import TABLE_FORMAT, Table, TableSchema
from commitlog.tables.open import open_table
from commitlog.testing import check_table
from support.cloudformation import resources_of
from support.permissions import Gate, statements_of
from support.project import ROOT
from support.roles import ROLES, Site
from support.selection import one_in, with_all
from support.servers import Ministack, Seaweedfs

DEPLOY = ROOT / "deploy"
TABLE = DEPLOY / "cloudformation" / "table.yaml"
BUCKET = DEPLOY / "cloudformation" / "bucket.yaml"
TERRAFORM = DEPLOY / "terraform"
RULE = DEPLOY / "abandoned-uploads.json"

SCHEMAS = {str(each.use): each for each in (LEASE_SCHEMA, NAMESPACE_SCHEMA, INGEST_SCHEMA)}

#: Metrics of AWS/DynamoDB and the dimensions under which it sends them:
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
METRICS = {
    "ConditionalCheckFailedRequests": {"TableName"},
    "ConsumedReadCapacityUnits": {"TableName"},
    "ConsumedWriteCapacityUnits": {"TableName"},
    "ProvisionedReadCapacityUnits": {"TableName"},
    "ProvisionedWriteCapacityUnits": {"TableName"},
    "ReadThrottleEvents": {"TableName"},
    "SystemErrors": {"TableName", "Operation"},
    "TransactionConflict": {"TableName"},
    "UserErrors": set(),
    "WriteThrottleEvents": {"TableName"},
}

PROVISIONED = {"BillingMode": "PROVISIONED", "ReadCapacity": "5", "WriteCapacity": "10"}


@cache
def _terraform() -> dict[str, Any]:
    """Return the blocks of the module, by kind. References and expressions are texts."""
    found: dict[str, Any] = {"locals": {}, "variable": {}, "resource": {}}
    options = SerializationOptions(with_comments=False, explicit_blocks=False, strip_string_quotes=True)
    for file in TERRAFORM.glob("*.tf"):
        with file.open() as text:
            blocks = hcl2.load(text, serialization_options=options)
        for each in blocks.get("locals", ()):
            found["locals"] |= each
        for each in blocks.get("variable", ()):
            found["variable"] |= each
        for each in blocks.get("resource", ()):
            [(kind, named)] = each.items()
            found["resource"].setdefault(kind, {}).update(named)
    return found


def _table_of(use: str, **parameters: str) -> dict[str, Any]:
    """Return the properties of the table in a stack."""
    [table] = [
        each["Properties"]
        for each in resources_of(TABLE, Use=use, TableName="t", **parameters).values()
        if each["Type"] == "AWS::DynamoDB::Table"
    ]
    return table


def _alarms_of(use: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """Return the properties of the alarms in a stack, by the end of their names."""
    alarms = [
        each["Properties"]
        for each in resources_of(TABLE, Use=use, TableName="t", **parameters).values()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    ]
    return {each["AlarmName"].removeprefix("t-"): each for each in alarms}


@pytest.fixture
def opened(ministack: Ministack) -> Iterator[Callable[[str, TableSchema], Table]]:
    """A function that opens a table by name and schema."""
    tables: list[Table] = []

    def opener(name: str, schema: TableSchema) -> Table:
        tables.append(open_table(f"dynamodb://{name}", schema, **ministack.options))
        return tables[-1]

    yield opener
    for table in tables:
        table.close()


def _description(server: Ministack, name: str) -> dict[str, Any]:
    """Return what decides whether the library can use a table, as the service describes it."""
    client = server.client("dynamodb")
    table = client.describe_table(TableName=name)["Table"]
    ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return {
        "keys": table["KeySchema"],
        "types": sorted(table["AttributeDefinitions"], key=lambda each: each["AttributeName"]),
        "indexes": [table.get(f"{kind}SecondaryIndexes", []) for kind in ("Local", "Global")],
        "billing": table["BillingModeSummary"]["BillingMode"],
        "ttl": ttl.get("AttributeName"),
        "tags": client.list_tags_of_resource(ResourceArn=table["TableArn"])["Tags"],
    }


def _create(server: Ministack, name: str, properties: Mapping[str, Any]) -> None:
    """Create a table with the properties of a template, as CloudFormation does: by requests."""
    client = server.client("dynamodb")
    rest = {key: each for key, each in properties.items() if key != "TableName"}
    ttl = rest.pop("TimeToLiveSpecification", None)
    recovery = rest.pop("PointInTimeRecoverySpecification")
    protected = rest.pop("DeletionProtectionEnabled") == "true"
    capacity = rest.pop("ProvisionedThroughput", None)
    if capacity is not None:
        rest["ProvisionedThroughput"] = {unit: int(number) for unit, number in capacity.items()}
    client.create_table(TableName=name, DeletionProtectionEnabled=protected, **rest)
    if ttl is not None:
        client.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
    enabled = recovery["PointInTimeRecoveryEnabled"] == "true"
    client.update_continuous_backups(
        TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": enabled}
    )


def _deploy(server: Ministack, name: str, use: str, **parameters: str) -> None:
    """Create a stack with the table `name`, and wait for it."""
    client = server.client("cloudformation")
    given = {"Use": use, "TableName": name, **parameters}
    client.create_stack(
        StackName=name,
        TemplateBody=TABLE.read_text(),
        Capabilities=["CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
    )
    client.get_waiter("stack_create_complete").wait(
        StackName=name, WaiterConfig={"Delay": 0.05, "MaxAttempts": 600}
    )


# -- tables ---------------------------------------------------------------------------------------------


def test_there_is_a_template_for_each_use() -> None:
    """The uses are those of `commitlog table create --for`."""
    [use] = [each for each in create.params if each.name == "use"]
    uses = set(use.type.to_info_dict()["choices"])
    assert uses == SCHEMAS.keys() == _terraform()["locals"]["keys"].keys()
    assert uses == _terraform()["variable"]["tables"]["default"].keys()


@pytest.mark.servers
@pytest.mark.parametrize("use", SCHEMAS)
def test_the_template_makes_the_table_of_the_library(
    use: str, ministack: Ministack, opened: Callable[[str, TableSchema], Table]
) -> None:
    """Keys, expiry, billing and tags are the same, and the table keeps the contract."""
    schema = SCHEMAS[use]
    ours, theirs = ministack.new_table_name(), ministack.new_table_name()
    opened(ours, schema).create()
    _create(ministack, theirs, _table_of(use))
    assert _description(ministack, theirs) == _description(ministack, ours)

    table = opened(theirs, schema)
    table.check()
    info = table.describe()
    assert (info.schema, info.format, info.billing, info.tags) == (schema, TABLE_FORMAT, "on-demand", {})
    assert table.create() is False
    check_table(table, threads=4, keys=4)
    # The tag is there already: the library changes nothing that a later update would take back.
    assert _description(ministack, theirs) == _description(ministack, ours)


@pytest.mark.servers
def test_a_provisioned_table(ministack: Ministack, opened: Callable[[str, TableSchema], Table]) -> None:
    """It has its capacity, protection and recovery, and the library uses it."""
    name = ministack.new_table_name()
    _create(ministack, name, _table_of("leases", **PROVISIONED, PointInTimeRecovery="false"))
    table = opened(name, LEASE_SCHEMA)
    table.check()
    assert table.describe().billing == "provisioned"
    client = ministack.client("dynamodb")
    described = client.describe_table(TableName=name)["Table"]
    assert described["ProvisionedThroughput"]["ReadCapacityUnits"] == 5
    assert described["ProvisionedThroughput"]["WriteCapacityUnits"] == 10
    with pytest.raises(ClientError, match="protect"):
        client.delete_table(TableName=name)
    backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    status = backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    assert status == "DISABLED"


def test_a_key_of_kms_is_optional() -> None:
    """Without it, AWS owns the key."""
    assert "SSESpecification" not in _table_of("leases")
    assert _table_of("leases", KmsKeyArn="k")["SSESpecification"] == {
        "SSEEnabled": True,
        "SSEType": "KMS",
        "KMSMasterKeyId": "k",
    }


@pytest.mark.servers
@pytest.mark.parametrize("use", SCHEMAS)
def test_a_stack(use: str, ministack: Ministack, opened: Callable[[str, TableSchema], Table]) -> None:
    """CloudFormation makes a table that the library takes, and the alarms of the table."""
    name = ministack.new_table_name()
    _deploy(ministack, name, use, AlarmTopicArn="arn:aws:sns:us-east-1:000000000000:t")
    opened(name, SCHEMAS[use]).check()
    pages = ministack.client("cloudwatch").get_paginator("describe_alarms")
    alarms = [
        each for page in pages.paginate(AlarmNamePrefix=f"{name}-") for each in page["MetricAlarms"]
    ]
    assert {each["AlarmName"].removeprefix(f"{name}-") for each in alarms} == _alarms_of(use).keys()
    assert all(len(each["AlarmActions"]) == len(each["OKActions"]) == 1 for each in alarms)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"BillingMode": "PROVISIONED", "ReadCapacity": "5"}, "WriteCapacity is at least 1"),
        ({"BillingMode": "PROVISIONED", "WriteCapacity": "5"}, "ReadCapacity is at least 1"),
        ({"ReadCapacity": "5"}, "ReadCapacity is 0"),
        ({"WriteCapacity": "5"}, "WriteCapacity is 0"),
    ],
)
def test_a_stack_with_contradicting_parameters(
    parameters: dict[str, str], message: str, ministack: Ministack
) -> None:
    """It is refused as a whole."""
    with pytest.raises(ClientError, match=message):
        _deploy(ministack, ministack.new_table_name(), "leases", **parameters)


def test_the_tables_of_the_module() -> None:
    """Terraform's tables have the keys, the expiry and the tag of the library's."""
    known = _terraform()["locals"]
    for use, schema in SCHEMAS.items():
        assert evolve(schema, use=None, when_lost="") == TableSchema(**known["keys"][use])
    assert known["format_tag"] == {"commitlog-table-version": str(TABLE_FORMAT)}
    table = _terraform()["resource"]["aws_dynamodb_table"]["this"]
    key = "${local.keys[each.key]."
    assert (table["hash_key"], table["range_key"]) == (f"{key}hash_key}}", f"{key}range_key}}")
    assert table["attribute"] == [
        {"name": table["hash_key"], "type": "S"},
        {"name": table["range_key"], "type": "S"},
    ]
    assert table["dynamic"][0]["ttl"]["for_each"] == f"{key}ttl_attribute[*]}}"


@pytest.mark.servers
@pytest.mark.parametrize("role", one_in(3, sorted(ROLES.keys() - {"table-administrator"})))
def test_no_role_needs_to_create_tables(role: str, ministack: Ministack) -> None:
    """Each role works on tables of the template, with the permissions of its policy alone."""
    policy = (DEPLOY / "iam" / f"{role}.json").read_text()
    for name, step in ROLES[role].items():
        site = Site.on(ministack)
        for use, table in (("leases", site.leases), ("namespaces", site.names), ("ingest", site.state)):
            ministack.client("dynamodb").delete_table(TableName=table)
            _create(ministack, table, _table_of(use))
        step.prepare(site)
        words = {"BUCKET": site.bucket, "PREFIX": "prefix", "LEASES": site.leases}
        words |= {"NAMES": site.names, "STATE": site.state, "QUEUE": site.queue}
        gate = Gate(policy=statements_of(policy, words))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConnectionPool, "begin", gate.begin(ConnectionPool.begin))
            step.run(site)
        assert gate.needed, name


# -- alarms ---------------------------------------------------------------------------------------------


def _metrics_of(alarm: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics of an alarm of CloudFormation, each with its dimensions."""
    for each in [
        alarm,
        *(query.get("MetricStat", {}).get("Metric", {}) for query in alarm.get("Metrics", ())),
    ]:
        if "MetricName" in each:
            assert each["Namespace"] == "AWS/DynamoDB"
            yield each["MetricName"], {dimension["Name"] for dimension in each["Dimensions"]}


def test_alarms_watch_metrics_that_dynamodb_sends() -> None:
    """An alarm with another name or other dimensions would be accepted, and never see a value."""
    seen = {
        metric: dimensions
        for alarm in _alarms_of("leases", **PROVISIONED).values()
        for metric, dimensions in _metrics_of(alarm)
    }
    # The alarm of the account is in Terraform only: a template is for one table.
    assert seen | {"UserErrors": set()} == METRICS


def test_alarms_of_provisioned_tables() -> None:
    """Only they compare what is used with what is provisioned. Without alarms there are none."""
    more = _alarms_of("leases", **PROVISIONED).keys() - _alarms_of("leases").keys()
    assert more == {"ReadCapacity", "WriteCapacity"}
    assert not _alarms_of("leases", **PROVISIONED, Alarms="false")


def test_alarms_are_the_same_in_both_templates() -> None:
    """Names, metrics, thresholds and times."""
    theirs = _alarms_of("leases", **PROVISIONED)
    known = _terraform()["locals"]
    names = {f"SystemErrors-{each}" for each in known["operations"]} | known["thresholds"].keys()
    assert names | {"ReadCapacity", "WriteCapacity"} == theirs.keys()

    alarms = _terraform()["resource"]["aws_cloudwatch_metric_alarm"]
    variables = _terraform()["variable"]
    for name in names:
        alarm, ours = theirs[name], alarms["count"]
        threshold = known["thresholds"].get(name, 0)
        if threshold == "${var.contention_threshold}":
            threshold = variables["contention_threshold"]["default"]
        assert int(alarm["Threshold"]) == threshold
        assert alarm["Statistic"] == ours["statistic"]
        assert alarm["Period"] == ours["period"]
        assert alarm["EvaluationPeriods"] == ours["evaluation_periods"]
        assert alarm["DatapointsToAlarm"] == ours["datapoints_to_alarm"]
        assert alarm["ComparisonOperator"] == ours["comparison_operator"]
        assert alarm["TreatMissingData"] == ours["treat_missing_data"]
    for kind in ("Read", "Write"):
        alarm, ours = theirs[f"{kind}Capacity"], alarms["capacity"]
        assert int(alarm["Threshold"]) == variables["capacity_threshold"]["default"]
        queries = [(each["Id"], each.get("Expression")) for each in alarm["Metrics"]]
        assert queries == [(each["id"], each.get("expression")) for each in ours["metric_query"]]
        periods = [each["MetricStat"]["Period"] for each in alarm["Metrics"] if "MetricStat" in each]
        assert periods == [
            each["metric"][0]["period"] for each in ours["metric_query"] if "metric" in each
        ]


def test_the_readme_explains_each_alarm() -> None:
    """By its metric, or by the end of its name."""
    text = (DEPLOY / "README.md").read_text()
    for name in {*_alarms_of("leases", **PROVISIONED), "UserErrors"}:
        assert f"`{name.partition('-')[0]}`" in text, name


# -- the rule for abandoned uploads ---------------------------------------------------------------------


def test_the_rule_only_aborts_old_uploads() -> None:
    """It removes no object, and no upload that the library itself would keep."""
    [rule] = json.loads(RULE.read_text())["Rules"]
    assert rule.keys() == {"ID", "Status", "Filter", "AbortIncompleteMultipartUpload"}
    days = rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
    assert days * 86_400 > STAGING_AGE

    bucket = resources_of(BUCKET)["Bucket"]["Properties"]
    [same] = bucket["LifecycleConfiguration"]["Rules"]
    assert same.keys() == {"Id", "Status", "AbortIncompleteMultipartUpload"}
    assert same["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": days}

    [module] = _terraform()["resource"]["aws_s3_bucket_lifecycle_configuration"]["this"]["rule"]
    assert module.keys() == {"id", "status", "filter", "abort_incomplete_multipart_upload"}
    assert (module["id"], module["status"]) == (rule["ID"], rule["Status"])


def test_a_rule_of_few_days_is_refused() -> None:
    """The least number of days is the age at which the library aborts uploads of namespaces."""
    least = int(STAGING_AGE // 86_400)
    assert f"MinValue: {least}\n" in BUCKET.read_text()
    [_, days] = _terraform()["variable"]["abandoned_upload_days"]["validation"]
    assert f"var.abandoned_upload_days >= {least}," in days["condition"]


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["ministack", with_all("seaweedfs")])
def test_a_store_takes_the_rule(kind: str, request: pytest.FixtureRequest) -> None:
    """The file is what put-bucket-lifecycle-configuration sends."""
    server: Ministack | Seaweedfs = request.getfixturevalue(kind)
    bucket = server.new_bucket()
    wanted = json.loads(RULE.read_text())
    client = server.client("s3")
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=wanted)
    found = client.get_bucket_lifecycle_configuration(Bucket=bucket)
    assert found["Rules"] == wanted["Rules"]


# -- roles, and the tools of the formats ----------------------------------------------------------------


def test_the_module_knows_each_resource_of_the_policies() -> None:
    """An unknown one would be an error of Terraform; one that no policy has would be left over."""
    used = {
        arn
        for file in (DEPLOY / "iam").glob("*.json")
        for statement in json.loads(file.read_text())["Statement"]
        for arn in (
            [statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"]
        )
    }
    assert _terraform()["locals"]["resources"].keys() == used


def test_cfn_lint_accepts_the_templates() -> None:
    """Its warnings are errors."""
    command = [
        sys.executable,
        "-c",
        "from cfnlint.runner import main; main()",
        "--non-zero-exit-code",
        "informational",
        "--include-checks",
        "I",
    ]
    done = subprocess.run([*command, "--", TABLE, BUCKET], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
def test_terraform_accepts_the_format() -> None:
    """As `terraform fmt` would write the files."""
    command = ["terraform", "fmt", "-check", "-diff", "-recursive", str(TERRAFORM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
