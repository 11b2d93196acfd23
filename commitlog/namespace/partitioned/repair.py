"""Repairs of findings in partitions.

Findings whose repairs depend on each other are one group. One task repairs a group in order. Stages
follow each other, as in one process, and the references to objects are found once for all findings.
Repairs on which many others may rely are made by the driver, before the others of their stage.

A task may run twice, and others may repair the same findings: each change is conditional on the records
as they were found. Then the later one has the outcome `CHANGED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeAlias

from attrs import evolve, frozen

from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.references import KnownReferences, References
from commitlog.namespace.fsck.repair import (
    FindingsRepairer,
    Repairer,
    RepairOutcome,
    RepairReport,
    describe_references,
    find_referenced_objects,
)
from commitlog.namespace.fsck.repair_order import (
    Stage,
    described_objects,
    effects_of,
    in_order,
    is_common,
    stage_of,
)
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.partitioned.dataset import Engine, OpenAccess
from commitlog.namespace.partitioned.survey import PartitionedSurveyor

__all__ = ["OpenTaskRepairer", "PartitionedRepairer", "groups_of"]

#: Number of tasks of a stage for each partition: groups take different times.
_TASKS = 4

#: Opens the namespace in a task, with the references to objects: it can be pickled, unless all work is
#: in one process.
OpenTaskRepairer: TypeAlias = Callable[[References], AbstractContextManager[Repairer]]

#: Positions of findings in the order of their repairs.
_Group: TypeAlias = tuple[int, ...]

#: The position of a finding, the outcome of its repair, and the number of writes.
_Result: TypeAlias = tuple[int, RepairOutcome, int]


@frozen(kw_only=True)
class _Share:
    """The work of one task.

    Attributes:
        groups: the findings of each group, with their positions.
        references: the references to objects that their repairs need.
        began: see `RepairContext`.
    """

    groups: tuple[tuple[_Group, tuple[Finding, ...]], ...]
    references: KnownReferences
    began: int


@frozen(kw_only=True)
class PartitionedRepairer(FindingsRepairer):
    """A repairer that divides its work into the partitions of an engine.

    Args:
        engine: divides the work.
        open_repairer: opens the namespace in a task.
        references: finds the references to objects.
        local: repairs findings in this process.
    """

    engine: Engine
    open_repairer: OpenTaskRepairer
    references: References
    local: Repairer

    @classmethod
    def of(
        cls,
        engine: Engine,
        open_access: OpenAccess,
        open_repairer: OpenTaskRepairer,
        keys: Keys,
        log: FencedLog | None,
        local: Repairer,
    ) -> PartitionedRepairer:
        """Return a repairer; see `commitlog.namespace.fsck.repair.OpenRepairer`."""
        return cls(
            engine=engine,
            open_repairer=open_repairer,
            references=PartitionedSurveyor.of(engine, open_access, keys, log),
            local=local,
        )

    def repair(self, findings: Iterable[Finding], *, dry_run: bool) -> Iterator[RepairReport]:
        """See `FindingsRepairer.repair`."""
        findings = in_order(findings)
        groups = groups_of(findings)
        common = frozenset(at for at, finding in enumerate(findings) if is_common(finding))
        known = KnownReferences(described=None, referenced=None)
        is_described = False
        for stage in sorted(set(map(stage_of, findings))):
            if stage >= Stage.LOG and not is_described:
                described = describe_references(self.references, findings)
                known, is_described = evolve(known, described=described), True
            if stage is Stage.ORPHANS:
                referenced = find_referenced_objects(self.references, findings)
                known = evolve(known, referenced=referenced)
            here = [group for group in groups if any(stage_of(findings[at]) is stage for at in group)]
            yield from self._repair_stage(findings, here, common, stage, known, dry_run=dry_run)

    def _repair_stage(
        self,
        findings: Sequence[Finding],
        groups: Sequence[_Group],
        common: frozenset[int],
        stage: Stage,
        known: KnownReferences,
        *,
        dry_run: bool,
    ) -> Iterator[RepairReport]:
        """Repair the findings of a stage in some groups; yield the results in order."""
        others = [group for group in groups if common.isdisjoint(group)]
        results: list[_Result] = []
        # The findings of all groups that the driver repairs, in order: common ones come first.
        first = (group for group in groups if not common.isdisjoint(group))
        positions = tuple(sorted(at for group in first for at in group))
        for result in _repair_group(self._local(known), positions, findings, stage, dry_run=dry_run):
            if result[0] in common:
                yield _report(findings, result)
            else:
                results.append(result)
        shares = self._shares(findings, others, known)
        if shares:
            call = partial(_repair_shares, self.open_repairer, stage, dry_run)
            members = [at for group in others for at in group if stage_of(findings[at]) is stage]
            with self.engine.counting("repairing", lambda: len(members)) as counter:
                results += self.engine.distribute(shares).map(call).map(counter.count).collect()
        yield from (_report(findings, result) for result in sorted(results, key=_position))

    def _local(self, known: KnownReferences) -> Repairer:
        return evolve(self.local, references=known)

    def _shares(
        self, findings: Sequence[Finding], groups: Sequence[_Group], known: KnownReferences
    ) -> list[_Share]:
        """Divide groups among tasks, so that each has about the same number of findings."""
        count = min(len(groups), _TASKS * self.engine.partitions)
        divided: list[list[_Group]] = [[] for _ in range(count)]
        for number, group in enumerate(sorted(groups, key=len, reverse=True)):
            turn, at = divmod(number, count)
            divided[at if turn % 2 == 0 else count - 1 - at].append(group)
        return [self._share(findings, part, known) for part in divided]

    def _share(
        self, findings: Sequence[Finding], groups: Sequence[_Group], known: KnownReferences
    ) -> _Share:
        members = [findings[at] for group in groups for at in group]
        described, referenced = known.described, known.referenced
        if described is not None:
            objects = {path for each in members for path in described_objects(each)}
            described = {path: described[path] for path in objects if path in described}
        if referenced is not None:
            referenced &= {each.object for each in members if each.object is not None}
        return _Share(
            groups=tuple((group, tuple(findings[at] for at in group)) for group in groups),
            references=KnownReferences(described=described, referenced=referenced),
            began=self.local.context.began,
        )


def groups_of(findings: Sequence[Finding]) -> list[_Group]:
    """Return the findings whose repairs depend on each other, directly or through others.

    Args:
        findings: findings in the order of their repairs.

    Returns groups of positions, each in order.
    """
    above = list(range(len(findings)))

    def top(at: int) -> int:
        while above[at] != at:
            above[at] = above[above[at]]
            at = above[at]
        return at

    def join(one: int, other: int) -> None:
        one, other = top(one), top(other)
        above[max(one, other)] = min(one, other)

    changed: dict[str, int] = {}
    effects = [effects_of(finding) for finding in findings]
    for at, each in enumerate(effects):
        for name in each.changes:
            join(at, changed.setdefault(name, at))
    for at, each in enumerate(effects):
        for name in each.reads:
            join(at, changed.get(name, at))
    groups: dict[int, list[int]] = {}
    for at in range(len(findings)):
        groups.setdefault(top(at), []).append(at)
    return list(map(tuple, groups.values()))


def _repair_shares(
    open_repairer: OpenTaskRepairer, stage: Stage, dry_run: bool, shares: Iterator[_Share]
) -> Iterator[_Result]:
    """Repair the findings of a stage, as a task."""
    for share in shares:
        with open_repairer(share.references) as repairer:
            repairer = evolve(repairer, context=evolve(repairer.context, began=share.began))
            for positions, findings in share.groups:
                members = dict(zip(positions, findings, strict=True))
                yield from _repair_group(repairer, positions, members, stage, dry_run=dry_run)


def _repair_group(
    repairer: Repairer,
    positions: _Group,
    findings: Sequence[Finding] | Mapping[int, Finding],
    stage: Stage,
    *,
    dry_run: bool,
) -> Iterator[_Result]:
    """Repair the findings of a stage at some positions; yield the result of each."""
    members = [findings[at] for at in positions]
    done = repairer.repair_stages(members, (stage,), dry_run=dry_run)
    here = (at for at in positions if stage_of(findings[at]) is stage)
    for at, report in zip(here, done, strict=True):
        yield at, report.outcome, report.writes


def _report(findings: Sequence[Finding], result: _Result) -> RepairReport:
    at, outcome, writes = result
    return RepairReport(finding=findings[at], outcome=outcome, writes=writes)


def _position(result: _Result) -> int:
    return result[0]
