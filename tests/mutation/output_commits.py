"""Mutants of the work after a commit: files become visible, and readers find them."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import writing
from sim.nodes import in_sequence
from sim.outputs.actions import (
    commit_by_next_agent,
    compact,
    damage_lost_files,
    drive,
    gc,
    lose_uploads,
    read,
    recover,
    stage_late,
    write_again,
    write_below,
)

__all__ = ["OUTPUT_COMMITS"]

OUTPUT_COMMITS: tuple[Mutant, ...] = (
    Mutant(
        name="pending entry removed before the files are published",
        where="outputs.md#a-job-step-by-step",
        rule="the pending entry is removed after all files are visible",
        edit=Edit(
            (
                "Output._complete",
                "self._publisher.publish(record, pending)",
                "self._publisher.forget(record.attempt)\nself._publisher.publish(record, pending)",
            )
        ),
        setting=writing({"A": drive("j")}),
        caught="was deleted before all files were visible",
        story=(
            "If the driver dies now, its job is committed, but no other client publishes the files: "
            "without an entry there seems to be nothing to publish."
        ),
    ),
    Mutant(
        name="`_SUCCESS` advanced before the files are published",
        where="outputs.md#layout",
        rule="all files up to the version in `_SUCCESS` are visible",
        edit=Edit(
            (
                "Publisher.complete",
                "self.publish(record, pending)",
                "self._advance(record, self._success())\nself.publish(record, pending)",
            )
        ),
        setting=writing({"A": drive("j"), "R": recover()}, Fault.CRASHED, after={"R": 5}),
        caught="_SUCCESS names 1, but .* is not completely visible",
        story=(
            "Plain readers that wait for `_SUCCESS` look for files that do not exist yet. If the "
            "recovery dies now, no later one checks that version again."
        ),
    ),
    Mutant(
        name="merged files removed before their replacement is visible",
        where="outputs.md#modes",
        rule="the new files are published before the old ones are removed",
        edit=Edit(
            (
                "Output._complete",
                "self._publisher.publish(record, pending)\nself._publisher.replace(record)",
                "self._publisher.replace(record)\nself._publisher.publish(record, pending)",
            )
        ),
        setting=writing({"C": compact()}, before=("a", "b")),
        caught="was deleted before its replacement was visible",
        story="Plain readers that list the directory now find none of the merged rows.",
    ),
    Mutant(
        name="foreign files removed before the commit point",
        where="outputs.md#foreign-files",
        rule="foreign files are removed after the commit point, once the new files are visible",
        edit=Edit(
            (
                "Output._commit_alone",
                "named = self._stored(job, lambda: self._log.name_foreign(job, gone))",
                (
                    "self._publisher.remove(self._publisher.path_in_store(file.path) for file in gone)\n"
                    "named = self._stored(job, lambda: self._log.name_foreign(job, gone))"
                ),
            )
        ),
        setting=writing({"A": drive("j", mode="overwrite")}, foreign=("old",)),
        caught="old was deleted, but no job replaces this version of it",
        story="If the job is aborted now, the rows of the foreign files are lost without a replacement.",
    ),
    Mutant(
        name="foreign files replaced by a logged job without a pending entry",
        where="outputs.md#foreign-files",
        rule="a job that names foreign files writes a pending entry, also in a logged output",
        edit=Edit(
            (
                "Output._commit_alone",
                'if job.visibility == "listed" or gone:',
                'if job.visibility == "listed":',
            )
        ),
        setting=writing(
            {"A": drive("j", mode="overwrite")}, Fault.CRASHED, foreign=("old",), logged=True
        ),
        caught="_SUCCESS names 1, but commit 1 is not completely visible",
        story=(
            "The driver dies after the commit point. The recovery finds no pending entry, and "
            "considers the job complete. Plain readers read the old rows for ever."
        ),
    ),
    Mutant(
        name="a foreign file removed although it was written again",
        where="outputs.md#foreign-files",
        rule="a foreign file stays if it was written again after the job named it",
        edit=Edit(
            (
                "Publisher._unchanged",
                "for file in files if file.is_same(there.get(file.path))]",
                "for file in files]",
            )
        ),
        setting=writing(
            {
                "A": drive("j", mode="overwrite"),
                "W": write_again("old"),
                "R": recover(),
            },
            Fault.CRASHED,
            after={"W": 5, "R": 10},
            foreign=("old",),
        ),
        caught="old was deleted, but no job replaces this version of it",
        story=(
            "The driver dies after the commit point, and another program writes a file with the old "
            "name. The recovery removes it: rows that are newer than the job are lost."
        ),
    ),
    Mutant(
        name="rows of an output below removed without its log",
        where="outputs.md#foreign-files",
        rule="a job that replaces rows of an output below it does so through its log",
        edit=Edit(
            (
                "Publisher.replace",
                "self._replace_below(directory, named, record.attempt)",
                "gone += named",
            )
        ),
        setting=writing({"A": drive("j", mode="overwrite")}, below=("p=x",)),
        caught="the log of p=x names files that are gone",
        story="Readers of the log of the partition look for files that do not exist any more.",
    ),
    Mutant(
        name="rows of an output below replaced that came later",
        where="outputs.md#foreign-files",
        rule="rows that others add to an output below after the commit point stay",
        edit=Edit(
            (
                "Output._replace_below",
                "left = [path for path in state.files if path in old]",
                "left = list(state.files)",
            )
        ),
        setting=writing(
            {"A": drive("j", mode="overwrite"), "B": write_below("p=x"), "R": recover()},
            Fault.CRASHED,
            after={"B": 5, "R": 10},
            below=("p=x",),
        ),
        caught="was deleted, but no job replaces it",
        story=(
            "The driver dies after the commit point, and another job adds rows to the partition by its "
            "path. The recovery removes them: rows that are newer than the job are lost."
        ),
    ),
    Mutant(
        name="rows of an output below left because its job is committed",
        where="outputs.md#foreign-files",
        rule="a job is complete once the log of an output below has removed what it replaced there",
        edit=Edit(("Output._replace_below", "output._publisher.roll_forward()", "pass")),
        setting=writing(
            {"A": drive("j", mode="overwrite"), "R": recover()},
            after={"R": 5},
            below=("p=x",),
            denied=dict.fromkeys("AR", ("delete_many",)),
        ),
        caught="was deleted before all replaced files were removed",
        story=(
            "A commits, and then replaces the rows in the log of the partition, but may not remove "
            "their files. R may not, either. It finds the job in that log, and considers A's complete: "
            "plain readers read the old rows for ever."
        ),
    ),
    Mutant(
        name="`_SUCCESS` advanced while replaced files are listed",
        where="outputs.md#layout",
        rule="`_SUCCESS` names a version after the files that it replaced were removed",
        edit=Edit(("Publisher._roll", "and cleanup.done:", ":")),
        setting=writing(
            {"A": drive("j", mode="overwrite"), "R": read()},
            after={"R": 5},
            before=("old",),
            denied=dict.fromkeys("AR", ("delete_many",)),
        ),
        caught="_SUCCESS names 2, but commit 2 is not completely visible",
        story=(
            "A commits, but may not remove the files that it replaced. A reader may not, either, and "
            "does not mind. It moves `_SUCCESS` on, so no recovery removes them: plain readers read "
            "both rows for ever."
        ),
    ),
    Mutant(
        name="`_SUCCESS` advanced without a condition",
        where="outputs.md#layout",
        rule="`_SUCCESS` is replaced on condition of its content, and never goes back",
        edit=Edit(
            (
                "Publisher._advance",
                "self._store.put_if_match(self.success_path, data, etag=etag)",
                "self._store.put(self.success_path, data)",
            )
        ),
        setting=writing(
            {"A": drive("a"), "B": drive("b")},
            forced=(Forced("A put out/_SUCCESS", Fault.DELAYED, 1, 1),),
            after={"B": 0.5},
            before=("old",),
        ),
        caught="_SUCCESS goes from 3 to 2",
        story=(
            "A is about to report version 2 as complete, and B reports version 3 meanwhile. Readers "
            "of `_SUCCESS` see version 3, and then version 2 again."
        ),
    ),
    Mutant(
        name="a file published by another client taken for lost",
        where="outputs.md#a-job-step-by-step",
        rule="publishing is idempotent: a file with the nonce of the upload is published",
        edit=Edit(
            (
                "Publisher._publish.once",
                "if not _is_same(self._store.head(staged.path), staged):\n    raise",
                "raise",
            )
        ),
        setting=writing({"A": drive("j"), "R": recover()}, Fault.LOST_RESPONSE, after={"R": 5}),
        caught="but 1 of its 1 files are lost",
        story="A's file is visible, and only the answer was lost. A reports the file as lost.",
    ),
    Mutant(
        name="a job reported as committed before it is visible",
        where="outputs.md#a-job-step-by-step",
        rule=(
            "before `JobAlreadyCommitted` is raised, the remaining files of the committed job are "
            "published"
        ),
        edit=Edit(
            (
                "Output.begin",
                (
                    "self._publisher.roll_forward(until=head.version, strict=False)\n"
                    "raise already_committed(job_id, committed)"
                ),
                "raise already_committed(job_id, committed)",
            )
        ),
        setting=writing({"A": drive("j"), "B": drive("j")}, Fault.CRASHED, after={"B": 5}),
        caught="begin reports a job whose files are not all visible",
        story=(
            "A dies after the commit point. B, with the same job, reports it as committed, and its "
            "caller finds no files."
        ),
    ),
    Mutant(
        name="a snapshot without rolling forward",
        where="outputs.md#guarantees",
        rule="readers of the log see only complete versions",
        edit=Edit(
            (
                "Output.snapshot",
                "    self._publisher.roll_forward(until=state.version, strict=False)\nreturn",
                "    pass\nreturn",
            )
        ),
        setting=writing({"A": drive("j"), "R": read()}, Fault.CRASHED, after={"R": 5}),
        caught="names a file that is not visible",
        story=(
            "A dies after the commit point. The reader gets the name of a file that does not exist yet."
        ),
    ),
    Mutant(
        name="uploads dropped of an attempt committed between two listings",
        where="outputs.md#state-after-a-crash",
        rule=(
            "before a recovery drops an upload of a committed attempt, it completes the attempt, with "
            "or without a listed entry, and checks each file"
        ),
        edit=Edit(
            (
                "recover",
                "try:\n    publisher.complete(record)",
                "if attempt not in entries:\n    continue\ntry:\n    publisher.complete(record)",
            ),
            ("recover", "log.outcomes(publisher.unpublished(spare))", "log.outcomes(())"),
        ),
        setting=writing({"A": drive("j"), "R": recover()}, denied={"R": ("publish",)}),
        caught="was dropped, but its attempt is committed",
        story=(
            "R has no permission to complete uploads. It lists the pending entries, and then the "
            "uploads. A commits in between. R cannot publish A's file. It has seen no entry of A, so "
            "it considers A complete and drops the upload: the rows are lost."
        ),
    ),
    Mutant(
        name="uploads dropped of an attempt that could not be published",
        where="outputs.md#state-after-a-crash",
        rule="the uploads of a committed attempt stay until it is complete",
        edit=Edit(
            (
                "recover",
                (
                    "    publisher.complete(record)\n"
                    "except _LASTING as error:\n"
                    "    failures.append(error)\n"
                    "    done.remove(attempt)"
                ),
                (
                    "    publisher.complete(record)\n"
                    "except _LASTING as error:\n"
                    "    failures.append(error)"
                ),
            )
        ),
        setting=writing(
            {
                "A": drive("j"),
                "B": drive("k", mode="overwrite"),
                "R": recover(),
            },
            denied=dict.fromkeys("ABR", ("publish",)),
            after={"B": 1, "R": 2},
        ),
        caught="was dropped, but its attempt is committed",
        story=(
            "No node has permission to complete uploads yet. B's job replaces A's file, so the file "
            "is not part of the last version. A's version must be published before B's, which is "
            "impossible without the upload that R drops."
        ),
    ),
    Mutant(
        name="files removed of a job that was committed while gc looked",
        where="outputs.md#who-sees-an-output",
        rule="gc removes files of an attempt once the log excludes it",
        edit=Edit(
            (
                "collect",
                "for attempt in sorted(dead - fenced.committed.keys())",
                "for attempt in sorted(dead)",
            )
        ),
        setting=writing({"A": drive("j"), "G": gc()}, logged=True),
        caught="was deleted",
        story=(
            "A's job is committed after G has read the log, and before G is about to exclude it. G "
            "removes its files, and readers of the log get errors for ever."
        ),
    ),
    Mutant(
        name="outcomes at the end of the log taken for earlier ones",
        where="outputs.md#who-sees-an-output",
        rule="gc compares files and outcomes with the same state of the log",
        edit=Edit(("CommitLog.decided", "if until is None or version <= until", "")),
        setting=writing({"A": drive("j"), "G": gc()}, logged=True),
        caught="was deleted",
        story=(
            "G reads the log, which does not name A's file. Then A's job is committed. G looks up its "
            "outcome, sees no need to exclude it, and removes the file."
        ),
    ),
    Mutant(
        name="an attempt of before the watermark aborted although it was committed",
        where="outputs.md#state-after-a-crash",
        rule="a recovery looks up the outcomes of attempts that were decided long ago",
        edit=Edit(
            ("recover", "earlier = log.decided(found.open, until=complete)", "earlier = {}"),
            limits=(("INLINE_FILES", "INLINE_FILES = 1_000", "INLINE_FILES = 0"),),
        ),
        setting=writing(
            {
                "A": drive("j"),
                "Z": stage_late(),
                "B": drive("k", mode="overwrite"),
                "G": gc(),
            },
            after={"Z": 1, "B": 2, "G": 3},
        ),
        caught="is committed and then aborted",
        story=(
            "In this world each list of files is an object. A task of A's job is late, and B's job has "
            "replaced A's file. To G, the late upload belongs to an attempt without a decision. G "
            "aborts it, and removes the list that version 1 names."
        ),
    ),
    Mutant(
        name="a wait for lost files that a later version replaced",
        where="outputs.md#lost-uploads",
        rule="a lost file delays no later version if the last version does not have it",
        edit=Edit(
            (
                "Publisher.publish",
                "lost = {path: error for path, error in missing.items() if path in current}",
                "lost = missing",
            )
        ),
        setting=writing(
            {
                "A": drive("j"),
                "L": lose_uploads(),
                "B": drive("k", mode="overwrite"),
                "R": recover(),
            },
            denied={"A": ("publish",)},
            after={"L": 1, "B": 2, "R": 3},
        ),
        caught="a recovery reports replaced files as lost",
        story=(
            "A could not complete its upload, and a lifecycle rule has removed it. B's job replaces "
            "all files, but readers of the log stay at the versions before A's."
        ),
    ),
    Mutant(
        name="an upload without a nonce known by its nonce only",
        where="outputs.md#state-after-a-crash",
        rule="an object with the name and size of an upload of S3A is the published file",
        edit=Edit(
            (
                "outputs:_is_same",
                "if file.nonce and (info.nonce is not None or attempt_of(info.path) is None):",
                "if True:",
            )
        ),
        setting=writing(
            {"A": drive("j"), "R": recover()}, Fault.LOST_RESPONSE, s3a=True, after={"R": 5}
        ),
        caught="but 1 of its 1 files are lost",
        story="A's file is visible, and only the answer was lost. A reports the file as lost.",
    ),
    Mutant(
        name="an object of another size taken for an upload without a nonce",
        where="outputs.md#state-after-a-crash",
        rule="an object with the name and *size* of an upload of S3A is the published file",
        edit=Edit(("outputs:_is_same", "return info.size == file.size", "return True")),
        setting=writing(
            {
                "A": drive("j"),
                "L": lose_uploads(),
                "D": damage_lost_files(),
                "R": recover(),
                "B": drive("k", mode="overwrite"),
            },
            s3a=True,
            denied={"A": ("publish",)},
            after={"L": 1, "D": 2, "R": 3, "B": 4},
        ),
        caught="was deleted before all files were visible",
        story=(
            "A could not complete its upload, and a lifecycle rule has removed it. Someone has put an "
            "empty object in its place. R takes that for the file, and removes the pending entry."
        ),
    ),
    Mutant(
        name="records of uploads removed of an attempt with a young upload",
        where="outputs.md#state-after-a-crash",
        rule="gc aborts no attempt that `recover` considers alive",
        edit=Edit(("collect", "and attempt not in recovery.live", "")),
        setting=writing(
            {"A": drive("j", files=2, slow=3.0), "G": gc(older_than=4.0)}, s3a=True, after={"G": 11}
        ),
        caught="a live attempt was aborted",
        story=(
            "The record of A's first file is old, and the second file is a young upload, which has no "
            "record yet. G aborts the attempt, and A loses its work."
        ),
    ),
    Mutant(
        name="records of uploads removed before their attempt is decided",
        where="outputs.md#state-after-a-crash",
        rule="`gc` removes the records of uploads once their attempt is decided",
        edit=Edit(
            (
                "collect",
                "fenced = log.abort_undecided(dict.fromkeys(unknown), after=state.version)",
                "fenced = log.outcomes(unknown, after=state.version)",
            )
        ),
        setting=writing(
            {"A": drive("j", slow=0.15), "G": gc()},
            forced=(Forced("G get out/_SUCCESS", Fault.DELAYED, 1, 0.3),),
            s3a=True,
            after={"G": 0.1},
        ),
        caught="pending was deleted before its attempt was decided",
        story=(
            "A's upload begins after G has listed the uploads, and its record is written before G lists "
            "the records. G removes the record of a job that A commits."
        ),
    ),
    Mutant(
        name="records of uploads left by gc",
        where="outputs.md#state-after-a-crash",
        rule="`gc` removes the records of uploads that their drivers have left",
        edit=Edit(("Publisher.hidden", "yield from self._store.list(self.path_in_store(MAGIC))", "")),
        setting=writing(
            {"A": drive("j"), "G": in_sequence(recover(), gc())},
            Fault.CRASHED,
            s3a=True,
            after={"G": 5},
        ),
        caught="gc leaves records of uploads",
        story="The driver dies. Nothing ever removes the records of its uploads.",
    ),
    Mutant(
        name="a resolved commit that is not published",
        where="outputs.md#job-ids-and-batches",
        rule="after `OutcomeUnknown`, `resolve` publishes the files of a committed job",
        edit=Edit(
            (
                "Output.resolve",
                "self._publisher.complete(record, Cleanup(strict=False))",
                "return record",
            )
        ),
        setting=writing(
            {"A": drive("j")},
            Fault.CRASHED,
            s3a=True,
            restart={"A": commit_by_next_agent(others=True)},
        ),
        caught="a resolved commit is not completely visible",
        story=(
            "The first agent dies after the commit point. The next one cannot repeat the commit, and "
            "finds that the job is committed. Its driver reports success, and readers find no files."
        ),
    ),
)
