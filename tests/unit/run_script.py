"""Scripts of a run: what happens on the left, what is done about it on the right, in short words."""

from coordinator.events import (
    Connected,
    Disconnected,
    Ended,
    EndKind,
    Event,
    Faulted,
    ItemKind,
    Ready,
    Reported,
    Saved,
    SavedShard,
    Started,
    StepResult,
    StoreOpened,
)
from coordinator.failure import Fault, FaultKind
from coordinator.records import JobError
from coordinator.run import advance, begin
from coordinator.run_commands import (
    Assign,
    ChangeState,
    Command,
    CommitCheckpoint,
    CommitEvaluation,
    CommitStep,
    DropCheckpoint,
    Issue,
    Release,
    SendRendezvous,
)
from coordinator.run_state import Place, RunSetting
from coordinator.sequence import Sequence
from coordinator.start import AgreedState


def place(worker: int, *, stages: tuple[int, ...], dp_rank: int = 0) -> Place:
    """Worker w runs on host ``h<w>``."""
    return Place(worker=worker, dp_rank=dp_rank, stages=stages, agent=f"a{worker}", host=f"h{worker}")


def setting(*, total_steps: int = 3, credit: int = 2, evaluation_steps: int = 0, dp: int = 1) -> RunSetting:
    """Two stages, ``dp`` replicas."""
    places = tuple(place(w, dp_rank=w // 2, stages=(w % 2,)) for w in range(2 * dp))
    sequence = Sequence(
        total_steps=total_steps,
        save_every=100,
        evaluate_every=None,
        evaluate_at_end=True,
        evaluated=(("dev", evaluation_steps),) if evaluation_steps else (),
    )
    return RunSetting(places=places, sequence=sequence, credit=credit, step_timeout_seconds=60, lease_seconds=10)


class Script:
    """Drives a run and writes down what it does, in short words."""

    def __init__(self, run_setting: RunSetting) -> None:
        self.state, _ = begin(run_setting, now=0.0)

    def feed(self, *events: Event, now: float = 1.0) -> list[str]:
        """Return the commands of these events."""
        done: list[Command] = []
        for event in events:
            self.state, commands = advance(self.state, event, now)
            done.extend(commands)
        return [short(command) for command in done]

    def make_ready(self, *, now: float = 1.0) -> list[str]:
        """Bring all workers up."""
        workers = range(len(self.state.members))
        for w in workers:
            self.feed(Started(w, 100 + w, f"logs/worker-{w}.log"), Connected(w, 100 + w), now=now)
        self.feed(StoreOpened(0, "h0:1"), now=now)
        return self.feed(*(Ready(w, 10, 20) for w in workers), now=now)


def short(command: Command) -> str:  # noqa: PLR0911  # one for each kind of command
    match command:
        case Assign(worker):
            return f"assign {worker}"
        case Release(worker, grace_seconds):
            return f"release {worker} {grace_seconds:g}"
        case SendRendezvous(workers, address):
            return f"meet {','.join(map(str, workers))} {address}"
        case Issue(item):
            return f"issue {item}"
        case CommitStep(step, results):
            return f"commit {step} of {','.join(str(result.worker) for result in results)}"
        case CommitCheckpoint(step, shards):
            return f"manifest {step} of {len(shards)}"
        case DropCheckpoint(dropped, reason):
            return f"drop {dropped}: {reason}"
        case CommitEvaluation(after, _):
            return f"evaluated {after}"
        case ChangeState(state=state):
            return str(state)


def step(number: int, worker: int) -> Reported:
    return Reported(ItemKind.TRAIN, number, StepResult(worker=worker))


def evaluated(number: int, worker: int) -> Reported:
    return Reported(ItemKind.EVALUATE, number, StepResult(worker=worker))


def saved(number: int, worker: int) -> Saved:
    shard = SavedShard(file=f"stage-{worker:03}.safetensors", kind="parameters", stage=worker, sha256="0", num_bytes=1)
    return Saved(worker, number, (shard,), AgreedState(updates_applied=number))


def exit_of(worker: int, code: int = 0) -> tuple[Event, Event]:
    return Ended(worker, EndKind.EXITED, exit_code=code), Disconnected(worker)


def exception(worker: int, message: str = "boom", *, peer_lost: bool = False, step: int | None = 2) -> Faulted:
    kind = FaultKind.PEER if peer_lost else FaultKind.EXCEPTION
    error = JobError(
        type="PeerLostError" if peer_lost else "ValueError",
        message=message,
        worker=worker,
        stage=worker,
        step=step,
        log=f"logs/worker-{worker}.log",
    )
    return Faulted(Fault(kind=kind, error=error))


def final_change(script: Script, *events: Event, now: float = 2.0) -> ChangeState:
    """Feed events, and return the final change of state among the commands."""
    for event in events:
        script.state, commands = advance(script.state, event, now)
        for command in commands:
            if isinstance(command, ChangeState) and command.state.is_final:
                return command
    raise AssertionError(f"the run is {script.state.state}, not over")
