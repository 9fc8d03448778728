"""What a schedule gains on this machine: step times against 1f1b's, beside what the plans promise.

    python -m benchmarks.schedules --rounds 5

Every schedule trains the same model on the same rows with the same workers, one torch thread each, from a local
list of commands. In each round every schedule runs once, and each round begins with another one, so that a machine
that gets slower favours none. A ratio is a schedule's median step over 1f1b's in the same round.

Two promises stand beside the measurement: of unit costs (a forward costs 1, each half of a backward 1), and of
the costs that zbh1 measured. Neither knows of transfers and the optimizer's step, and in both all stages are alike,
while the embeddings and the head make the first and the last somewhat larger.
"""

import argparse
import statistics
import sys
from collections import Counter
from dataclasses import replace

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_pool import CaseResult, LocalPool
from coordinator.schedule.actions import Op
from coordinator.schedule.simulate import Costs, simulate

BASE = "1f1b"
NUM_CHUNKS = {BASE: 1, "zbh1": 1, "zbv": 2, "interleaved": 2}
"""Schedules that are compared, and the chunks of each on a worker."""
WARM_UP_STEPS = 3
"""Steps at the start of every run that are left out of its step time."""
_LIMIT_SECONDS = 600.0


def cases(chosen: argparse.Namespace) -> dict[str, LocalCase]:
    """Return the case of each schedule: one model, the same rows."""
    base = LocalCase(
        model={
            "model_type": "bert",
            "num_hidden_layers": chosen.layers,
            "hidden_size": chosen.hidden_size,
            "num_attention_heads": max(1, chosen.hidden_size // 64),
            "intermediate_size": 4 * chosen.hidden_size,
            "max_position_embeddings": chosen.width,
        },
        pp=chosen.pp,
        num_microbatches=chosen.microbatches,
        steps=(LocalStep((chosen.width,) * (chosen.rows * chosen.microbatches)),) * (chosen.steps + WARM_UP_STEPS),
        words=96,
    )
    return {name: replace(base, schedule=name, num_chunks=chunks) for name, chunks in NUM_CHUNKS.items()}


def step_seconds(result: CaseResult) -> float:
    """Return the median step of one run, as its first worker saw it."""
    seconds: list[float] = result.workers[0]["seconds"]
    return statistics.median(seconds[WARM_UP_STEPS:])


def measured_costs(case: LocalCase, results: list[CaseResult]) -> Costs:
    """Return the mean seconds of one forward and of the two halves of one backward, from runs of one chunk a worker."""
    counts = Counter(action.op for order in case.train_plan().orders for action in order)

    def mean(op: Op) -> float:
        activities: list[dict[str, float]] = [w["activities"] for result in results for w in result.workers]
        seconds = sum(by_name[op.name] for by_name in activities)
        return seconds / (counts[op] * len(case.steps) * len(results))

    return Costs(
        forward=mean(Op.FORWARD),
        input_gradient=mean(Op.INPUT_GRADIENT),
        weight_gradient=mean(Op.WEIGHT_GRADIENT),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of each run, beside those that warm up")
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--rows", type=int, default=4, help="of one microbatch")
    parser.add_argument("--width", type=int, default=64, help="tokens of every row")
    chosen = parser.parse_args(arguments)
    by_name = cases(chosen)
    names = list(by_name)
    results: dict[str, list[CaseResult]] = {name: [] for name in names}
    with LocalPool(chosen.pp) as pool:
        short = replace(by_name[BASE], steps=by_name[BASE].steps[:1])
        pool.run(short, limit_seconds=_LIMIT_SECONDS)  # the first run of a pool imports
        for number in range(chosen.rounds):
            turn = number % len(names)
            for name in (*names[turn:], *names[:turn]):
                results[name].append(pool.run(by_name[name], limit_seconds=_LIMIT_SECONDS))
                print(f"round {number}: {name:12} {step_seconds(results[name][-1]) * 1e3:8.1f} ms", file=sys.stderr)
    costs = measured_costs(by_name["zbh1"], results["zbh1"])
    print(
        f"forward {costs.forward * 1e3:.2f} ms, input gradient {costs.input_gradient * 1e3:.2f} ms, "
        f"weight gradient {costs.weight_gradient * 1e3:.2f} ms a microbatch and full stage"
    )
    print(
        f"{'schedule':12} {'step':>10} {'over 1f1b':>10} {'from':>7} {'to':>7} {'plan':>7} {'plan, measured costs':>21}"
    )
    for name in names:
        pairs = zip(results[name], results[BASE], strict=True)
        ratios = [step_seconds(result) / step_seconds(base) for result, base in pairs]
        plan, base_plan = by_name[name].train_plan(), by_name[BASE].train_plan()
        promised = simulate(plan).makespan / simulate(base_plan).makespan
        refined = simulate(plan, costs).makespan / simulate(base_plan, costs).makespan
        seconds = statistics.median(step_seconds(result) for result in results[name])
        print(
            f"{name:12} {seconds * 1e3:7.1f} ms {statistics.median(ratios):10.3f} "
            f"{min(ratios):7.3f} {max(ratios):7.3f} {promised:7.3f} {refined:21.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
