"""Where output goes when it cannot go where it should, with the program as a process."""

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 50


def shell(command: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``command`` in bash, with ``takt`` as a function."""
    program = "import sys; from coordinator.cli.app import main; sys.exit(main())"
    takt = f"""takt() {{ "{sys.executable}" -c '{program}' "$@"; }}"""
    root = str(Path(__file__).parents[2])
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root}:{root}/proto"}
    return subprocess.run(
        ["bash", "-c", f"{takt}\n{command}"],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def test_output_that_nobody_reads_ends_the_command_in_silence_with_141(tmp_path: Path) -> None:
    done = shell("takt plan --stages 64 --microbatches 256 | true; echo ${PIPESTATUS[0]}", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk_exits_2_with_one_line(tmp_path: Path) -> None:
    done = shell("takt schema > /dev/full", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: [Errno 28] No space left on device\n")


def test_closed_stdout_takes_no_other_files_place(tmp_path: Path) -> None:
    done = shell("takt plan --stages 2 --csv plan.csv >&-", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "schedule" not in (tmp_path / "plan.csv").read_text()


def test_closed_stderr_leaves_stdout_to_the_answer(tmp_path: Path) -> None:
    done = shell("takt plan 2>&-", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
