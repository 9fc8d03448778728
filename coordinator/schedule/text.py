"""A plan as CSV: one line a worker, one action a cell."""

from collections.abc import Sequence

from coordinator.schedule.actions import Instruction, PlanError, parse


def to_csv(workers: Sequence[Sequence[Instruction]]) -> str:
    """Return the lists as CSV; ``from_csv`` gives them back."""
    return "".join(",".join(map(str, instructions)) + "\n" for instructions in workers)


def from_csv(text: str) -> tuple[tuple[Instruction, ...], ...]:
    """Return the lists that ``text`` holds; what they mean is for ``check`` to judge.

    Blanks around a cell and empty cells at the end of a line are skipped, as spreadsheets leave them.

    Raises:
        PlanError: There is no line, or a line or cell is not an action; line and cell count from 1.
    """
    lines = text.splitlines()
    if not lines:
        raise PlanError("the plan is empty; write one line a worker")
    return tuple(_line(line, number) for number, line in enumerate(lines, start=1))


def _line(line: str, number: int) -> tuple[Instruction, ...]:
    """Return the list of one worker."""
    cells = [cell.strip() for cell in line.rstrip(", \t").split(",")]
    instructions = []
    for index, cell in enumerate(cells, start=1):
        try:
            instructions.append(parse(cell))
        except PlanError as error:
            raise PlanError(f"line {number}, cell {index}: {error}") from None
    return tuple(instructions)
