"""The command that ``commitlog lock`` runs: a job of the terminal, as that of a shell.

A module of its own, because it knows processes, signals and terminals, and nothing of locks.

The command has a process group of its own, so that signals reach the command and its descendants alone.
But the shell knows the group of ``commitlog`` only. So this module does for the command what the kernel
does within one group:

* The command gets the terminal when it first asks for it (the kernel stops it with SIGTTIN or SIGTTOU),
  if the group of ``commitlog`` has it. A pager in the pipeline keeps it until then.
* If the group of ``commitlog`` is stopped, as by Ctrl-Z, the command is stopped before, by SIGSTOP,
  which it cannot ignore. If the command is stopped while it has the terminal, the group of
  ``commitlog`` is stopped, too.
* When ``commitlog`` goes on, the command goes on if it still may. Otherwise it is killed as it stands.
* Signals that end a program are passed on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from commitlog._util.fork import WorkLock

__all__ = ["ProcessGroup"]

#: The signals that are passed on. At the second one, unless it is SIGHUP, the command is killed.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

#: The signals by which a terminal stops a group.
_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class ProcessGroup:
    """A command in a process group of its own. `end` may be called from another thread at any time.

    Args:
        may_run: whether the command may go on after it was stopped with this process.
    """

    def __init__(self, may_run: Callable[[], bool]) -> None:
        self._may_run = may_run
        self._mutex = WorkLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._refused: Exception | None = None
        self._ended = threading.Event()
        self._terminal = _Terminal()
        self._stopped = False
        self._signals: deque[int] = deque()
        self._passed_on = 0
        self._woken: int | None = None

    def run(self, command: tuple[str, ...], environment: Mapping[str, str]) -> int:
        """Run the command to its end; return its exit status, 128 + N if signal N ended it.

        Raises:
            OSError: the command could not be run.
            Exception: that of an earlier `end`.
            KeyboardInterrupt: a signal was passed on, or Ctrl-C ended the command. It has ended.
        """
        with self._handlers():
            with self._mutex:
                if self._refused is not None:
                    raise self._refused
                self._process = subprocess.Popen(command, env=environment, process_group=0)
            self._handle_signals()  # that came before the process was known here
            try:
                status = self._wait()
            finally:
                had_terminal = self._terminal.take_back()
        if status == -signal.SIGINT and had_terminal:
            os.kill(0, signal.SIGINT)  # the kernel sent Ctrl-C to the group of the command only
        if self._passed_on:
            raise KeyboardInterrupt
        return 128 - status if status < 0 else status

    def end(self, why: Exception, grace: float) -> None:
        """End the command: SIGTERM, and SIGKILL after `grace` seconds; or never begin it.

        A command that is stopped with this process is killed at once.
        """
        with self._mutex:
            self._refused = why
        if not self._stopped:
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)
            if self._process is not None:
                self._ended.wait(grace)
        self._send(signal.SIGKILL)

    def _wait(self) -> int:
        """Wait for the end of the command; return its status, negative for a signal."""
        assert self._process is not None
        while True:
            how = os.WUNTRACED | (0 if self._woken is None else os.WNOHANG)
            process, status = os.waitpid(self._process.pid, how)
            if not process:
                assert self._woken is not None
                select.select([self._woken], [], [])
                os.read(self._woken, 4096)
                continue
            if os.WIFSTOPPED(status):
                self._stopped_by(os.WSTOPSIG(status))
                continue
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._ended.set()
            return self._process.returncode

    def _stopped_by(self, number: int) -> None:
        """Give the command the terminal, or stop this group; else leave it to whoever stopped it."""
        assert self._process is not None
        asks = number in (signal.SIGTTIN, signal.SIGTTOU)
        if asks and self._terminal.give(self._process.pid):
            self._send(signal.SIGCONT)
        elif self._terminal.take_back() or asks:
            self._stop(number if number in _STOPS else signal.SIGTSTP, of_group=True)

    def _stop(self, number: int, *, of_group: bool) -> None:
        """Stop the command, then this process or its group; when it goes on, let the command go on."""
        self._stopped = True
        self._send(signal.SIGSTOP)
        went_on: list[int] = []
        before = {
            number: signal.signal(number, signal.SIG_DFL),
            signal.SIGCONT: signal.signal(signal.SIGCONT, lambda number, frame: went_on.append(number)),
        }
        try:
            os.kill(0 if of_group else os.getpid(), number)  # returns when this process goes on
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            if not self._may_run():
                self._send(signal.SIGKILL)
            elif number != signal.SIGTSTP and not went_on and not self._terminal.is_mine():
                # No shell can bring this group to the foreground, so the kernel did not stop it. It
                # ends what waits for the terminal there.
                self._send(signal.SIGHUP)
            self._stopped = False
            self._send(signal.SIGCONT)

    @contextlib.contextmanager
    def _handlers(self) -> Iterator[None]:
        """Handle signals in the block. One that is ignored, as under nohup(1), stays ignored.

        Each writes a byte to a pipe. So none is missed that comes just before the wait for the command,
        which would begin without a call of its handler.
        """
        if threading.current_thread() is not threading.main_thread():  # only there are signals handled
            yield
            return
        self._woken, written = os.pipe()
        for end in (self._woken, written):
            os.set_blocking(end, False)
        wakeup = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        before = {signal.SIGCHLD: signal.signal(signal.SIGCHLD, lambda number, frame: None)}
        for number in (*_PASSED_ON, *_STOPS):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            os.close(self._woken)
            os.close(written)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals.append(number)
        if self._process is not None:
            self._handle_signals()

    def _handle_signals(self) -> None:
        while self._signals:
            number = self._signals.popleft()
            if number in _STOPS:
                self._stop(number, of_group=False)  # the others got the signal themselves
                continue
            self._passed_on += 1
            again = self._passed_on > 1 and number != signal.SIGHUP
            self._send(signal.SIGKILL if again else number)

    def _send(self, number: int) -> None:
        """Send a signal to the process group of the command, of which descendants may be left."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


class _Terminal:
    """The controlling terminal, if there is one, as far as its foreground group goes."""

    def __init__(self) -> None:
        self._lent_to: int | None = None
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)

    def is_mine(self) -> bool:
        """Return whether this process group is in the foreground."""
        return self._foreground() == os.getpgrp()

    def give(self, group: int) -> bool:
        """Put a group into the foreground if this one is there; return whether it was done."""
        if self._file is None or not self.is_mine():
            return False
        try:
            os.tcsetpgrp(self._file, group)
        except OSError:
            return False
        self._lent_to = group
        return True

    def take_back(self) -> bool:
        """Put this group into the foreground again, if it gave the terminal; return whether it did."""
        group, self._lent_to = self._lent_to, None
        if group is None or self._file is None:
            return False
        if self._foreground() == group:  # or the shell has taken it meanwhile
            # The kernel stops a group in the background that does this, unless it blocks the signal.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._file, os.getpgrp())
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return True

    def _foreground(self) -> int | None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                return os.tcgetpgrp(self._file)
        return None
