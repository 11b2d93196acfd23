"""Mutants of the decision which jobs are part of an output."""

from __future__ import annotations

from commitlog.outputs import Batch
from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import writing
from sim.outputs.actions import abort_one, compact, drive, recover

__all__ = ["OUTPUT_DECISIONS"]

RECORD = "put out/_commitlog/00000000000000000001.json"

OUTPUT_DECISIONS: tuple[Mutant, ...] = (
    Mutant(
        name="publish before the commit point",
        where="outputs.md#a-job-step-by-step",
        rule="first the record is written, then files appear",
        edit=Edit(
            (
                "Output.commit",
                "record = self._log.commit(",
                (
                    "record = CommitRecord(version=0, job_id='', attempt='', mode='append', time=0)\n"
                    "self._publisher.publish(record, pending)\n"
                    "record = self._log.commit("
                ),
            )
        ),
        setting=writing({"A": drive("j")}),
        caught="is visible, but no commit names it",
        story=(
            "A file of a job that may yet fail, or lose against another attempt, is visible to "
            "plain readers."
        ),
    ),
    Mutant(
        name="commit without a pending entry",
        where="outputs.md#a-job-step-by-step",
        rule="the pending entry is written before the record",
        edit=Edit(("Output.commit", "self._prepare(pending)", "pass")),
        setting=writing({"A": drive("j")}),
        caught="is committed without a pending entry",
        story="The job is committed. Should its driver die now, nobody else would know its uploads.",
    ),
    Mutant(
        name="commit record claimed without reading the ones before",
        where="outputs.md#layout",
        rule="number N is claimed only by somebody who has read N − 1",
        edit=Edit(
            (
                "CommitLog.commit",
                "mine, after = self._look(job, after, state)\nif mine is not None:\n    return mine",
                "after += 1",
            )
        ),
        setting=writing(
            {"A": drive("j"), "R": recover()},
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
            (
                "CommitLog._look",
                "elif record.job_id == job.job_id or _is_batch_of(job, record):",
                "elif _is_batch_of(job, record):",
            )
        ),
        setting=writing(
            {"A": drive("j"), "B": drive("j")},
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
            (
                "CommitLog._claim",
                "except AlreadyExists:\n    return False",
                "except AlreadyExists:\n    return True",
            )
        ),
        setting=writing(
            {"A": drive("a"), "B": drive("b")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
        ),
        caught="is visible, but no commit names it",
        story="Record 1 is B's when A's claim arrives. A believes that it is its own, and publishes.",
    ),
    Mutant(
        name="data where none was wanted",
        where="outputs.md#a-job-step-by-step",
        rule="the record that took the number is checked for data where none is wanted",
        edit=Edit(("CommitLog._look", 'elif job.mode == "error":', "elif False:")),
        setting=writing(
            {"A": drive("a", mode="error"), "B": drive("b")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
        ),
        caught="the output has data, but the job requires an empty one",
        story=(
            "A is to write to an empty output, and found it empty when it began. A's claim of "
            "record 1 is late, record 1 is B's, and A takes the next number."
        ),
    ),
    Mutant(
        name="files merged that another job has replaced",
        where="outputs.md#modes",
        rule="a job that names files to replace is refused once one of them is no part of the output",
        edit=Edit(("CommitLog.commit", "if state is not None:\n    _check_there(job, state)", "")),
        setting=writing(
            {"C": compact(), "A": drive("j", mode="overwrite")},
            forced=(Forced("C put out/_commitlog/00000000000000000003.json", Fault.DELAYED, 1, 1),),
            after={"A": 0.5},
            before=("a", "b"),
        ),
        caught="are rewritten, but are not part of the output",
        story=(
            "C has merged what A, meanwhile, replaces. C's claim of record 3 is late, record 3 is A's,"
            " and C takes the next number: the rows that A had removed would be back."
        ),
    ),
    Mutant(
        name="a job id looked for among recent records only",
        where="outputs.md#a-job-step-by-step",
        rule="a checkpoint knows all jobs: is the job committed already?",
        edit=Edit(
            (
                "Output.begin",
                "before = state.jobs.get(job_id)",
                (
                    "before = state.jobs.get(job_id)\n"
                    "if before is not None and before <= self._publisher.watermark():\n"
                    "    before = None"
                ),
            )
        ),
        setting=writing({"A": drive("j")}, before=("j",)),
        caught="a job began although it was committed before",
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
            (
                "CommitLog._claim",
                "raise unknown from None",
                (
                    "from commitlog.errors import Unavailable\n"
                    'raise Unavailable("the record was not written") from unknown'
                ),
            ),
        ),
        setting=writing(
            {"A": drive("j", abort=False)},
            forced=(
                Forced(f"A {RECORD}", Fault.DELAYED, 1, 30),
                *(Forced(f"A {RECORD}", Fault.LOST_REQUEST, nth) for nth in (2, 3, 4)),
            ),
        ),
        caught="is committed, but its driver got",
        story=(
            "The first claim is late and the next three are lost. A's caller is told that nothing "
            "was written; then the first one arrives."
        ),
    ),
    Mutant(
        name="abort without an aborted record",
        where="outputs.md#state-after-a-crash",
        rule="an abort rules the attempt out in the log before it drops an upload",
        edit=Edit(
            (
                "Output.abort",
                "self._log.abort_undecided({job.attempt: job.job_id}, after=job.base)",
                "self._log.outcomes({job.attempt}, after=job.base)",
            )
        ),
        setting=writing({"A": drive("j"), "B": abort_one()}),
        caught="was dropped before it was decided",
        story=(
            "B aborts what A is still at work on, as a scheduler may. A's upload is gone, and "
            "nothing keeps A from committing it."
        ),
    ),
    Mutant(
        name="recovery that aborts uploads before it has fenced the job",
        where="outputs.md#state-after-a-crash",
        rule="a recovery rules the attempt out in the log, *then* drops its uploads",
        edit=Edit(
            (
                "recover",
                "fenced = log.abort_undecided(suspects, after=found.end)",
                (
                    "publisher.drop(upload for a in sorted(dead) for upload in uploads.get(a, ()))\n"
                    "fenced = log.abort_undecided(suspects, after=found.end)"
                ),
            )
        ),
        setting=writing(
            {"A": drive("j"), "R": recover()},
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
        where="outputs.md#state-after-a-crash",
        rule="there is no moment at which a driver and a recovery can both win",
        edit=Edit(
            (
                "CommitLog.abort_undecided",
                "later = self.outcomes(found.open, after=found.end)",
                "later = AttemptOutcomes(open=set(), aborted=found.open, end=fence.version)",
            )
        ),
        setting=writing(
            {"A": drive("j"), "R": recover()},
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
        where="outputs.md#state-after-a-crash",
        rule="an attempt is ruled out, or committed, before its uploads are dropped",
        edit=Edit(("CommitLog.abort_undecided", "while found.open:", "if found.open:")),
        setting=writing(
            {"A": drive("a"), "B": drive("b"), "C": abort_one()},
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
            (
                "RecordDirectory.add",
                "self._store.put_if_absent(self.path(name), encode(document))",
                "self._store.put(self.path(name), encode(document))",
            )
        ),
        setting=writing(
            {"A": drive("a"), "B": drive("b")},
            after={"B": 0.5},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
        ),
        caught="record 1 was replaced",
        story=(
            "A's claim of record 1 is late, and replaces B's record: B's job, which is visible, was"
            " never committed."
        ),
    ),
    Mutant(
        name="a job that is begun under the id of a committed batch",
        where="outputs.md#job-ids-and-batches",
        rule="a job under the id of a batch is that batch",
        edit=Edit(("Output.begin", "(of := batch or Batch.named(job_id))", "(of := batch)")),
        setting=writing({"A": drive("s/1", batch=Batch("s", 1)), "B": drive("s/1")}, after={"B": 1}),
        caught="a job began although it was committed before",
        story="The rows of the batch are there twice: once from the stream, once from B's job.",
    ),
    Mutant(
        name="a job that is committed under the id of an earlier batch",
        where="outputs.md#job-ids-and-batches",
        rule="it is refused once a later batch of the stream was committed, at the commit point, too",
        edit=Edit(("_is_batch_of", "batch = job.batch or Batch.named(job.job_id)", "batch = job.batch")),
        setting=writing({"A": drive("s/1", batch=Batch("s", 1)), "B": drive("s/0")}),
        caught="batch s/0 comes too late",
        story="B's job is of the id of batch 0, and is committed after batch 1.",
    ),
    Mutant(
        name="columns looked at again by jobs that append alone",
        where="outputs.md#a-job-step-by-step",
        rule=(
            "a job is refused at the commit point if the output has other columns than those that it "
            "was begun with"
        ),
        edit=Edit(
            (
                "CommitLog._look",
                'elif job.mode != "overwrite" and _columns_differ(job, record):',
                'elif job.mode == "append" and _columns_differ(job, record):',
            )
        ),
        setting=writing(
            {
                "A": drive("j", schema="x"),
                "B": drive("k", schema="y", mode="overwrite-partitions", partition="p"),
            }
        ),
        caught="began with columns that the output no longer has",
        story="B's job replaces one partition. Readers of the others find columns that are not theirs.",
    ),
    Mutant(
        name="an age that counts from the end of the listings",
        where="outputs.md#state-after-a-crash",
        rule="an attempt is as old as it was when the recovery began",
        edit=Edit(
            (
                "recover",
                "complete = publisher.checked_watermark()",
                ("deadline = pending.now(clock) - older_than\ncomplete = publisher.checked_watermark()"),
            )
        ),
        setting=writing(
            {"A": drive("j", files=2), "R": recover(older_than=3.0)},
            forced=(
                Forced("A clock", Fault.PAUSED, 1, 5),
                Forced("R list_staged out/", Fault.DELAYED, 1, 1.75),
            ),
            after={"R": 1.5},
        ),
        caught="a live attempt was aborted",
        story=(
            "A stands still before it commits. R's listing takes so long that A's upload seems older "
            "than it was when R began, and R rules A out."
        ),
    ),
)
