"""The agent as a service: HTTP endpoint, signals, exit codes around one ``Agent``."""

import asyncio
import signal
import sys
from importlib.metadata import PackageNotFoundError, version

import structlog
from prometheus_client import CollectorRegistry
from takt.rpc.errors import TaktError
from takt.rpc.lifecycle import announce, until_stopped
from takt.rpc.metrics import HttpEndpoint, build_info

from stage_worker.agent import Agent
from stage_worker.agent_metrics import ExecutorCollector, Exposed
from stage_worker.config import AgentConfig

EXIT_UNREACHABLE = 5
"""Exit code where an address is in use, or the coordinator does not answer."""

log = structlog.get_logger()


async def serve_slot(config: AgentConfig, *, exit_with_stdin: bool) -> int:
    """Run an agent until it is told to stop; return the exit code of the process."""
    agent: Agent | None = None

    def exposed() -> Exposed | None:
        return None if agent is None else agent.exposed()

    def ready() -> tuple[bool, str]:
        return (False, "the agent is starting") if agent is None else agent.ready()

    registry = CollectorRegistry()
    build_info(registry, _version())
    registry.register(ExecutorCollector(exposed))
    endpoint = HttpEndpoint(registry, host=config.http_host, port=config.metrics_port, ready=ready)
    try:
        address = endpoint.start()
    except TaktError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    stopped = until_stopped(exit_with_stdin=exit_with_stdin)
    port = address.rpartition(":")[2]
    agent = Agent(config, metrics_address=f"{config.advertise}:{port}")
    running = asyncio.create_task(agent.run())
    announce("stage_worker", None, address)
    try:
        await asyncio.wait((stopped, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        log.info("agent stops", reason=stopped.result())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, agent.hurry)
        await agent.stop(f"the agent was told to stop ({stopped.result()})")
    except TaktError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        endpoint.close()
    return 0


def _version() -> str:
    try:
        return version("takt-train")
    except PackageNotFoundError:
        return "unknown"  # a checkout that was never installed
