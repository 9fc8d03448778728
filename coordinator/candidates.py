"""The layouts that a job could have instead of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coordinator.choices import PartitionMethod, ScheduleName
from coordinator.rules import microbatches_of
from coordinator.schedule.limits import Schedule, SizeError, check_size
from coordinator.spec import JobSpec

MAX_CHUNKS = 8
"""Most chunks a worker that are tried."""

_PREFERENCE = (
    Schedule.ONE_F_ONE_B,
    Schedule.GPIPE,
    Schedule.NAIVE,
    Schedule.INTERLEAVED,
    Schedule.LOOPED_BFS,
    Schedule.ZBH1,
    Schedule.ZBH2,
    Schedule.ZBV,
    Schedule.DUALPIPEV,
)
"""Of two that take as long the first is taken: whole backwards before halves, of these the one that holds less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What may differ from one layout of a job to another."""

    schedule: str
    """A schedule by name; custom where it is the job's own."""
    num_chunks: int
    num_microbatches: int
    """Of one slice of one replica."""
    partition: str = PartitionMethod.EVEN
    """How layers are shared out, or ``given``."""

    @property
    def preference(self) -> tuple[int, int]:
        """What decides between two that take as long, the lower one wins."""
        simple = _PREFERENCE.index(Schedule(self.schedule)) if self.schedule in list(Schedule) else len(_PREFERENCE)
        return simple, self.num_chunks


GIVEN = "given"
"""Name of the partition that parallel.layers_per_stage says."""


def shapes(
    *, num_workers: int, chunks: Sequence[int], microbatches: Sequence[int], partitions: Sequence[str]
) -> Iterator[Candidate]:
    """Yield every schedule of every size that it runs, among these counts."""
    for num_microbatches in microbatches:
        for partition in partitions:
            for schedule in _PREFERENCE:
                for num_chunks in chunks:
                    if schedule is Schedule.LOOPED_BFS and num_chunks == 1:
                        continue  # is gpipe
                    try:
                        check_size(
                            schedule,
                            num_workers=num_workers,
                            num_chunks=num_chunks,
                            num_microbatches=num_microbatches,
                        )
                    except SizeError:
                        continue
                    yield Candidate(
                        schedule=schedule,
                        num_chunks=num_chunks,
                        num_microbatches=num_microbatches,
                        partition=partition,
                    )


def own_candidate(spec: JobSpec) -> Candidate:
    """Return what ``spec`` says itself."""
    return Candidate(
        schedule=spec.schedule.name,
        num_chunks=spec.schedule.num_chunks,
        num_microbatches=microbatches_of(spec),
        partition=_partition_of(spec),
    )


def candidates_of(spec: JobSpec, *, num_layers: int, widely: bool, can_balance: bool = True) -> list[Candidate]:
    """Return the layouts that ``spec`` could have, its own left out unless it is one of them.

    Args:
        spec: of the job, whose schedule may be ``auto``.
        num_layers: of its model.
        widely: whether the number of microbatches and the partition may change too, not only schedule and chunks.
        can_balance: whether it is known what layers cost.
    """
    pp, own = spec.parallel.pp, own_candidate(spec)
    chunks = range(1, min(MAX_CHUNKS, num_layers // pp) + 1)
    for per_stage in (spec.parallel.layers_per_stage, spec.train.recompute):
        if isinstance(per_stage, tuple):  # says one number a stage, and so how many stages there are
            chunks = range(len(per_stage) // pp, len(per_stage) // pp + 1)
    partitions, microbatches = [own.partition], [own.num_microbatches]
    if widely:
        microbatches += _other_microbatches(spec)
        if own.partition != GIVEN:
            others = [each for each in PartitionMethod if each != own.partition]
            partitions += [each for each in others if can_balance or each is not PartitionMethod.BALANCED]
    return list(shapes(num_workers=pp, chunks=chunks, microbatches=microbatches, partitions=partitions))


def applied(spec: JobSpec, candidate: Candidate) -> JobSpec:
    """Return ``spec`` with what ``candidate`` says in the place of its own."""
    if candidate == own_candidate(spec):
        return spec
    schedule = spec.schedule.model_copy(
        update={
            "name": ScheduleName(candidate.schedule),
            "num_chunks": candidate.num_chunks,
            **_other_schedule(spec, candidate),
            **_other_count(spec, candidate),
        }
    )
    parallel = spec.parallel
    if candidate.partition != GIVEN:
        parallel = parallel.model_copy(update={"partition": PartitionMethod(candidate.partition)})
    return spec.model_copy(update={"schedule": schedule, "parallel": parallel})


def settings(spec: JobSpec, candidate: Candidate) -> list[str]:
    """Return the overrides of a job file that make ``candidate`` of ``spec``; none where it is so already."""
    changed = applied(spec, candidate)
    overrides = [
        f"schedule.{name}={'null' if value is None else value}"
        for name, value in changed.schedule.model_dump(mode="json").items()
        if value != spec.schedule.model_dump(mode="json")[name]
    ]
    if changed.parallel.partition != spec.parallel.partition:
        overrides.append(f"parallel.partition={changed.parallel.partition}")
    return overrides


def _other_schedule(spec: JobSpec, candidate: Candidate) -> dict[str, object]:
    """Return what another schedule than the job's own has no use for."""
    if candidate.schedule == spec.schedule.name:
        return {}
    return {"warmup": None, "group_size": None, "file": None}


def _other_count(spec: JobSpec, candidate: Candidate) -> dict[str, object]:
    if candidate.num_microbatches == microbatches_of(spec):
        return {}
    return {"num_microbatches": candidate.num_microbatches, "microbatch_size": None}


def _partition_of(spec: JobSpec) -> str:
    return spec.parallel.partition if spec.parallel.layers_per_stage is None else GIVEN


def _other_microbatches(spec: JobSpec) -> list[int]:
    """Return half and twice the number of microbatches, where these divide the rows as evenly as the job's own do."""
    rows = spec.train.global_batch_size // (spec.parallel.dp * spec.train.gradient_accumulation_steps)
    own = microbatches_of(spec)
    counts = [own * 2] if own % 2 else [own // 2, own * 2]
    return [count for count in counts if count <= rows and (rows % count == 0 or rows % own)]
