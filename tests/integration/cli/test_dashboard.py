"""The dashboard in deploy/grafana shows all metrics of ``commitlog status``, and no others."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from support.project import ROOT
from support.status_site import new_site

DIRECTORY = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((DIRECTORY / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
VARIABLES: dict[str, dict[str, Any]] = {each["name"]: each for each in DASHBOARD["templating"]["list"]}

#: The queries of all panels.
EXPRESSIONS = [target["expr"] for panel in GRAPHS for target in panel["targets"]]

#: Units of Grafana, by the ends of names that OpenMetrics wants for units. Other metrics are numbers.
UNITS = {"seconds": "s", "bytes": "bytes"}

#: A metric in a query.
METRIC = re.compile(r"\bcommitlog_\w+")

#: A variable in a query, such as ``$target`` or ``${datasource}``.
VARIABLE = re.compile(r"\$\{?(\w+)")


#: For each exported metric, by the name that queries use, the labels of its samples.
Exported: TypeAlias = dict[str, set[str]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The metrics of a look at each kind of target, and of a failed one."""
    site = new_site(tmp_path_factory.mktemp("site"))
    done = site.run(*site.urls, f"{site.root}/none", "--openmetrics", "--full")
    assert done.exit_code == 2
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(done.stdout):  # type: ignore[no-untyped-call]
        name = family.name + ("_total" if family.type == "counter" else "")
        labels[name] = {label for sample in family.samples for label in sample.labels}
    assert len(labels) > 30
    return labels


def test_every_metric_is_in_a_panel(exported: Exported) -> None:
    """And each query is of exported metrics."""
    assert set(METRIC.findall(" ".join(EXPRESSIONS))) == exported.keys()
    assert all(METRIC.search(expression) for expression in EXPRESSIONS)


def test_queries_use_labels_that_the_metrics_have(exported: Exported) -> None:
    """In selectors, in groups, and in legends."""
    checked = 0
    for panel in GRAPHS:
        for target in panel["targets"]:
            query = target["expr"]
            named = [
                name for group in re.findall(r"by \(([^)]*)\)", query) for name in group.split(", ")
            ]
            used = {*named, *re.findall(r"(\w+)=~?\"", query)}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(named)
            for metric in METRIC.findall(query):
                found = exported[metric]
                checked += bool(found)
                assert used <= found or not found, (panel["title"], metric)
    assert checked > 30


def test_units() -> None:
    """Seconds and bytes are shown as such, and nothing else is."""
    for panel in GRAPHS:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        ends = {
            UNITS.get(name.removesuffix("_total").rpartition("_")[2], "short")
            for target in panel["targets"]
            for name in METRIC.findall(target["expr"])
        }
        assert ends == {unit} or panel["title"] == "Mean size of a file"


def test_panels_do_not_overlap() -> None:
    """Each has an id, a place in the 24 columns, a title, and a description unless it is a heading."""
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
            )
        )
        assert cells
        assert not cells & taken
        taken |= cells
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"]
    rows = {y for _, y in taken}
    assert rows == set(range(max(rows) + 1))


def test_variables_are_defined(exported: Exported) -> None:
    """Queries and data sources use the variables of the dashboard, which ask for exported metrics."""
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    queries = [each for each in VARIABLES.values() if each["type"] == "query"]
    for each in [*queries, *GRAPHS, *(target for panel in GRAPHS for target in panel["targets"])]:
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    texts = [*EXPRESSIONS, *(each["query"]["query"] for each in queries)]
    assert set(VARIABLE.findall(" ".join(texts))) <= VARIABLES.keys()
    assert all('url=~"$target"' in expression for expression in EXPRESSIONS)
    for each in queries:
        metric, label = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", each["query"]["query"]).groups()  # type: ignore[union-attr]
        assert label in exported[metric]


def test_references_of_queries_are_unique() -> None:
    """Grafana refuses two queries of a panel with the same letter."""
    for panel in GRAPHS:
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters))
        assert letters


def test_the_readme_has_each_row_and_variable() -> None:
    """The rows of panels, and the variables at the top."""
    readme = (DIRECTORY / "README.md").read_text()
    for panel in PANELS:
        assert panel["type"] != "row" or f"| {panel['title']} |" in readme
    for each in VARIABLES.values():
        assert f"`{each['label']}`" in readme


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_queries(tmp_path: Path) -> None:
    """Prometheus's own tool parses each query, as the rule of a recording."""
    rules = [
        {"record": f"panel:query:{n}", "expr": VARIABLE.sub(".*", expression)}
        for n, expression in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
