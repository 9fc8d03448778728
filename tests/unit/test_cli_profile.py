"""What takt profile refuses."""

from pathlib import Path

import pytest
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.app import main
from coordinator.cli.commands.profile import check_ended
from coordinator.cli.exits import CliError, ExitCode


def test_profile_refuses_a_folder_as_its_file_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(tmp_path / "no.yaml"), "--out", str(tmp_path)]) == ExitCode.INVALID
    assert "it is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "code"),
    [(pb.JOB_STATE_FAILED, ExitCode.JOB_FAILED), (pb.JOB_STATE_CANCELLED, ExitCode.JOB_CANCELLED)],
)
def test_a_run_that_failed_or_was_interrupted_ends_the_profile_with_its_code(
    state: pb.JobState, code: ExitCode
) -> None:
    with pytest.raises(CliError, match=r"job x .* at step 3") as refused:
        check_ended(pb.Job(id="x", state=state, step=3))
    assert refused.value.code == code
