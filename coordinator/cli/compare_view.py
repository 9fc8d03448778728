"""Layouts of a job beside each other, as a JSON record and as text."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from coordinator.byte_size import shown
from coordinator.candidates import Candidate, settings
from coordinator.choice import Comparison, Ranked
from coordinator.cli.console import print_json, print_line, stdout
from coordinator.cli.options import OutputFormat
from coordinator.cli.tables import plain_table
from coordinator.pricing import Basis
from coordinator.spec import JobSpec

_MAX_ROWS = 12
"""Best layouts that the table shows; the job's own is shown in any case."""
_MAX_LEFT_OUT = 8
"""Layouts without a prediction that are named one by one."""

_BASES = {
    Basis.PROFILE: "seconds, by measured costs",
    Basis.ESTIMATE: "by costs that the model's config lets expect: compare them, but do not take them for seconds",
    Basis.UNITS: "in forwards of one full stage, a backward takes 2: what an action or a transfer costs by itself is "
    "not seen, so more chunks and microbatches look better than they are",
}


def show_comparison(comparison: Comparison, spec: JobSpec | None, *, output: OutputFormat) -> None:
    """Print a comparison; ``spec`` is that of the job, if there is one."""
    if output is OutputFormat.JSON:
        print_json(compare_record(comparison, spec))
        return
    console = stdout()
    with console.capture() as table:
        console.print(compare_table(comparison, spec))
    for line in table.get().splitlines():
        print_line(line.rstrip())
    print_line("")
    for note in compare_notes(comparison):
        print_line(note)


def compare_record(comparison: Comparison, spec: JobSpec | None) -> dict[str, Any]:
    """Return what `takt plan --compare --output json` prints; ``spec`` is that of the job, if there is one."""
    own = comparison.own
    return {
        "basis": comparison.basis,
        "candidates": [
            {
                "rank": rank,
                **_shape(each.candidate),
                "step": each.step,
                "against_own": None if own is None else each.step / own.step - 1,
                "bubble_fraction": each.bubble_fraction,
                "peak_in_flight": each.peak_in_flight,
                "memory_bytes": each.memory_bytes,
                "fits": each.fits,
                "num_commands": each.num_commands,
                "is_own": each.is_own,
                "options": _options(each.candidate, spec),
            }
            for rank, each in enumerate(comparison.ranked, start=1)
        ],
        "left_out": [{**_shape(each.candidate), "reason": each.reason} for each in comparison.left_out],
    }


def compare_table(comparison: Comparison, spec: JobSpec | None) -> Table:
    """Return the table of a comparison, the best layout first."""
    table = plain_table(
        "RANK", "SCHEDULE", "CHUNKS", "MICROBATCHES", "LAYERS", "STEP", "AGAINST", "BUBBLE", "HELD", "MEMORY"
    )
    table.add_column("SELECTED BY", overflow="fold")
    base = comparison.own or comparison.best
    for rank, each in enumerate(comparison.ranked, start=1):
        if rank > _MAX_ROWS and not each.is_own:
            continue
        options = _options(each.candidate, spec)
        table.add_row(
            str(rank),
            each.candidate.schedule,
            str(each.candidate.num_chunks),
            str(each.candidate.num_microbatches),
            each.candidate.partition,
            step_text(each.step, comparison.basis),
            _against(each.step, base.step),
            f"{each.bubble_fraction:.1%}",
            f"{each.peak_in_flight:g}",
            _memory(each),
            Text("what the job says" if each.is_own else " ".join(options) or "-", style="bold" if each.is_own else ""),
        )
    return table


def compare_notes(comparison: Comparison) -> list[str]:
    """Return what a reader of the table should know."""
    base = "the job's own" if comparison.own is not None else "the best one"
    notes = [
        f"STEP: {_BASES[comparison.basis]}; AGAINST {base}; HELD: most activations at once, in full stages of the "
        "row's own microbatches; MEMORY: of the fullest worker, what training keeps"
    ]
    slower = sum(not each.is_own for each in comparison.ranked[_MAX_ROWS:])
    if slower:
        notes.append(f"not shown: {slower} slower ones; --output json has them")
    for each in comparison.left_out[:_MAX_LEFT_OUT]:
        notes.append(f"left out: {_name(each.candidate)}: {each.reason}")
    more = len(comparison.left_out) - _MAX_LEFT_OUT
    if more > 0:
        notes.append(f"left out: {more} more")
    return notes


def choice_text(comparison: Comparison) -> str:
    """Return in one line what was chosen and why."""
    best, rest = comparison.best, _others(comparison.ranked)
    others = ", ".join(f"{each.candidate.schedule} {_against(each.step, best.step)}" for each in rest)
    step = "" if comparison.basis is Basis.ESTIMATE else f" of {step_text(best.step, comparison.basis)}"
    how = {Basis.PROFILE: "measured costs", Basis.ESTIMATE: "estimated costs", Basis.UNITS: "equal stages"}
    fits = " that fits" if best.fits else ""
    over = f"; {others}" if others else ""
    return f"{_name(best.candidate)}, the shortest step{fits}{step} by {how[comparison.basis]}{over}"


def step_text(step: float, basis: Basis) -> str:
    """Return what a step takes, with its unit where it has one."""
    if basis is Basis.UNITS:
        return f"{step:g}"
    return f"{step * 1000:.4g} ms" if step < 1 else f"{step:.4g} s"


def _memory(each: Ranked) -> str:
    if each.memory_bytes is None:
        return "-"
    return f"{shown(each.memory_bytes)}, too much" if each.fits is False else shown(each.memory_bytes)


def _against(step: float, base: float) -> str:
    return f"{round(step / base - 1, 3) + 0.0:+.1%}"  # no minus before a zero


def _others(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the best one of each other schedule, at most three."""
    first: dict[str, Ranked] = {}
    for each in ranked:
        first.setdefault(each.candidate.schedule, each)
    return list(first.values())[1:4]


def _name(candidate: Candidate) -> str:
    chunks = f" x {candidate.num_chunks} chunks" if candidate.num_chunks > 1 else ""
    partition = "" if candidate.partition == "even" else f", {candidate.partition} layers"
    return f"{candidate.schedule}{chunks}, {candidate.num_microbatches} microbatches{partition}"


def _shape(candidate: Candidate) -> dict[str, Any]:
    return {
        "schedule": candidate.schedule,
        "num_chunks": candidate.num_chunks,
        "num_microbatches": candidate.num_microbatches,
        "partition": candidate.partition,
    }


def _options(candidate: Candidate, spec: JobSpec | None) -> list[str]:
    """Return what has to be written on the command line for ``candidate``."""
    if spec is not None:
        return [f"--set {each}" for each in settings(spec, candidate)]
    return [
        f"--schedule {candidate.schedule}",
        f"--chunks {candidate.num_chunks}",
        f"--microbatches {candidate.num_microbatches}",
    ]
