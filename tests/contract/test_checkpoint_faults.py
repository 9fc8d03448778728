"""A save that is killed, or meets a full disk, at any point of it: the last good checkpoint stays in use."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from coordinator.checkpoints import PARAMETERS, complete_steps, find_checkpoint
from tests.contract import checkpoint_faults

pytestmark = pytest.mark.timeout(120)
_ROOT = Path(checkpoint_faults.__file__).parents[2]


def output(folder: Path, mode: str, *, before: Sequence[str] = ()) -> list[str]:
    """Run the program, after the words of ``before``, and return the lines that were printed."""
    command = [*before, sys.executable, "-m", "tests.contract.checkpoint_faults", str(folder), mode]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def outcomes(folder: Path, mode: str) -> list[dict[str, Any]]:
    """Run the program and return what came of each point."""
    return [json.loads(line) for line in output(folder, mode)]


def newest_step(job: Path) -> int:
    """Return the step that a resume would go on from; all its files must be what was saved, and of that step."""
    checkpoint = find_checkpoint(job, step=None)
    checkpoint.verify()
    for shard in checkpoint.shards_of(PARAMETERS):
        expected = torch.full((3,), float(10 * checkpoint.step + shard.stage))
        assert torch.equal(load_file(shard.path)["b"], expected)
    return checkpoint.step


def test_save_killed_at_any_point_leaves_a_good_checkpoint_and_can_be_done_again(tmp_path: Path) -> None:
    """The next attempt trains the step again, and saves it over what is there."""
    jobs = [Path(outcome["folder"]) for outcome in outcomes(tmp_path, "kill")]
    assert len(jobs) > 60  # four shards of two tensors, a config and the manifest
    # Behind the point between the renaming of the manifest and its being told are those of the folder, and none.
    assert [newest_step(job) for job in jobs] == [2] * (len(jobs) - 4) + [4] * 4
    for job in jobs[::9]:
        assert not checkpoint_faults.save(job, 4)
        assert newest_step(job) == 4


def test_save_on_a_disk_that_is_full_at_any_point_is_told_and_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    *failed, whole = outcomes(tmp_path, "full")
    assert whole["errors"] == []
    assert newest_step(Path(whole["folder"])) == 4
    for outcome in failed:
        job = Path(outcome["folder"])
        assert outcome["errors"], f"nothing told of point {outcome['point']}"
        assert all("No space left on device" in error for error in outcome["errors"])
        assert 2 in complete_steps(job)
        assert newest_step(job) in (2, 4)  # 4: its manifest is there, only the folder was not synced


def test_save_on_a_disk_that_is_too_small_is_told_and_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """A tmpfs with room for the first checkpoint and half of the second, in a mount namespace of its own."""
    script = f'mount -t tmpfs -o size=44k none {tmp_path} && "$@" && find {tmp_path} -type f -name ".*"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, timeout=10, check=False).returncode != 0:
        pytest.skip("mount namespaces are not to be had here")
    line, *parts = output(tmp_path, "save", before=[*unshare, "sh", "-c", script, "sh"])
    errors = json.loads(line)["errors"]
    assert errors
    assert all("No space left on device" in error for error in errors)
    assert not parts
