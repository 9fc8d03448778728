"""Log lines as they come out, in a process of their own because they go to its stderr."""

import json
import os
import subprocess
import sys

LOGS = """
import logging
import structlog
from takt.rpc.logs import configure
configure(service="coordinator")
log = structlog.get_logger()
log.debug("not shown")
log.info("step done", step=12, seconds=0.25)
try:
    raise ValueError("boom")
except ValueError:
    log.exception("step failed", step=13)
logging.getLogger("library").warning("careful")
"""


def lines(log_format: str) -> list[str]:
    environment = {**os.environ, "TAKT_LOG_FORMAT": log_format}
    done = subprocess.run(
        [sys.executable, "-c", LOGS], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_configure_writes_text_with_fields_and_whole_tracebacks() -> None:
    info, error, *rest = lines("")
    assert "[info" in info
    assert "step done" in info
    for field in ("step=12", "seconds=0.25", "service=coordinator"):
        assert field in info
    assert "step failed" in error
    assert "ValueError: boom" in rest
    assert "careful" in rest[-1]
    assert "\x1b" not in "".join([info, error, *rest])


def test_configure_writes_one_json_object_a_line_where_asked() -> None:
    info, error, _library = lines("json")
    assert json.loads(info).items() >= {"event": "step done", "step": 12, "service": "coordinator"}.items()
    assert "ValueError: boom" in json.loads(error)["exception"]
