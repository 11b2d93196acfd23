"""Mutants of the invariants of a namespace: entries, versions, data, and outcomes of calls."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import naming
from sim.namespace.actions import delete, gc, read, recover, rename, set_attributes, tamper, write

__all__ = ["NAMESPACE_NAMES"]

_F = {"f": b"0"}

#: A's request is on its way for a while, in which B changes the same.
_SLOW = (Forced("A table.transact", Fault.DELAYED, 1, 1),)

#: A gives up, and finds that B was first; and B's file is gone when A's request arrives.
_OVERTAKEN = naming(
    {
        "A": [write("f", b"1", overwrite=False)],
        "B": [1.0, write("f", b"2"), 3.0, delete("f")],
    },
    forced=(Forced("A table.transact", Fault.DELAYED, 1, 5),),
)

NAMESPACE_NAMES: tuple[Mutant, ...] = (
    Mutant(
        name="a new entry put without a condition",
        where="namespace.md#how-it-works",
        rule="an entry is added on condition that there is none",
        edit=Edit(("add_entry", "put_entry(change, entry, Absent())", "put_entry(change, entry, None)")),
        setting=naming(
            {"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]}
        ),
        caught="I5",
        story="B's file replaces A's, and no record names A's content any more.",
    ),
    Mutant(
        name="a file overwritten without a condition",
        where="namespace.md#how-it-works",
        rule="conditions are on versions, which are never used again, or on absence",
        edit=Edit(
            (
                "plan_link",
                "put_entry(change, entry, old.unchanged())",
                "put_entry(change, entry, None)",
            )
        ),
        setting=naming({"A": [write("f", b"1")], "B": [0.5, write("f", b"2")]}, forced=_SLOW, files=_F),
        caught="I5",
        story=(
            "Both have seen the first version, and write the second one. The replaced content becomes "
            "garbage twice. No file and no garbage record has the content that B wrote."
        ),
    ),
    Mutant(
        name="a file deleted without a condition",
        where="namespace.md#how-it-works",
        rule="conditions are on versions, which are never used again, or on absence",
        edit=Edit(
            (
                "plan_remove_files",
                "change.delete(file.key, file.unchanged())",
                "change.delete(file.key, None)",
            )
        ),
        setting=naming({"A": [delete("f")], "B": [0.5, write("f", b"1")]}, forced=_SLOW, files=_F),
        caught="I5",
        story=(
            "B has overwritten the file since A read it. A's deletion makes garbage of the content "
            "that A saw, which is garbage already. No record has B's content."
        ),
    ),
    Mutant(
        name="a file renamed without a condition on its version",
        where="namespace.md#how-it-works",
        rule="a rename is on condition that the entry still has that version",
        edit=Edit(
            (
                "_plan_move",
                "change.delete(moving.key, moving.unchanged())",
                'change.delete(moving.key, Equals("id", moving.id))',
            )
        ),
        setting=naming({"A": [rename("f", "g")], "B": [write("f", b"1")]}, files=_F),
        caught="I5",
        story="A gives the new name to the content that it saw, which B has made garbage.",
    ),
    Mutant(
        name="replaced data that does not become garbage",
        where="namespace.md#invariants",
        rule="an object that was named has a record until it is removed",
        edit=Edit(("plan_link", "if old.data is not None and old.data.path not in kept:", "if False:")),
        setting=naming({"A": [write("f", b"1")]}, files=_F),
        caught="I5",
        story="The file has other content now, and no record says that the old content must be removed.",
    ),
    Mutant(
        name="own success not recognised",
        where="namespace.md#atomicity",
        rule=(
            "on tables without tokens a client recognises its own change by the change id, which "
            "every record has"
        ),
        edit=Edit(
            (
                "Changes._is_refused",
                'return reason.item is None or reason.item.get("change_id") != change.id',
                "return True",
            )
        ),
        setting=naming({"A": [write("f", b"1", overwrite=False)]}, Fault.REPEATED, tokens=False),
        caught="I4",
        story=(
            "An intermediary has sent A's request twice. The second one is refused, so A takes its "
            "own file for another client's. A removes the content as unused."
        ),
    ),
    Mutant(
        name="another client's success taken for one's own",
        where="namespace.md#how-it-works",
        rule="the change id shows whether a refusal is due to an own request",
        edit=Edit(
            (
                "Changes._is_applied",
                'return found is not None and found.get("change_id") == change.id',
                "return found is not None",
            )
        ),
        setting=naming(
            {"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]},
            Fault.LOST_REQUEST,
        ),
        caught="succeeded, but changed nothing",
        story="B's request was lost. The file exists, so B takes it for its own. It is A's.",
    ),
    Mutant(
        name="a retry without the token",
        where="namespace.md#atomicity",
        rule="after a lost answer, the same transaction is sent with the same token",
        edit=Edit(("Changes._send", "token=change.id", "token=None")),
        setting=naming(
            {"A": [write("f", b"1", overwrite=False)], "B": [1.0, delete("f")]}, Fault.DUPLICATED
        ),
        caught="the tree changed without a call",
        story="The file is deleted, and appears again when the network delivers A's request once more.",
    ),
    Mutant(
        name="a refused change after a lost answer reported as a failure",
        where="namespace.md#atomicity",
        rule=(
            "the call raises `OutcomeUnknown` if another client changed the same records between two "
            "attempts"
        ),
        edit=Edit(
            (
                "Changes._send",
                ('if unknown is not None:\n    raise unknown from error\nself.recorder.add("refused")'),
                'self.recorder.add("refused")',
            )
        ),
        setting=_OVERTAKEN,
        caught="took effect after its outcome AlreadyExists",
        story=(
            "A reports that B's file exists. The file is gone when A's first request arrives. That "
            "request creates the file of the call that failed."
        ),
    ),
    Mutant(
        name="throttling after a lost answer reported as a failure",
        where="namespace.md#atomicity",
        rule="a call that raises anything but `OutcomeUnknown` has changed nothing",
        edit=Edit(("Changes._send", "failed = unknown or last", "failed = last or unknown")),
        setting=naming(
            {"A": [write("f", b"1")]},
            forced=(
                Forced("A table.transact", Fault.DELAYED, 1, 9),
                Forced("A table.transact", Fault.THROTTLED, 2),
                Forced("A table.transact", Fault.THROTTLED, 3),
            ),
        ),
        caught="took effect after its outcome Unavailable|I4",
        story="The first request is still in flight when A reports that nothing has happened.",
    ),
    Mutant(
        name="content removed after an unknown outcome",
        where="namespace.md#invariants",
        rule="the object of an entry exists",
        edit=Edit(
            (
                "Namespace._link_own",
                "except OutcomeUnknown:\n    raise\n"
                "except CommitError:\n    self._context.content.remove(data)",
                "except CommitError:\n    self._context.content.remove(data)",
            )
        ),
        setting=_OVERTAKEN,
        caught="I4",
        story="A removes its content, and then its first request arrives: the file has no content.",
    ),
    Mutant(
        name="an outdated plan reported as a success",
        where="namespace.md#how-it-works",
        rule="a refused transaction is planned again from the current state",
        edit=Edit(("Changes.run.attempt", "forget()\nraise", "return result")),
        setting=naming({"A": [set_attributes("f", x="1")], "B": [write("f", b"2")]}, files=_F),
        caught="succeeded, but changed nothing",
        story="A has changed the file since B read it. B's change is refused, and B reports success.",
    ),
    Mutant(
        name="garbage collected at once",
        where="namespace.md#atomicity",
        rule="overwritten or deleted data is kept for `grace` seconds more",
        edit=Edit(
            ("GarbageCollector._due", "if garbage.not_before > min(now, share.until):", "if False:")
        ),
        setting=naming({"A": [read("f", slowly=3.0)], "B": [1.0, write("f", b"1"), gc()]}, files=_F),
        caught="read of A got ObjectChanged, which was never correct",
        story=(
            "A has opened the file. B overwrites it and collects garbage before A has read the content."
        ),
    ),
    Mutant(
        name="garbage forgotten before it is removed",
        where="namespace.md#invariants",
        rule="an object that was named has a record until it is removed",
        edit=Edit(
            (
                "GarbageCollector._collect",
                "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])",
                (
                    "self._remove_records(batch, done)\n"
                    "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])"
                ),
            )
        ),
        setting=naming({"A": [delete("f"), 1.0, gc()]}, files=_F, grace=0.0),
        caught="I5",
        story="If A dies now, no record has the object.",
    ),
    Mutant(
        name="a reader that accepts any content",
        where="namespace.md#atomicity",
        rule="wrong bytes are never returned",
        edit=Edit(
            (
                "Content.read",
                (
                    "if not same_etag(found.etag, data.etag):\n"
                    "    raise ObjectChanged(_replaced(data, found.etag))\n"
                    "return found.data"
                ),
                "return found.data",
            )
        ),
        setting=naming({"A": [read("f")], "B": [tamper("f", b"1")]}, files=_F),
        caught="read of A got .* which was never correct",
        story=(
            "Another program has replaced the object in the store. A returns bytes that the file "
            "never had."
        ),
    ),
    Mutant(
        name="a change logged as committed before it is made",
        where="namespace.md#how-it-works",
        rule="a change is in the log before it is sent, and decided after that",
        edit=Edit(
            (
                "Changes.apply",
                "with self.log.run(change.to_log()):\n    self._send(change, began)",
                "with self.log.run(change.to_log()):\n    pass\nself._send(change, began)",
            )
        ),
        setting=naming({"A": [write("f", b"1")]}, logged=True),
        caught="I8: .* is logged as committed, but did not happen",
        story="If A dies now, the log has a file that never existed.",
    ),
    Mutant(
        name="a change made before it is logged",
        where="namespace.md#how-it-works",
        rule="every change is in the log before it is sent",
        edit=Edit(
            (
                "Changes.apply",
                "with self.log.run(change.to_log()):\n    self._send(change, began)",
                "self._send(change, began)\nwith self.log.run(change.to_log()):\n    pass",
            )
        ),
        setting=naming({"A": [write("f", b"1")]}, logged=True),
        caught="I8: .* is in no log",
        story="If A dies now, the namespace cannot be restored from the log.",
    ),
    Mutant(
        name="a pending change decided by its record alone",
        where="namespace.md#how-it-works",
        rule=(
            "`recover` decides a pending change by its record, or, if others have changed that since, "
            "by the versions that later entries have seen"
        ),
        edit=Edit(
            (
                "_judge",
                "if change.replaced or change.written & evidence.read:\n    return Decision.COMMITTED",
                "",
            )
        ),
        setting=naming(
            {"A": [write("f", b"1")], "B": [9.0, write("f", b"2")]},
            Fault.CRASHED,
            files=_F,
            logged=True,
        ),
        caught="I8: .* is logged as rolled back, but happened",
        story=(
            "A has overwritten the file, and died before it logged the decision. B has overwritten "
            "the file since. So the record has B's change id, and A's change is considered as one "
            "that never happened."
        ),
    ),
    Mutant(
        name="a recovery that reads records after the log",
        where="namespace.md#how-it-works",
        rule="a recovery reads the records first, and then the log",
        edit=Edit(
            (
                "Recovery.recover.judge",
                "return None if found is None else _judge(found, evidence, whole=whole)",
                (
                    "late = [change for _, change in parse_changes([operation], unreadable.append)]\n"
                    "return _judge(self._traces(late[0]), evidence, whole=whole)"
                ),
            )
        ),
        setting=naming(
            {
                "A": [rename("f", "g")],
                "B": [20.5, write("f", b"1")],
                "R": [20.0, recover(older_than=9.0)],
            },
            forced=(
                Forced("A table.transact", Fault.CRASHED),
                Forced("R list log/pending/", Fault.DELAYED, 3, 2),
            ),
            files=_F,
            logged=True,
        ),
        caught="I8: .* is logged as committed, but did not happen",
        story=(
            "A has died before it sent its rename. R has read the log, but has not decided yet, when "
            "B overwrites the file. R finds that the source of A's rename is gone. It knows no other "
            "change that removed it, and takes that for A's rename."
        ),
    ),
    Mutant(
        name="a recovery that overlooks younger pending changes",
        where="namespace.md#how-it-works",
        rule="a change stays pending while another pending one may have replaced the same version",
        edit=Edit(
            (
                "Recovery._gather_evidence",
                (
                    "for _, change in parse_changes(others, unreadable.append):\n"
                    "    evidence.add_read(change.replaced)\n"
                    "    evidence.pending.update(change.replaced & evidence.versions)"
                ),
                (
                    "for _, change in parse_changes(others, unreadable.append):\n"
                    "    evidence.add_read(change.replaced)"
                ),
            )
        ),
        setting=naming(
            {
                "A": [write("f", b"1")],
                "B": [20.0, write("f", b"2")],
                "R": [20.1, recover(older_than=9.0)],
            },
            forced=(
                Forced("A table.transact", Fault.CRASHED),
                Forced("B table.transact", Fault.LOST_RESPONSE),
            ),
            files=_F,
            logged=True,
        ),
        caught="I8: .* is logged as committed, but did not happen",
        story=(
            "A has died before it could overwrite the file. B has overwritten it, and waits for the "
            "answer. So no committed change has replaced the version that A saw, and R takes A for the "
            "one that did."
        ),
    ),
)
