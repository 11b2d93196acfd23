"""The alert rules in deploy/prometheus use metrics and findings that exist, and cover all findings."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from commitlog.status import FINDING_KINDS, metrics_text
from support.project import ROOT

RULES = ROOT / "deploy" / "prometheus"
EXPRESSIONS = re.findall(r"^ +expr: (.+)$", (RULES / "alerts.yml").read_text(), re.M)


def test_metrics_of_alerts_exist() -> None:
    """Each metric in an expression is one that `metrics_text` declares."""
    families = text_string_to_metric_families(metrics_text([]))  # type: ignore[no-untyped-call]
    known = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    used = set(re.findall(r"commitlog_\w+", " ".join(EXPRESSIONS)))
    assert len(used) >= 3
    assert used <= known


def test_each_finding_has_an_alert() -> None:
    """The findings in expressions are all kinds of findings."""
    patterns = re.findall(r'finding=~?"([^"]+)"', " ".join(EXPRESSIONS))
    named = [name for pattern in patterns for name in pattern.split("|")]
    assert sorted(named) == sorted(FINDING_KINDS)


def test_the_readme_has_each_alert_with_its_severity() -> None:
    """In the row of the severity, by its name without the common beginning."""
    rules = (RULES / "alerts.yml").read_text()
    alerts = re.findall(r"- alert: Commitlog(\w+)\n(?: +(?!- ).*\n)*? +severity: (\w+)", rules)
    assert len(alerts) == len(EXPRESSIONS)
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (RULES / "README.md").read_text(), re.M)
    listed = [(name, severity) for severity, names in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted(alerts)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "words", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")]
)
def test_promtool_accepts_the_rules(words: tuple[str, ...]) -> None:
    """Prometheus's own tool checks the rules, and runs their tests."""
    done = subprocess.run(["promtool", *words], cwd=RULES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
