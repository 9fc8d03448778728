"""Keeps services running as children of this process: starts, restarts, stops them."""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from takt.rpc.lifecycle import Announcement

from coordinator.cli import processes
from coordinator.cli.child import Child
from coordinator.cli.client import Pause
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.services import ServiceCommand

READY_SECONDS = 30.0
"""Within this a service must say that it is ready."""
MAX_RESTARTS = 5
RESTART_WINDOW_SECONDS = 60.0
"""A service that died more than MAX_RESTARTS times within this is given up."""
_FIRST_DELAY_SECONDS = 0.5
_MAX_DELAY_SECONDS = 8.0
_TICK_SECONDS = 0.05
_REFUSALS = {2: ExitCode.INVALID, 4: ExitCode.CONFLICT, 5: ExitCode.UNREACHABLE}
"""Exit codes with which a service refuses to start; they become ours."""


class StartInterruptedError(CliError):
    """`should_stop` said so before all services were ready."""


@dataclass(slots=True)
class _Service:
    """One service: its command, its present process, and when it died before."""

    command: ServiceCommand
    child: Child
    started: float
    is_ready: bool = False
    deaths: deque[float] = field(default_factory=deque)
    restart_at: float | None = None
    """When to start it again; None while it runs."""


class Supervisor:
    """The services of one `takt run` or `takt up`; one thread owns it.

    Args:
        log_dir: where each service's log goes, ``NAME.log``.
        pause: waits that many seconds, or less.
        on_remark: told, in one line, of every death and restart.
        should_stop: whether starting should be given up.
    """

    def __init__(
        self,
        *,
        log_dir: Path,
        pause: Pause,
        on_remark: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.log_dir = log_dir
        self._pause = pause
        self._on_remark = on_remark
        self._should_stop = should_stop
        self._groups: list[list[_Service]] = []
        self._descendants: set[processes.Process] = set()

    def start(self, commands: Sequence[ServiceCommand]) -> list[Announcement]:
        """Start services side by side; return what each announced, in order.

        Raises:
            CliError: one of them died, or was not ready in time.
            StartInterruptedError: `should_stop` said so.
        """
        group: list[_Service] = []
        self._groups.append(group)  # first, so that `stop` finds whatever was started
        for command in commands:
            group.append(_Service(command, self._spawn(command), time.monotonic()))
        return [self._wait_until_ready(service) for service in group]

    def tend(self) -> None:
        """Restart what has died, each on its former ports; call this a few times a second.

        Raises:
            CliError: a service died too often.
        """
        services = [service for group in self._groups for service in group]
        self._descendants = processes.alive(self._descendants) | self._find_descendants(services)
        for service in services:
            self._tend(service, time.monotonic())

    def stop(self, *, grace_seconds: float, should_kill: Callable[[], bool]) -> None:
        """Stop everything, the last started first; each group is killed after ``grace_seconds``.

        ``should_kill`` cuts the grace short.
        """
        self._descendants |= self._find_descendants([service for group in self._groups for service in group])
        while self._groups:
            self._end(self._groups.pop(), grace_seconds, should_kill)
        processes.kill(self._descendants)

    def stop_before_others(self, name: str, *, grace_seconds: float, should_kill: Callable[[], bool]) -> None:
        """Stop the service of that name, should it have been started, while the others still serve it."""
        self._descendants |= self._find_descendants([service for group in self._groups for service in group])
        for group in self._groups:
            own = [service for service in group if service.command.name == name]
            self._end(own, grace_seconds, should_kill)
            group[:] = [service for service in group if service not in own]

    def _end(self, services: Sequence[_Service], grace_seconds: float, should_kill: Callable[[], bool]) -> None:
        for service in services:
            service.child.terminate()
        deadline = time.monotonic() + grace_seconds
        while any(s.child.exit_code() is None for s in services) and time.monotonic() < deadline and not should_kill():
            self._pause(_TICK_SECONDS)
        for service in services:
            service.child.kill()
            service.child.close()

    def _spawn(self, command: ServiceCommand) -> Child:
        log = self.log_dir / f"{command.name}.log"
        return Child(command.argv, environment=command.environment(os.environ), log=log)

    def _wait_until_ready(self, service: _Service) -> Announcement:
        name = service.command.name
        while (announcement := service.child.announcement) is None:
            if self._should_stop():
                raise StartInterruptedError(ExitCode.JOB_CANCELLED, f"interrupted while {name} was starting")
            code = service.child.exit_code()
            if code is not None:
                raise CliError(_REFUSALS.get(code, ExitCode.UNREACHABLE), _refusal(service, code))
            if time.monotonic() - service.started > READY_SECONDS:
                raise CliError(ExitCode.UNREACHABLE, f"{name} was not ready in {READY_SECONDS:g} s{_tail(service)}")
            self._pause(_TICK_SECONDS)
        service.is_ready = True
        service.command = service.command.fixed_at(announcement)
        return announcement

    def _tend(self, service: _Service, now: float) -> None:
        name = service.command.name
        if service.restart_at is not None:
            if now >= service.restart_at:
                service.child, service.started, service.restart_at = self._spawn(service.command), now, None
                self._on_remark(f"{name} was started again")
            return
        service.is_ready = service.is_ready or service.child.announcement is not None
        if not service.is_ready and now - service.started > READY_SECONDS:
            service.child.kill()
        code = service.child.exit_code()
        if code is None:
            return
        service.child.close()
        service.is_ready = False
        while service.deaths and now - service.deaths[0] > RESTART_WINDOW_SECONDS:
            service.deaths.popleft()
        if len(service.deaths) >= MAX_RESTARTS:
            raise CliError(ExitCode.UNREACHABLE, f"{name} died again and again and is given up{_tail(service)}")
        delay = min(_MAX_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** len(service.deaths))
        service.deaths.append(now)
        service.restart_at = now + delay
        self._on_remark(f"{name} died ({ending(code)}); starting it again in {delay:g} s; its log: {service.child.log}")

    def _find_descendants(self, services: Sequence[_Service]) -> set[processes.Process]:
        return processes.descendants(s.child.pid for s in services if s.child.exit_code() is None)


def ending(code: int) -> str:
    """Return a process's exit code in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _refusal(service: _Service, code: int) -> str:
    """Return why a service did not start: its own error line where it refused, else the end of its log."""
    errors = [line for line in service.child.log_tail().splitlines() if line.startswith("error: ")]
    if code in _REFUSALS and errors:
        return f"{service.command.name} refused to start: {errors[-1].removeprefix('error: ')}"
    return f"{service.command.name} died while it was starting ({ending(code)}){_tail(service)}"


def _tail(service: _Service) -> str:
    return f"; its log, {service.child.log}, ends:\n{service.child.log_tail()}"
