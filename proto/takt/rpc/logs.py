"""Logs of a service: fixed sentences with named fields, on stderr."""

import logging
import os
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

FORMAT_VARIABLE = "TAKT_LOG_FORMAT"


def configure(*, service: str) -> None:
    """Send all logs of this process to stderr: text for people, JSON where TAKT_LOG_FORMAT is ``json``.

    Modules then call ``structlog.get_logger()``. Libraries' warnings go the same way, as they are.
    """

    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**event, "service": service}

    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_service,
    ]
    if os.environ.get(FORMAT_VARIABLE, "").lower() == "json":
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, exception_formatter=plain))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # a line in one write: others write to the file too
    )
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
