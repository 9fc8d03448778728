"""Answers questions about a job's model, in a process of its own: the agent itself never loads one."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence

from google.protobuf import json_format
from takt.v1 import workers_pb2 as pb

FACTS_COMMAND = (sys.executable, "-m", "stage_worker", "facts", "-")
_LIMIT_SECONDS = 120.0


async def inspect_model(
    question: pb.InspectModel, *, command: Sequence[str] = FACTS_COMMAND, limit_seconds: float = _LIMIT_SECONDS
) -> pb.ModelInspected:
    """Return facts about the model, or what is wrong with it."""
    answer = pb.ModelInspected(request=question.request)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_seconds):
            output, errors = await process.communicate(_document(question).encode())
    except TimeoutError:
        answer.error = f"looking at the model took longer than {limit_seconds:g} s; is its folder on a slow disk?"
        return answer
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode == 0:
        json_format.Parse(output.decode(), answer.facts)
    else:
        answer.error = _last_line(errors.decode(errors="replace")) or f"exit code {process.returncode}"
    return answer


def _document(question: pb.InspectModel) -> str:
    if not question.HasField("parts"):
        return question.spec_json
    needs = json_format.MessageToDict(
        question.parts, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.dumps(json.loads(question.spec_json) | {"needs": needs})


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else ""
