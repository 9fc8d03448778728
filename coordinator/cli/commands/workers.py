"""takt workers"""

from coordinator.cli.client import connect
from coordinator.cli.console import print_json, stdout
from coordinator.cli.documents import slot_record
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_COORDINATOR, Coordinator, Output, OutputFormat
from coordinator.cli.tables import show_slots


def command(*, coordinator: Coordinator = None, output: Output = OutputFormat.TABLE) -> ExitCode:
    """List the worker slots that the coordinator knows."""
    with connect(coordinator or DEFAULT_COORDINATOR) as client:
        slots = client.workers()
    if output is OutputFormat.JSON:
        print_json({"workers": [slot_record(slot) for slot in slots]})
    else:
        show_slots(stdout(), slots)
    return ExitCode.SUCCESS
