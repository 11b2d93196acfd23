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
        name="a new entry put whatever is there",
        where="namespace.md#how-it-works",
        rule="an entry is added on condition that there is none",
        edit=Edit(("add_entry", "put_entry(change, entry, Absent())", "put_entry(change, entry, None)")),
        setting=naming(
            {"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]}
        ),
        caught="I5",
        story="B's file takes the place of A's, whose content nothing names any more.",
    ),
    Mutant(
        name="a file overwritten whatever version it is",
        where="namespace.md#how-it-works",
        rule="conditions are on versions, which never come back, or on absence",
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
            "Both have seen the first version, and write the second one. What they replace becomes "
            "garbage twice, and what B has written is no file's, and no garbage either."
        ),
    ),
    Mutant(
        name="a file deleted whatever version it is",
        where="namespace.md#how-it-works",
        rule="conditions are on versions, which never come back, or on absence",
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
            "B has overwritten the file since A looked. A's deletion makes garbage of the content that "
            "it saw, which is garbage already; of B's it knows nothing."
        ),
    ),
    Mutant(
        name="a file renamed whatever version it is",
        where="namespace.md#how-it-works",
        rule="a rename is on condition that the entry is still that version",
        edit=Edit(
            (
                "_plan_move",
                "change.delete(moving.key, moving.unchanged())",
                'change.delete(moving.key, Equals("id", moving.id))',
            )
        ),
        setting=naming({"A": [rename("f", "g")], "B": [write("f", b"1")]}, files=_F),
        caught="I5",
        story="A gives the new name to the content that it saw, which B has made garbage of.",
    ),
    Mutant(
        name="replaced data that is no garbage",
        where="namespace.md#invariants",
        rule="what was named once is named until it is removed",
        edit=Edit(("plan_link", "if old.data is not None and old.data.path not in kept:", "if False:")),
        setting=naming({"A": [write("f", b"1")]}, files=_F),
        caught="I5",
        story="The file has other content now, and nothing tells that the old one is to be removed.",
    ),
    Mutant(
        name="own success not recognised",
        where="namespace.md#atomicity",
        rule="on tables without tokens it is recognised by a word that every record bears",
        edit=Edit(
            (
                "Changes._is_refused",
                'return reason.item is None or reason.item.get("word") != change.id',
                "return True",
            )
        ),
        setting=naming({"A": [write("f", b"1", overwrite=False)]}, Fault.REPEATED, tokens=False),
        caught="I4",
        story=(
            "Something on the way has sent A's request twice. Told that the second one was refused, A "
            "takes its own file for somebody else's, and removes the content, which nothing needs."
        ),
    ),
    Mutant(
        name="another's success taken for one's own",
        where="namespace.md#how-it-works",
        rule="a refusal that may be the work of an own request is told from others by the word",
        edit=Edit(
            (
                "Changes._is_applied",
                'return found is not None and found.get("word") == change.id',
                "return found is not None",
            )
        ),
        setting=naming(
            {"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]},
            Fault.LOST_REQUEST,
        ),
        caught="is told that it was done, and nothing happened",
        story="B's request was lost. There is a file now, so B says that it is its own; it is A's.",
    ),
    Mutant(
        name="a retry without the token",
        where="namespace.md#atomicity",
        rule="a lost answer is followed by the same transaction with the same token",
        edit=Edit(("Changes._send", "token=change.id", "token=None")),
        setting=naming(
            {"A": [write("f", b"1", overwrite=False)], "B": [1.0, delete("f")]}, Fault.DUPLICATED
        ),
        caught="the tree changed by itself",
        story="The file is deleted, and comes back when the network delivers A's request once more.",
    ),
    Mutant(
        name="a refusal after a lost answer taken for failure",
        where="namespace.md#atomicity",
        rule="`OutcomeUnknown` is left if somebody else changed the same between two attempts",
        edit=Edit(
            (
                "Changes._send",
                ('if unknown is not None:\n    raise unknown from error\nself.recorder.add("refused")'),
                'self.recorder.add("refused")',
            )
        ),
        setting=_OVERTAKEN,
        caught="was told AlreadyExists, and takes effect after that",
        story=(
            "A is told that there is a file, B's. That is gone when A's first request arrives, which "
            "makes the file that could not be made."
        ),
    ),
    Mutant(
        name="throttling after a lost answer taken for failure",
        where="namespace.md#atomicity",
        rule="nothing has happened if it raises, but for `OutcomeUnknown`",
        edit=Edit(("Changes._send", "failed = unknown or last", "failed = last or unknown")),
        setting=naming(
            {"A": [write("f", b"1")]},
            forced=(
                Forced("A table.transact", Fault.DELAYED, 1, 9),
                Forced("A table.transact", Fault.THROTTLED, 2),
                Forced("A table.transact", Fault.THROTTLED, 3),
            ),
        ),
        caught="was told Unavailable, and takes effect after that|I4",
        story="The first request is still on its way when A is told that nothing has happened.",
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
        story="A tidies up after itself, and then its first request arrives: a file without content.",
    ),
    Mutant(
        name="a stale plan taken for done",
        where="namespace.md#how-it-works",
        rule="a transaction that is refused is planned again from what is there now",
        edit=Edit(("Changes.run.attempt", "forget()\nraise", "return result")),
        setting=naming({"A": [set_attributes("f", x="1")], "B": [write("f", b"2")]}, files=_F),
        caught="is told that it was done, and nothing happened",
        story="A has changed the file since B looked at it, so B's change is refused, and forgotten.",
    ),
    Mutant(
        name="garbage collected at once",
        where="namespace.md#atomicity",
        rule="data that was overwritten or deleted is kept for `grace` seconds more",
        edit=Edit(("Collector._due", "if garbage.not_before > now:", "if False:")),
        setting=naming({"A": [read("f", slowly=3.0)], "B": [1.0, write("f", b"1"), gc()]}, files=_F),
        caught="read of A is told ObjectChanged, and it was never so",
        story="A has opened the file. B overwrites it and collects, before A has read.",
    ),
    Mutant(
        name="garbage forgotten before it is removed",
        where="namespace.md#invariants",
        rule="what was named once is named until it is removed",
        edit=Edit(
            (
                "Collector._collect",
                "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])",
                (
                    "self._remove_records(batch, done)\n"
                    "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])"
                ),
            )
        ),
        setting=naming({"A": [delete("f"), 1.0, gc()]}, files=_F, grace=0.0),
        caught="I5",
        story="Should A die now, nobody would know of the object.",
    ),
    Mutant(
        name="a reader that takes any content",
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
        caught="read of A is told .* and it was never so",
        story="Somebody has replaced the object in the store, and A returns what the file never had.",
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
        caught="I8: .* is logged as committed, and was not done",
        story="Should A die now, the log would tell of a file that there never was.",
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
        story="Should A die now, the names could not be made again from the log.",
    ),
    Mutant(
        name="a pending change decided by its record alone",
        where="namespace.md#how-it-works",
        rule=(
            "`recover` decides what is pending by the record that tells, or, when others have changed "
            "that since, by the versions that later entries have seen"
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
        caught="I8: .* is logged as rolled back, and was done",
        story=(
            "A has overwritten the file, and died before it could say so in the log. B has overwritten "
            "it since, so the record bears B's word, and A's change is taken for one that never was."
        ),
    ),
    Mutant(
        name="a recovery that looks at records after the log",
        where="namespace.md#how-it-works",
        rule="it reads the records first, and the log after them",
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
        caught="I8: .* is logged as committed, and was not done",
        story=(
            "A has died before it sent its rename. R has read the log, and not yet decided, when B "
            "overwrites the file. R finds what A would have moved gone, knows of nobody else who did "
            "that, and takes it for A's doing."
        ),
    ),
)
