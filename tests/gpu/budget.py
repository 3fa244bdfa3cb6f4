"""Time budgets, and commands that are killed, with all processes that they started, when their budget is spent."""

import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass

TAIL = 4000  # characters of a command's output in the report
LOG_LINES = 60  # lines of each output of a command in the log of failures
SKIPPED = 77  # exit status of a test that does not apply
END_LIMIT = 10  # seconds to wait for a killed command; one that hangs in the driver may never end
running = set()  # running processes of run(), which several threads may call


class BudgetSpent(Exception):
    """A command was killed because its budget was spent, or was not started because nothing was left."""


class Budget:
    """A budget of `seconds` from now on, limited to the rest of the budget `within`."""

    def __init__(self, seconds, within=None):
        self.end = time.monotonic() + seconds
        if within:
            self.end = min(self.end, within.end)

    def left(self):
        return max(0.0, self.end - time.monotonic())


@dataclass
class Finished:
    command: list
    status: int  # exit status; negative: the signal that ended it
    output: str  # standard output
    errors: str  # the end of standard error
    seconds: float

    def last_output(self):
        lines = [line.strip() for line in (self.errors or self.output).splitlines() if line.strip()]
        if not lines:
            return f"it said nothing; exit status {self.status}"
        return lines[-1] + (f" (ended by {signal.Signals(-self.status).name})" if self.status < 0 else "")


def last_line(*files):
    """Returns the last line of the first non-empty file, the outputs of a killed command; "" if all are empty."""
    for file in files:
        file.seek(0)
        said = [line.strip() for line in file.read().splitlines() if line.strip()]
        if said:
            return f"; it had said: {said[-1][:200]}"
    return ""


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(END_LIMIT)
    except subprocess.TimeoutExpired:
        pass


def kill_all():
    """Kills all commands of run(), so that none outlives this program."""
    for process in list(running):
        kill_group(process)


def keep(log, command, end, files):
    """Appends the end of the output of a command to the log of failures."""
    words = [f"==== {' '.join(command)}: {end}"]
    for file in files:
        file.seek(0)
        words += file.read().splitlines()[-LOG_LINES:]
    with open(log, "a") as to:
        to.write("\n".join(words) + "\n\n")


def run(command, budget, folder, environment=None, log=None):
    """Runs a command and waits for its end. Its output goes to files in `folder`, named after it. If it fails, the end of the output is appended to `log`. The
    result is late if the command takes longer than the budget.
    """
    command = [str(word) for word in command]
    if budget.left() <= 0:
        raise BudgetSpent(f"no time was left for {pathlib.Path(command[0]).name}")
    name = f"{time.monotonic_ns()}-{pathlib.Path(command[0]).name}"
    begin = time.monotonic()
    with (
        open(folder / f"{name}.out", "w+", errors="replace") as output,
        open(folder / f"{name}.err", "w+", errors="replace") as errors,
    ):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, cwd=folder, start_new_session=True
        )
        running.add(process)
        try:
            process.wait(budget.left())
        except subprocess.TimeoutExpired:
            if log:
                keep(log, command, "killed, its time was spent", (output, errors))
            raise BudgetSpent(f"{pathlib.Path(command[0]).name} was killed after {time.monotonic() - begin:.0f} s{last_line(errors, output)}") from None
        finally:
            # Remaining processes would disturb the next measurement.
            kill_group(process)
            running.discard(process)
        if log and process.returncode not in (0, SKIPPED):
            keep(log, command, f"exit status {process.returncode}", (output, errors))
        output.seek(0)
        errors.seek(0)
        return Finished(command, process.returncode, output.read(), errors.read()[-TAIL:], time.monotonic() - begin)
