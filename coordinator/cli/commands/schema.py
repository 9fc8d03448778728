"""takt schema"""

import json

from coordinator.cli.console import print_json, print_line
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import Output, OutputFormat
from coordinator.spec import json_schema


def command(*, output: Output = OutputFormat.TABLE) -> ExitCode:
    """Print the JSON Schema of the job file; give it to an editor to have job files checked as they are written."""
    if output is OutputFormat.JSON:
        print_json(json_schema())
    else:
        print_line(json.dumps(json_schema(), indent=2))
    return ExitCode.SUCCESS
