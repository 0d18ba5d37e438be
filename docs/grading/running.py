"""Runs a hand-in whose cells may end their kernel, or not end themselves.

The cell that did has failed. A new kernel runs the answers above it once more, and goes
on below.
"""

import copy
from queue import Empty
from time import monotonic

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbclient.util import ensure_async, run_sync
from nbformat.v4 import new_output

from .cells import marks, name_of

# What the last output of a cell says that has not come to its end.
ENDED = "the kernel ended here"
TOO_LONG = "it takes too long"


class Survivor:
    """Before a class that is a NotebookClient: cells run, whatever becomes of a kernel.

    `begin` comes first, then `run_cell` for each cell. `say(words)` is the class's own.
    It must allow errors, and at a cell's limit interrupt the kernel and go on.
    """

    # What isn't interrupted in this time is ended, seconds.
    patience = 30

    def begin(self) -> None:
        self.ended = []  # the cells that have ended a kernel

    def run_cell(self, cell, index: int) -> None:
        """Runs a cell, and where its kernel is lost, begins another one."""
        lost = self.lost(cell, index)
        if lost:
            self.has_ended(cell, index, lost)
            self.begin_anew(index)
        else:
            self.say_how_it_stops(cell, index)

    def lost(self, cell, index: int) -> str:
        """Runs a cell. Returns why its kernel can't be used any more, or nothing."""
        self.exits = self.late = False
        began = monotonic()
        try:
            self.execute_cell(cell, index, store_history=True)
        except DeadKernelError:
            return ENDED
        except CellTimeoutError:
            return TOO_LONG
        if cell.cell_type != "code" or not cell.source.strip():
            return ""
        self.late = bool(self.timeout) and monotonic() - began >= self.timeout
        if self.exits:
            return ENDED
        if run_sync(self.answers)():
            return ""
        return TOO_LONG if self.late else ENDED

    def on_cell_executed(self, **kwargs) -> None:
        super().on_cell_executed(**kwargs)
        # After `exit()` a kernel ends the cell, and then itself.
        payload = kwargs["execute_reply"]["content"].get("payload", [])
        self.exits = any(x.get("source") == "ask_exit" for x in payload)

    async def answers(self) -> bool:
        """Whether the kernel does, within `patience`."""
        question = await ensure_async(self.kc.kernel_info())
        for _ in range(self.patience):
            try:
                reply = await ensure_async(self.kc.get_shell_msg(timeout=1))
            except Empty:
                if not await ensure_async(self.kc.is_alive()):
                    return False
            else:
                if reply["parent_header"].get("msg_id") == question:
                    return True
        return False

    def has_ended(self, cell, index: int, why: str) -> None:
        self.ended.append(cell)
        fail(cell, why)
        if why == TOO_LONG:
            self.say(f"{self.named(index)} takes too long")
        else:
            self.say(f"the kernel ended in {self.named(index)}")

    def begin_anew(self, index: int) -> None:
        """Starts a new kernel, in which what stands above runs, but for the checks."""
        while not self.run_above(index):
            pass

    def run_above(self, index: int) -> bool:
        """Starts a new kernel for the cells above; False where it ends in one."""
        self._cleanup_kernel()
        self.km = self.create_kernel_manager()
        self.start_new_kernel()
        self.start_new_kernel_client()
        for i, cell in enumerate(self.nb.cells[:index]):
            if marks(cell).get("grade") or any(cell is x for x in self.ended):
                continue
            lost = self.lost(copy.deepcopy(cell), i)
            self.nb.cells[i] = cell
            if lost:
                self.has_ended(cell, i, lost)
                return False
        return True

    def named(self, index: int) -> str:
        """A cell by its name, a student's own by the one above it."""
        above = [name_of(cell) for cell in self.nb.cells[: index + 1]]
        if above[-1]:
            return above[-1]
        last = next((name for name in reversed(above) if name), "the top")
        return f"a cell of their own below {last}"

    def say_how_it_stops(self, cell, index: int) -> None:
        """Names a cell that stops; a check that does says so to the student."""
        errors = [x for x in cell.get("outputs", []) if x.output_type == "error"]
        if self.late:
            fail(cell, TOO_LONG)
            self.say(f"{self.named(index)} takes too long")
        elif errors and not marks(cell).get("grade"):
            words = f"{errors[0].ename}: {errors[0].evalue}".splitlines()[0][:120]
            self.say(f"{self.named(index)} stops with {words}")


def fail(cell, why: str) -> None:
    """Gives a cell its last output, an error that says why it didn't come to its end.

    What nbgrader says of a limit goes: it has no words.
    """
    outputs = cell.get("outputs", [])
    cell.outputs = [x for x in outputs if x.get("ename") != "CellTimeoutError"]
    error = new_output("error", ename="NotEnded", evalue=why, traceback=[why])
    cell.outputs.append(error)
