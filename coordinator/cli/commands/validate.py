"""takt validate"""

from typing import Any

from coordinator.cli.compare_view import choice_text, compare_record, step_text
from coordinator.cli.console import print_json, print_line
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import JobFile, Output, OutputFormat, Settings
from coordinator.cli.plan_view import plan_title
from coordinator.cli.preflight import check_job
from coordinator.facts import Split
from coordinator.partition import StageSlice
from coordinator.planning import JobPlan
from coordinator.pricing import Basis
from coordinator.problem import Problem, SpecError


def command(*, job_file: JobFile, settings: Settings = None, output: Output = OutputFormat.TABLE) -> ExitCode:
    """Make every check that submit makes, and start nothing.

    Prints what the job would do, or everything that is wrong with it (exit code 2). With --output json a
    wrong job is {"valid": false, "problems": [{"key", "message", "where"}]}.
    """
    try:
        plan = check_job(job_file, settings or [])
    except SpecError as error:
        if output is OutputFormat.JSON:
            print_json({"valid": False, "problems": [_problem(each) for each in error.problems]})
        raise
    if output is OutputFormat.JSON:
        print_json({"valid": True, **_record(plan)})
    else:
        for line in _lines(plan):
            print_line(line)
    return ExitCode.SUCCESS


def _problem(problem: Problem) -> dict[str, str]:
    message = "\n".join(filter(None, (problem.message, problem.figure)))
    return {"key": problem.key, "message": message, "where": problem.where}


def _record(plan: JobPlan) -> dict[str, Any]:
    return {
        "name": plan.spec.name,
        "task": str(plan.spec.data.task),
        "model_type": plan.model.model_type,
        "num_workers": plan.topology.num_workers,
        "stages": [
            {
                "stage": piece.stage,
                "first_layer": piece.first_layer,
                "num_layers": piece.num_layers,
                "pp_rank": plan.train.placement.worker_of(piece.stage),
            }
            for piece in plan.partition
        ],
        "schedule": plan.train.schedule,
        "num_chunks": plan.train.placement.num_chunks,
        "num_microbatches": plan.train.num_microbatches,
        "steps_per_epoch": plan.data.steps_per_epoch,
        "total_steps": plan.total_steps,
        "rows": {split.name: split.num_rows for split in plan.data.splits},
        "malformed_lines": {split.name: split.num_malformed for split in plan.data.splits},
        "labels": list(plan.data.labels),
        "bubble_fraction": plan.prediction.bubble_fraction,
        **({} if plan.choice is None else {"choice": compare_record(plan.choice, plan.spec)}),
    }


def _lines(plan: JobPlan) -> list[str]:
    spec = plan.spec
    layers = "; ".join(f"stage {piece.stage}: {_layers(piece)}" for piece in plan.partition)
    rows = [
        ("job", f"{spec.name} can run"),
        ("data", f"{spec.data.task}: {', '.join(map(_rows, plan.data.splits))} rows"),
        ("model", f"{plan.model.model_type}, {plan.model.num_layers} layers, {_head(plan)}"),
        ("layers", layers),
        ("workers", f"{plan.topology.num_workers} (pp {spec.parallel.pp} x dp {spec.parallel.dp})"),
        ("steps", f"{plan.total_steps} of {spec.train.global_batch_size} rows ({plan.data.steps_per_epoch} an epoch)"),
        ("schedule", plan_title(plan.train, plan.recompute)),
        *([] if plan.choice is None else [("chosen", choice_text(plan.choice))]),
        *([] if plan.basis is Basis.UNITS else [("step", step_text(plan.prediction.makespan, plan.basis))]),
        ("bubble", f"{plan.prediction.bubble_fraction:.1%} of a step at best"),
    ]
    return [f"{name:<10}{text}" for name, text in rows]


def _rows(split: Split) -> str:
    left_out = f" (lines left out: {split.num_malformed})" if split.num_malformed else ""
    return f"{split.num_rows} {split.name}{left_out}"


def _head(plan: JobPlan) -> str:
    objective = plan.spec.train.objective
    return f"{objective} head" if objective.is_token_level else f"{plan.data.num_labels} outputs"


def _layers(piece: StageSlice) -> str:
    first, last = piece.first_layer, piece.first_layer + piece.num_layers - 1
    return f"layer {first}" if first == last else f"layers {first}-{last}"
