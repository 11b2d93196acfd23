"""Mutants of outputs and of the operation log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sim_oplog_kit as logs
import sim_outputs_kit as outputs

from commitlog.oplog import Decision
from commitlog.testing.sim import Choices, Fault, Faults, Forced, Simulation, World
from mutants.loader import Code, Edit
from mutants.mutant import Mutant
from mutants.worlds import Setting

__all__ = ["OUTPUTS"]


def _simulation(*faults: Fault, forced: tuple[Forced, ...] = ()) -> Callable[[Choices], Simulation]:
    """Return what makes a simulation in which one of these faults may happen, and the others do."""
    rates = dict.fromkeys(faults, 0.05)
    return lambda choices: Simulation(choices, faults=Faults(rates=rates, most=1, forced=forced))


def writing(
    programs: Mapping[str, outputs.Program],
    *faults: Fault,
    forced: tuple[Forced, ...] = (),
    **options: Any,
) -> Setting:
    """Return what builds a world of one output; options are those of `sim_outputs_kit.world_of`."""

    def setting(code: Code, _: bool) -> World:
        return outputs.world_of(
            programs,
            simulation=_simulation(*faults, forced=forced),
            connect=code.get("outputs.output.Output"),
            **options,
        )

    return setting


def logging(programs: Mapping[str, logs.Program], **options: Any) -> Setting:
    """Return what builds a world of one operation log; options are those of `sim_oplog_kit.world_of`."""
    return lambda code, _: logs.world_of(programs, connect=code.get("oplog.log.OperationLog"), **options)


RECORD = "put out/_commitlog/00000000000000000001.json"

OUTPUTS: tuple[Mutant, ...] = (
    Mutant(
        name="publish before the commit point",
        where="outputs.md#a-job-step-by-step",
        rule="first the record is written, then files appear",
        edit=Edit(
            "outputs.output",
            (
                "            record = self._log.commit(job, pending, after=end)\n",
                "            record = CommitRecord(version=0, job_id='', attempt='', mode='append', time=0)\n"
                "            self._publisher.publish(record, pending)\n"
                "            record = self._log.commit(job, pending, after=end)\n",
            ),
        ),
        setting=writing({"A": outputs.drive("j")}),
        caught="is visible, and no commit names it",
        story=(
            "A file of a job that may yet fail, or lose against another attempt, is visible to "
            "plain readers."
        ),
    ),
    Mutant(
        name="commit without a pending entry",
        where="outputs.md#a-job-step-by-step",
        rule="the pending entry is written before the record",
        edit=Edit(
            "outputs.output", ("                self._prepare(pending)\n", "                pass\n")
        ),
        setting=writing({"A": outputs.drive("j")}),
        caught="is committed without a pending entry",
        story="The job is committed. Should its driver die now, nobody else would know its uploads.",
    ),
    Mutant(
        name="commit record claimed without reading the ones before",
        where="outputs.md#layout",
        rule="number N is claimed only by somebody who has read N − 1",
        edit=Edit(
            "outputs.log",
            (
                "            mine, after = self._look(job, after)\n"
                "            if mine is not None:\n"
                "                return mine\n",
                "",
            ),
            (
                "                return evolve(record, version=after + 1)\n",
                "                return evolve(record, version=after + 1)\n            after += 1\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "R": outputs.recover()},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"R": 0.5},
        ),
        caught="is aborted and then committed",
        story=(
            "A's claim of record 1 is late; a recovery has taken A for dead, ruled the attempt out "
            "in record 1, and dropped its uploads. A, without reading that, takes the next number."
        ),
    ),
    Mutant(
        name="the job id not looked for",
        where="outputs.md#a-job-step-by-step",
        rule="the record that took the number is checked for the job's id",
        edit=Edit(
            "outputs.log",
            (
                "            elif record.job_id == job.job_id or _is_batch_of(job, record):\n",
                "            elif _is_batch_of(job, record):\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "B": outputs.drive("j")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
        ),
        caught="job j is committed twice",
        story=(
            "Two drivers commit the same job. A's claim of record 1 is late, record 1 is B's, and A"
            " takes the next number."
        ),
    ),
    Mutant(
        name="a number that is taken believed to be one's own",
        where="outputs.md#layout",
        rule="a number that is taken is read: it may be anybody's",
        edit=Edit(
            "outputs.log",
            (
                "        except AlreadyExists:\n            return False\n",
                "        except AlreadyExists:\n            return True\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("a"), "B": outputs.drive("b")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
        ),
        caught="is visible, and no commit names it",
        story="Record 1 is B's when A's claim arrives. A believes that it is its own, and publishes.",
    ),
    Mutant(
        name="data where none was wanted",
        where="outputs.md#a-job-step-by-step",
        rule="the record that took the number is checked for data where none is wanted",
        edit=Edit(
            "outputs.log", ('            elif job.mode == "error":\n', "            elif False:\n")
        ),
        setting=writing(
            {"A": outputs.drive("a", mode="error"), "B": outputs.drive("b")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
        ),
        caught="there is data where none was wanted",
        story=(
            "A is to write to an empty output, and found it empty when it began. A's claim of "
            "record 1 is late, record 1 is B's, and A takes the next number."
        ),
    ),
    Mutant(
        name="a job id looked for among recent records only",
        where="outputs.md#a-job-step-by-step",
        rule="a checkpoint knows all jobs: is the job committed already?",
        edit=Edit(
            "outputs.output",
            (
                "        before = state.jobs.get(job_id)\n",
                "        before = state.jobs.get(job_id)\n"
                "        if before is not None and before <= self._publisher.watermark():\n"
                "            before = None\n",
            ),
        ),
        setting=writing({"A": outputs.drive("j")}, before=("j",)),
        caught="a job was begun that was committed before",
        story=(
            "The job is in record 1, which `_SUCCESS` says is visible, and is done again: A looks "
            "at what comes after."
        ),
    ),
    Mutant(
        name="an unknown claim told as a failure",
        where="outputs.md#a-job-step-by-step",
        rule="a record that may have been written is `OutcomeUnknown`",
        edit=Edit(
            "outputs.log",
            (
                "                raise unknown from None\n",
                '                raise Unavailable("the record was not written") from unknown\n',
            ),
            ("    OutcomeUnknown,\n)", "    OutcomeUnknown,\n    Unavailable,\n)"),
        ),
        setting=writing(
            {"A": outputs.drive("j", abort=False)},
            forced=(
                Forced(f"A {RECORD}", Fault.DELAYED, 1, 30),
                *(Forced(f"A {RECORD}", Fault.LOST_REQUEST, nth) for nth in (2, 3, 4)),
            ),
        ),
        caught="is committed, and its driver was told",
        story=(
            "The first claim is late and the next three are lost. A's caller is told that nothing "
            "was written; then the first one arrives."
        ),
    ),
    Mutant(
        name="pending entry removed before the files are published",
        where="outputs.md#a-job-step-by-step",
        rule="the pending entry is removed after all files are visible",
        edit=Edit(
            "outputs.output",
            (
                "        self._publisher.publish(record, pending)\n",
                "        self._publisher.forget(record.attempt)\n"
                "        self._publisher.publish(record, pending)\n",
            ),
        ),
        setting=writing({"A": outputs.drive("j")}),
        caught="was deleted before all files were visible",
        story=(
            "Should the driver die now, its job would be committed, and nobody else would publish "
            "the files: where there is no entry there is nothing left to publish."
        ),
    ),
    Mutant(
        name="`_SUCCESS` advanced before the files are published",
        where="outputs.md#layout",
        rule="versions up to the one that `_SUCCESS` names are completely visible",
        edit=Edit(
            "outputs.publishing",
            (
                "            self.publish(record, pending)\n",
                "            self._advance(record)\n            self.publish(record, pending)\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "R": outputs.recover()}, Fault.CRASHED, after={"R": 5}
        ),
        caught="_SUCCESS names 1, and .* is not all visible",
        story=(
            "Plain readers that wait for `_SUCCESS` look for files that are not there yet; should "
            "the recovery die now, no later one would look at that version again."
        ),
    ),
    Mutant(
        name="`_SUCCESS` advanced without a condition",
        where="outputs.md#layout",
        rule="`_SUCCESS` is replaced on condition of what it was, and never goes back",
        edit=Edit(
            "outputs.publishing",
            (
                "self._store.put_if_match(self.success_path, data, etag=etag)",
                "self._store.put(self.success_path, data)",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("a"), "B": outputs.drive("b")},
            forced=(Forced("A put out/_SUCCESS", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
            before=("old",),
        ),
        caught="_SUCCESS goes from 3 to 2",
        story=(
            "A is about to say that version 2 is complete, and B says so of version 3 meanwhile. "
            "Readers that go by `_SUCCESS` see version 3, and then version 2 again."
        ),
    ),
    Mutant(
        name="a file that somebody else published taken for lost",
        where="outputs.md#a-job-step-by-step",
        rule="publishing is idempotent: a file that bears the nonce of the upload is published",
        edit=Edit(
            "outputs.publishing",
            (
                "                if self._store.head(staged.path).nonce != staged.nonce:\n"
                "                    raise\n",
                "                raise\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "R": outputs.recover()}, Fault.LOST_RESPONSE, after={"R": 5}
        ),
        caught="but 1 of its 1 files are lost",
        story=(
            "A's file is visible, only the answer that said so was lost; and A is told that the file is "
            "lost."
        ),
    ),
    Mutant(
        name="a job told committed that is not visible yet",
        where="outputs.md#a-job-step-by-step",
        rule="what a committed job left unpublished is published before `JobAlreadyCommitted` is raised",
        edit=Edit(
            "outputs.output",
            (
                "            self._publisher.roll_forward(until=state.version, strict=False)\n"
                "            raise already",
                "            raise already",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "B": outputs.drive("j")}, Fault.CRASHED, after={"B": 5}
        ),
        caught="begin says that all files are visible",
        story=(
            "A dies after the commit point. B, which was to do the same job, is told that it is "
            "done, and whoever waits for it finds no files."
        ),
    ),
    Mutant(
        name="a snapshot without rolling forward",
        where="outputs.md#guarantees",
        rule="log-aware readers see whole versions only",
        edit=Edit(
            "outputs.output",
            (
                "            self._publisher.roll_forward(until=state.version, strict=False)\n        return",
                "            pass\n        return",
            ),
        ),
        setting=writing({"A": outputs.drive("j"), "R": outputs.read()}, Fault.CRASHED, after={"R": 5}),
        caught="names a file that is not visible",
        story=(
            "A dies after the commit point. The reader is given the name of a file that does not "
            "exist yet."
        ),
    ),
    Mutant(
        name="abort without an aborted record",
        where="outputs.md#what-a-crash-leaves",
        rule="an abort rules the attempt out in the log before it drops an upload",
        edit=Edit(
            "outputs.output",
            (
                "self._log.fence({job.attempt: job.job_id}, after=job.base)",
                "self._log.verdicts({job.attempt}, after=job.base)",
            ),
        ),
        setting=writing({"A": outputs.drive("j"), "B": outputs.abort_one()}),
        caught="was dropped before it was decided",
        story=(
            "B aborts what A is still at work on, as a scheduler may. A's upload is gone, and "
            "nothing keeps A from committing it."
        ),
    ),
    Mutant(
        name="recovery that aborts uploads before it has fenced the job",
        where="outputs.md#what-a-crash-leaves",
        rule="a recovery rules the attempt out in the log, *then* drops its uploads",
        edit=Edit(
            "outputs.recovery",
            (
                "    fenced = log.fence(suspects, after=found.end)\n",
                "    publisher.drop(upload for a in sorted(dead) for upload in uploads.get(a, ()))\n"
                "    fenced = log.fence(suspects, after=found.end)\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "R": outputs.recover()},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"R": 0.5},
        ),
        caught="was dropped before it was decided",
        story=(
            "A's claim is on its way when the recovery takes A for dead. The upload is gone; the "
            "claim, which nothing keeps out, would commit it."
        ),
    ),
    Mutant(
        name="the aborted record not read back",
        where="outputs.md#what-a-crash-leaves",
        rule="there is no moment at which a driver and a recovery can both win",
        edit=Edit(
            "outputs.log",
            (
                "            later = self.verdicts(found.open, after=found.end)\n",
                "            later = Verdicts(open=set(), aborted=found.open, end=fence.version)\n",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("j"), "R": outputs.recover()},
            Fault.CRASHED,
            forced=(
                Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),
                Forced(f"R {RECORD}", Fault.DELAYED, 1, 1),
            ),
            after={"R": 0.5},
        ),
        caught="the upload of .* was dropped",
        story=(
            "A's claim comes before that of the recovery, which believes in its own all the same, "
            "and drops the uploads of a committed job."
        ),
    ),
    Mutant(
        name="a single attempt at an aborted record",
        where="outputs.md#what-a-crash-leaves",
        rule="an attempt is ruled out, or committed, before its uploads are dropped",
        edit=Edit("outputs.log", ("        while found.open:\n", "        if found.open:\n")),
        setting=writing(
            {"A": outputs.drive("a"), "B": outputs.drive("b"), "C": outputs.abort_one()},
            forced=(
                Forced(f"A {RECORD}", Fault.DELAYED, 1, 3),
                Forced(f"C {RECORD}", Fault.DELAYED, 1, 1),
            ),
            after={"B": 1, "C": 0.5},
        ),
        caught="was dropped before it was decided",
        story=(
            "C aborts A's attempt. Record 1, which C claims for that, is B's when C's claim "
            "arrives; C does not try the next number, and drops A's upload, which A may still "
            "commit."
        ),
    ),
    Mutant(
        name="records not put-if-absent",
        where="outputs.md#layout",
        rule="a record is never changed",
        edit=Edit(
            "oplog.entries",
            (
                "        self._store.put_if_absent(self.path(name), encode(document))",
                "        self._store.put(self.path(name), encode(document))",
            ),
        ),
        setting=writing(
            {"A": outputs.drive("a"), "B": outputs.drive("b")},
            after={"B": 0.5},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
        ),
        caught="record 1 was replaced",
        story=(
            "A's claim of record 1 is late, and replaces B's record: B's job, which is visible, was"
            " never committed."
        ),
    ),
    # -- the operation log
    Mutant(
        name="decision of an operation not put-if-absent",
        where="operation-log.md#rules",
        rule="deciding is one put-if-absent",
        edit=Edit(
            "oplog.entries",
            (
                "        self._store.put_if_absent(self.path(name), encode(document))",
                "        self._store.put(self.path(name), encode(document))",
            ),
        ),
        setting=logging(
            {"A": logs.run(seconds=1), "R": logs.recover(Decision.ROLLED_BACK)}, after={"R": 0.5}
        ),
        caught="was replaced",
        story=(
            "A recovery has rolled the operation back while it was performed, and the log said so "
            "until its performer overwrote that."
        ),
    ),
    Mutant(
        name="pending entry of an operation removed before the decision",
        where="operation-log.md#rules",
        rule="a listing of `pending/` tells what is not decided",
        edit=Edit(
            "oplog.log",
            (
                "        sent = self._clock.monotonic()\n",
                "        self._pending.remove(operation.id)\n        sent = self._clock.monotonic()\n",
            ),
        ),
        setting=logging({"A": logs.run()}),
        caught="was deleted before the operation was decided",
        story="Should A die now, its operation would be neither pending nor decided.",
    ),
    Mutant(
        name="another's decision on an operation overlooked",
        where="operation-log.md#rules",
        rule="a recovery had rolled the operation back meanwhile → `OutcomeUnknown`",
        edit=Edit(
            "oplog.log",
            (
                "        if not self._conclude(operation, Decision.COMMITTED, began):\n",
                "        self._conclude(operation, Decision.COMMITTED, began)\n        if False:\n",
            ),
        ),
        setting=logging(
            {"A": logs.run(seconds=1), "R": logs.recover(Decision.ROLLED_BACK)}, after={"R": 0.5}
        ),
        caught="and somebody is told",
        story=(
            "A recovery has rolled the operation back, and its performer is told that it was committed."
        ),
    ),
)
