"""Mutants of the decision which jobs are part of an output."""

from __future__ import annotations

from commitlog.outputs import Batch
from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import writing
from sim.nodes import in_sequence
from sim.outputs.actions import abort_one, compact, drive, drive_many, read, recover

__all__ = ["OUTPUT_DECISIONS"]

RECORD = "put out/_commitlog/00000000000000000001.json"

OUTPUT_DECISIONS: tuple[Mutant, ...] = (
    Mutant(
        name="publish before the commit point",
        where="outputs.md#a-job-step-by-step",
        rule="the record is written before files become visible",
        edit=Edit(
            (
                "Output._commit_alone",
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
            "The file of a job is visible to plain readers, but the job may still fail, or lose "
            "against another attempt."
        ),
    ),
    Mutant(
        name="commit without a pending entry",
        where="outputs.md#a-job-step-by-step",
        rule="the pending entry is written before the record",
        edit=Edit(("Output._commit_alone", "self._prepare(pending)", "pass")),
        setting=writing({"A": drive("j")}),
        caught="is committed without a pending entry",
        story="The job is committed. If its driver dies now, no other client knows its uploads.",
    ),
    Mutant(
        name="commit record claimed without reading the records before",
        where="outputs.md#layout",
        rule="number N is claimed only by a client that has read N − 1",
        edit=Edit(
            (
                "CommitLog.commit",
                (
                    "mine, after = self.look_on(job, after, state, until=until)\n"
                    "if mine is not None:\n"
                    "    return mine"
                ),
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
            "A's claim of record 1 is late. A recovery has considered A dead, aborted the attempt in "
            "record 1, and dropped its uploads. A does not read that, and takes the next number."
        ),
    ),
    Mutant(
        name="the job id not checked",
        where="outputs.md#a-job-step-by-step",
        rule="the record that took the number is checked for the job's id",
        edit=Edit(
            (
                "CommitLog.look_on",
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
            "Two drivers commit the same job. A's claim of record 1 is late, record 1 is B's, and A "
            "takes the next number."
        ),
    ),
    Mutant(
        name="an existing record taken for one's own",
        where="outputs.md#layout",
        rule="if the number is taken, the record is read: it may be another driver's",
        edit=Edit(
            (
                "CommitLog.claim",
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
        story="Record 1 is B's when A's claim arrives. A takes it for its own, and publishes.",
    ),
    Mutant(
        name="data in an output that must be empty",
        where="outputs.md#a-job-step-by-step",
        rule="the record that took the number is checked for data, if the job requires an empty output",
        edit=Edit(("CommitLog.look_on", 'elif job.mode == "error":', "elif False:")),
        setting=writing(
            {"A": drive("a", mode="error"), "B": drive("b")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
        ),
        caught="the output has data, but the job requires an empty one",
        story=(
            "A requires an empty output, and found it empty at the beginning. A's claim of record 1 "
            "is late, record 1 is B's, and A takes the next number."
        ),
    ),
    Mutant(
        name="files merged that another job has replaced",
        where="outputs.md#modes",
        rule=(
            "a job that names files to replace is refused if one of them is not part of the output "
            "any more"
        ),
        edit=Edit(("CommitLog.commit", "if state is not None:\n    _check_there(job, state)", "")),
        setting=writing(
            {"C": compact(), "A": drive("j", mode="overwrite")},
            forced=(Forced("C put out/_commitlog/00000000000000000003.json", Fault.DELAYED, 1, 1),),
            after={"A": 0.5},
            before=("a", "b"),
        ),
        caught="are rewritten, but are not part of the output",
        story=(
            "C has merged files that A replaces meanwhile. C's claim of record 3 is late, record 3 is "
            "A's, and C takes the next number: the rows that A removed would appear again."
        ),
    ),
    Mutant(
        name="a job id checked against recent records only",
        where="outputs.md#a-job-step-by-step",
        rule="a new job is checked against all committed jobs, which a checkpoint knows",
        edit=Edit(
            (
                "Output.begin",
                "head = self._log.cache.head(asked, batch, known)",
                (
                    "head = self._log.cache.head(asked, batch, known)\n"
                    "if head.committed is not None and head.committed <= self._publisher.watermark():\n"
                    "    head = evolve(head, committed=None)"
                ),
            )
        ),
        setting=writing({"A": drive("j")}, before=("j",)),
        caught="a job began although it was committed before",
        story=(
            "The job is in record 1, which is visible according to `_SUCCESS`. A reads only later "
            "records, and begins the job again."
        ),
    ),
    Mutant(
        name="a job id looked up in another shard of a checkpoint",
        where="outputs.md#layout",
        rule="the shard that a job id determines has it if the job is committed",
        edit=Edit(
            (
                "_Part.find",
                "missing = {_shard_of(key, shards) for key in keys} - self._known",
                "missing = {0} - self._known",
            )
        ),
        setting=writing({"A": drive("b")}, before=tuple("abcdefghij")),
        caught="a job began although it was committed before",
        story=(
            "The index of the checkpoint has ten job ids and ten attempts in two shards, and `b` is in "
            "the second one. A reads the first one, and begins the job again."
        ),
    ),
    Mutant(
        name="an unknown claim reported as a failure",
        where="outputs.md#a-job-step-by-step",
        rule="if a record may have been written, the call raises `OutcomeUnknown`",
        edit=Edit(
            (
                "CommitLog.claim",
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
            "The first claim is late and the next three are lost. A's caller gets an error that "
            "nothing was written. Then the first claim arrives."
        ),
    ),
    Mutant(
        name="abort without an abort record",
        where="outputs.md#state-after-a-crash",
        rule="an abort records the attempt as aborted in the log before it drops an upload",
        edit=Edit(
            (
                "Output._abort",
                "self._log.abort_undecided({job.attempt: job.job_id}, after=after)",
                "self._log.outcomes({job.attempt}, after=after)",
            )
        ),
        setting=writing({"A": drive("j"), "B": abort_one()}),
        caught="was dropped before it was decided",
        story=(
            "B aborts A's attempt while A is at work, as a scheduler may. A's upload is gone, and no "
            "record prevents A's commit."
        ),
    ),
    Mutant(
        name="recovery that drops uploads before it aborts the job",
        where="outputs.md#state-after-a-crash",
        rule="a recovery records the attempt as aborted in the log, *then* drops its uploads",
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
            "A's claim is in flight when the recovery considers A dead. The upload is gone. No record "
            "prevents the claim, which would commit it."
        ),
    ),
    Mutant(
        name="the outcome not read after an abort record",
        where="outputs.md#state-after-a-crash",
        rule="a driver and a recovery cannot both win, at any moment",
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
            "A's claim arrives before the recovery's. The recovery still relies on its own, and drops "
            "the uploads of a committed job."
        ),
    ),
    Mutant(
        name="a single claim for an abort record",
        where="outputs.md#state-after-a-crash",
        rule="an attempt is aborted or committed in the log before its uploads are dropped",
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
            "C aborts A's attempt, and claims record 1 for that. But record 1 is B's when C's claim "
            "arrives. C does not try the next number, and drops A's upload, which A may still commit."
        ),
    ),
    Mutant(
        name="records put without a condition",
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
            "A's claim of record 1 is late, and replaces B's record. So B's job, which is visible, "
            "was never committed."
        ),
    ),
    Mutant(
        name="a job begun with the id of a committed batch",
        where="outputs.md#job-ids-and-batches",
        rule="a job with the id of a batch is that batch",
        edit=Edit(
            (
                "outputs.log_cache:_head",
                "of = question.batch or Batch.named(question.job_id)",
                "of = question.batch",
            )
        ),
        setting=writing({"A": drive("s/1", batch=Batch("s", 1)), "B": drive("s/1")}, after={"B": 1}),
        caught="a job began although it was committed before",
        story="The rows of the batch exist twice: from the stream, and from B's job.",
    ),
    Mutant(
        name="a job committed with the id of an earlier batch",
        where="outputs.md#job-ids-and-batches",
        rule="a batch is refused, also at the commit point, if a later batch of the stream is committed",
        edit=Edit(("_is_batch_of", "batch = job.batch or Batch.named(job.job_id)", "batch = job.batch")),
        setting=writing({"A": drive("s/1", batch=Batch("s", 1)), "B": drive("s/0")}),
        caught="batch s/0 comes too late",
        story="B's job has the id of batch 0, and is committed after batch 1.",
    ),
    Mutant(
        name="a batch begun after a job with the id of a later one",
        where="outputs.md#job-ids-and-batches",
        rule="a job with the id of a batch is that batch, and no earlier batch comes after it",
        edit=Edit(
            (
                "outputs.log_cache:_head",
                "for number, version in (under_ids, state.batches.get(of.stream, (-1, 0))):",
                "for number, version in (state.batches.get(of.stream, (-1, 0)),):",
            )
        ),
        setting=writing({"A": drive("s/1"), "B": drive("s/0", batch=Batch("s", 0))}, after={"B": 1}),
        caught="batch s/0 comes too late",
        story="A's job has the id of batch 1. The stream goes on with batch 0.",
    ),
    Mutant(
        name="a batch committed after a job with the id of a later one",
        where="outputs.md#job-ids-and-batches",
        rule="the same holds at the commit point",
        edit=Edit(
            (
                "_is_batch_of",
                "other = record.batch or (None if job.batch is None else Batch.named(record.job_id))",
                "other = record.batch",
            )
        ),
        setting=writing({"A": drive("s/1"), "B": drive("s/0", batch=Batch("s", 0))}),
        caught="batch s/0 comes too late",
        story="Both jobs have begun, and A is first to commit.",
    ),
    Mutant(
        name="columns checked again only by jobs that append",
        where="outputs.md#a-job-step-by-step",
        rule="a job is refused at the commit point if the output's columns have changed since its begin",
        edit=Edit(
            (
                "CommitLog.look_on",
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
        story=(
            "B's job replaces one partition. Readers of the other partitions find columns that these "
            "do not have."
        ),
    ),
    Mutant(
        name="ages computed at the end of the listings",
        where="outputs.md#state-after-a-crash",
        rule="the age of an attempt is its age at the beginning of the recovery",
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
            "A is paused before it commits. R's listing takes so long that A's upload seems older "
            "than it was when R began, and R aborts A."
        ),
    ),
    Mutant(
        name="jobs of a shared record not checked against the record that took its number",
        where="outputs.md#shared-records",
        rule="each job of a group is checked against the records before the claim, as a job alone is",
        edit=Edit(
            (
                "_SharedCommit._check",
                "outcome = _decided(log, each.job, seen[number], self._after)",
                "outcome = None",
            )
        ),
        setting=writing(
            {"A": drive_many("j", "k"), "B": drive("k")},
            forced=(Forced(f"A {RECORD}", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
            shared=True,
        ),
        caught="job k is committed twice",
        story=(
            "A's claim of record 1 is late, and record 1 commits B's job k. A does not check its two "
            "jobs against it, and commits both in record 2."
        ),
    ),
    Mutant(
        name="one job twice in a shared record",
        where="outputs.md#shared-records",
        rule="a record has at most one attempt at a job",
        edit=Edit(("_chosen", "taken.isdisjoint(names)", "True")),
        setting=writing({"A": drive_many("j", "j")}, shared=True),
        caught="job j is committed twice",
        story="Two threads of a process end attempts at the same job. Both are in the record.",
    ),
    Mutant(
        name="jobs of an unknown record committed again",
        where="outputs.md#shared-records",
        rule="if a shared record may have been written, each of its jobs has an unknown outcome",
        edit=Edit(
            (
                "_SharedCommit._claim",
                "outcomes[number] = self._failure(number, error)",
                (
                    "from commitlog.errors import Unavailable\n"
                    'outcomes[number] = Unavailable("the record was not written")'
                ),
            )
        ),
        setting=writing(
            {"A": drive_many("j", "k", abort=False)},
            forced=(
                Forced(f"A {RECORD}", Fault.DELAYED, 1, 30),
                *(Forced(f"A {RECORD}", Fault.LOST_REQUEST, nth) for nth in (2, 3, 4)),
            ),
            shared=True,
        ),
        caught="is committed, but its driver got",
        story=(
            "The claim of the record is late, and its repetitions are lost. Both callers get an error "
            "that nothing was written. Then the claim arrives."
        ),
    ),
    Mutant(
        name="a helped job not checked against the log",
        where="outputs.md#ready-entries",
        rule="each job of a ready entry is checked against all records before the claim",
        edit=Edit(
            (
                "_SharedCommit._claim",
                "helped = [each for each, verdict in verdicts.items() if verdict is None]",
                "helped = list(verdicts)",
            )
        ),
        setting=writing(
            {"A": drive("j", abort=False), "B": drive("k"), "C": abort_one()},
            after={"B": 3, "C": 1},
            shared=True,
            busy=True,
        ),
        caught="uploads that .* commits are gone|is aborted and then committed",
        story=(
            "A leaves a ready entry of j and waits. C aborts j and drops its upload. B takes the entry "
            "along, and commits j."
        ),
    ),
    Mutant(
        name="a job that another driver has committed claimed again",
        where="outputs.md#ready-entries",
        rule="a driver looks for its jobs in the records of others before it claims the next number",
        edit=Edit(
            (
                "_SharedCommit._check",
                "outcome = _decided(log, each.job, seen[number], self._after)",
                (
                    "outcome = None if number in self._in_entry else "
                    "_decided(log, each.job, seen[number], self._after)"
                ),
            )
        ),
        setting=writing({"A": drive("j"), "B": drive("k")}, shared=True, busy=True),
        caught="is committed twice",
        story="A and B leave ready entries. One of them commits both jobs, and the other its own again.",
    ),
    Mutant(
        name="a ready entry removed before a record decides its jobs",
        where="outputs.md#ready-entries",
        rule="a ready entry is removed after the log has decided all of its jobs",
        edit=Edit(
            (
                "_SharedCommit._claim",
                "won = log.claim(",
                "queue.remove(list(others.entries))\nwon = log.claim(",
            )
        ),
        setting=writing({"A": drive("j"), "B": drive("k")}, shared=True, busy=True),
        caught="was deleted before .* were decided",
        story=(
            "A takes the entry of B along, and removes it first. If A's claim is lost, B waits for a "
            "record that no one writes."
        ),
    ),
    Mutant(
        name="an error of a job in a ready entry reported as final",
        where="outputs.md#ready-entries",
        rule="a job in a ready entry has an unknown outcome until the log decides it",
        edit=Edit(
            (
                "_SharedCommit._claim",
                "outcomes[number] = self._failure(number, error)",
                "outcomes[number] = _copy(error)",
            )
        ),
        setting=writing(
            {"A": drive("j", abort=False), "B": drive("k")},
            forced=tuple(Forced(f"A {RECORD}", Fault.THROTTLED, nth) for nth in (1, 2, 3, 4)),
            after={"B": 12},
            shared=True,
            busy=True,
        ),
        caught="is committed, but its driver got",
        story=(
            "A leaves a ready entry. Its own claim fails, and its caller gets an error that nothing was "
            "written. Then B takes the entry along."
        ),
    ),
    Mutant(
        name="the ready entry of a live job removed by a recovery",
        where="outputs.md#ready-entries",
        rule="a recovery removes a ready entry once all of its jobs are decided",
        edit=Edit(("recover", "if jobs.keys() <= decided", "")),
        setting=writing(
            {"A": drive("j"), "R": recover(older_than=100)}, after={"R": 3}, shared=True, busy=True
        ),
        caught="was deleted before .* were decided",
        story="A has left a ready entry and waits. R removes the entry, although A's job is open.",
    ),
    Mutant(
        name="a shared record that counts as published without a look",
        where="outputs.md#shared-records",
        rule="a process that reads a record with uploads publishes the files that are not visible",
        edit=Edit(
            ("Publisher.complete", "if record.uploads is not None:\n    return", "if False:\n    return")
        ),
        setting=writing(
            {"A": drive_many("j", "k"), "R": read()}, Fault.CRASHED, shared=True, after={"R": 5}
        ),
        caught="_SUCCESS names 1, but commit 1 is not completely visible",
        story=(
            "A dies after the commit point of both jobs. There is no pending entry, and the reader "
            "considers the files published."
        ),
    ),
    Mutant(
        name="`_SUCCESS` moved to a record of which one job is not published",
        where="outputs.md#shared-records",
        rule="`_SUCCESS` names a shared record only once the files of all of its jobs are visible",
        edit=Edit(
            (
                "Publisher._roll",
                "if record.attempt not in done and self.complete(record, cleanup):",
                "if record is commits[0] and self.complete(record, cleanup):",
            )
        ),
        setting=writing(
            {"A": drive_many("j", "k"), "R": recover()}, Fault.CRASHED, shared=True, after={"R": 5}
        ),
        caught="_SUCCESS names 1, but .* is not completely visible",
        story="A dies after the commit point of both jobs. The recovery publishes the first one only.",
    ),
    Mutant(
        name="the end of the log taken from memory when a job begins",
        where="outputs.md#a-job-step-by-step",
        rule="the beginning of a job asks for the record after the last known one",
        edit=Edit(
            (
                "LogCache._advanced",
                "fetched = False",
                "fetched = False\nif not loaded:\n    return state, older",
            )
        ),
        setting=writing(
            {"A": in_sequence(drive("i"), drive("j")), "B": drive("j")},
            forced=(Forced("A put out/_SUCCESS", Fault.DELAYED, 1, 3),),
            after={"B": 1},
        ),
        caught="a job began although it was committed before",
        story=(
            "A has committed a job, and remembers the log. B commits job j. A does not ask for new "
            "records, and begins job j again."
        ),
    ),
)
