"""The one table from errors to exit codes, against the contract's list."""

import grpc
import pytest
from takt.rpc.errors import AddressInUseError, ListenError, TaktError, UnreachableError

from coordinator.cli.client import CallError
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.failures import exit_code_of, report
from coordinator.job_id import JobIdError
from coordinator.problem import Problem, SpecError
from coordinator.schedule.actions import PlanError


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("INVALID_ARGUMENT", 2),
        ("RESOURCE_EXHAUSTED", 2),
        ("NOT_FOUND", 3),
        ("ALREADY_EXISTS", 4),
        ("FAILED_PRECONDITION", 4),
        ("UNAVAILABLE", 5),
        ("DEADLINE_EXCEEDED", 5),
        ("UNIMPLEMENTED", 5),
        ("INTERNAL", 5),
        ("UNAUTHENTICATED", 6),
        ("PERMISSION_DENIED", 6),
    ],
)
def test_exit_code_of_a_call_is_the_contracts(code: str, exit_code: int) -> None:
    assert exit_code_of(CallError(grpc.StatusCode[code], "text")) == exit_code


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (SpecError([Problem("name", "is missing")]), 2),
        (JobIdError("job id is '../x'"), 2),
        (PlanError("num_microbatches is 0, need at least 1"), 2),
        (ListenError("listen address is 'x'"), 2),
        (AddressInUseError("address in use: 127.0.0.1:7700"), 5),
        (UnreachableError("no coordinator answers"), 5),
        (CliError(ExitCode.CONFLICT, "is there"), 4),
        (FileNotFoundError(2, "No such file or directory"), 2),
    ],
)
def test_exit_code_of_a_refusal_is_the_contracts(error: Exception, exit_code: int) -> None:
    assert exit_code_of(error) == exit_code


def test_report_of_a_refusal_prints_one_error_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(UnreachableError("no coordinator answers at h:1")) == 5
    assert capsys.readouterr().err == "error: no coordinator answers at h:1\n"


def test_report_of_a_wrong_job_prints_one_error_line_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    error = SpecError(
        [Problem("parallel.pp", "is 0, need at least 1", where="j.yaml:3"), Problem("name", "is missing")]
    )
    assert report(error) == 2
    assert capsys.readouterr().err == "error: j.yaml:3: parallel.pp: is 0, need at least 1\nerror: name: is missing\n"


def test_report_of_a_fault_of_the_program_shows_the_traceback_and_no_code_of_the_contract(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        raise TaktError("never mapped")
    except TaktError as error:
        code = report(error)
    assert code not in range(8)
    assert "Traceback" in capsys.readouterr().err
