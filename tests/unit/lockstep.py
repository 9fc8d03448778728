"""Judges worker lists by their text alone, one instruction after the other; knows nothing of the checker."""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

Texts = Sequence[Sequence[str]]


def is_sound(
    texts: Texts, *, worker_by_stage: Sequence[int], num_microbatches: int, bounds: Sequence[int] | None
) -> bool:
    """Say whether ``texts`` is a plan of a training step with these stages and bounds, in every respect."""
    workers = range(max(worker_by_stage) + 1)
    return (
        len(texts) == len(workers)
        and all(is_covered(texts[w], w, worker_by_stage, num_microbatches) for w in workers)
        and all(ascends(texts[w], ops) for w in workers for ops in ("BI", "BW"))
        and (bounds is None or all(most_held(texts[w]) <= bounds[w] for w in workers))
        and runs_through(texts, worker_by_stage)
    )


@functools.cache
def split(text: str) -> tuple[int, str, int]:
    """Return stage, op and microbatch."""
    match = re.fullmatch(r"(\d+)([A-Z_]+)(\d+)", text)
    assert match, text
    return int(match[1]), match[2], int(match[3])


def is_covered(worker: Sequence[str], number: int, worker_by_stage: Sequence[int], num_microbatches: int) -> bool:
    """Say whether a list holds what its stages need, each thing once, and nothing else."""
    wanted, present = ["REDUCE", "STEP"], set(worker)
    for stage, owner in enumerate(worker_by_stage):
        if owner != number:
            continue
        ops = ["F"]
        if stage > 0 and worker_by_stage[stage - 1] != number:
            ops += ["RECV_F", "SEND_B"]
        if stage + 1 < len(worker_by_stage) and worker_by_stage[stage + 1] != number:
            ops += ["SEND_F", "RECV_B"]
        for m in range(num_microbatches):
            halves = [f"{stage}I{m}", f"{stage}W{m}"] if f"{stage}I{m}" in present else [f"{stage}B{m}"]
            wanted += [f"{stage}{op}{m}" for op in ops] + halves
    return Counter(worker) == Counter(wanted) and list(worker[-2:]) == ["REDUCE", "STEP"]


def ascends(worker: Sequence[str], ops: str) -> bool:
    """Say whether each stage runs ``ops``, letters, from microbatch 0 up."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    for stage, op, microbatch in map(split, worker[:-2]):
        if op in ops:
            seen[stage].append(microbatch)
    return all(microbatches == sorted(microbatches) for microbatches in seen.values())


def most_held(worker: Sequence[str]) -> int:
    """Return the most chunk activations between an F and its B or W."""
    held, most = 0, 0
    for _, op, _ in map(split, worker[:-2]):
        held += (op == "F") - (op in "BW")
        most = max(most, held)
    return most


def runs_through(texts: Texts, worker_by_stage: Sequence[int]) -> bool:
    """Say whether the lists end, on channels that bring the n-th send to the n-th receive once both are called.

    A worker stops in front of what it cannot do; a send is called and left, a receive too.
    """
    at = [0] * len(texts)
    done: set[str] = set()
    calls: defaultdict[tuple[str, int, int, str], list[str]] = defaultdict(list)
    moved = True
    while moved:
        moved = False
        for number, worker in enumerate(texts):
            while at[number] < len(worker) and may_go(worker[at[number]], number, done, worker_by_stage):
                text = worker[at[number]]
                at[number] += 1
                moved = True
                if "_" not in text:
                    done.add(text)
                    continue
                stage, op, _ = split(text)
                call, letter = op.split("_")
                other = worker_by_stage[stage + (1 if op in ("SEND_F", "RECV_B") else -1)]
                sender, receiver = (number, other) if call == "SEND" else (other, number)
                calls[call, sender, receiver, letter].append(text)
                n = len(calls[call, sender, receiver, letter]) - 1
                sends, receives = (calls[end, sender, receiver, letter] for end in ("SEND", "RECV"))
                if n < min(len(sends), len(receives)):
                    if receives[n] != received_as(sends[n]):
                        return False
                    done.add(receives[n])
    return all(at[number] == len(worker) for number, worker in enumerate(texts))


def received_as(send: str) -> str:
    """Return the receive of a send."""
    stage, op, microbatch = split(send)
    return f"{stage + 1}RECV_F{microbatch}" if op == "SEND_F" else f"{stage - 1}RECV_B{microbatch}"


def may_go(text: str, number: int, done: set[str], worker_by_stage: Sequence[int]) -> bool:
    """Say whether a worker has all that an instruction uses."""
    if text in ("REDUCE", "STEP"):
        return True
    stage, op, m = split(text)

    def given_by(source: int, letter: str) -> set[str]:
        """Return what may have brought the result of stage ``source`` here: one of these."""
        if worker_by_stage[source] != number:
            return {f"{stage}RECV_{letter}{m}"}
        return {f"{source}F{m}"} if letter == "F" else {f"{source}B{m}", f"{source}I{m}"}

    needs: list[set[str]] = []
    if op == "F" and stage > 0:
        needs.append(given_by(stage - 1, "F"))
    if op in ("B", "I", "SEND_F"):
        needs.append({f"{stage}F{m}"})
    if op in ("B", "I") and stage + 1 < len(worker_by_stage):
        needs.append(given_by(stage + 1, "B"))
    if op == "W":
        needs.append({f"{stage}I{m}"})
    if op == "SEND_B":
        needs.append({f"{stage}B{m}", f"{stage}I{m}"})
    return all(done & any_of for any_of in needs)
