"""The program: what it lists, what it imports, what it answers to wrong usage."""

import json
import resource
import subprocess
import sys
from importlib.metadata import version

import pytest

from coordinator.cli.app import COMMANDS, main


def test_app_with_no_argument_prints_help_with_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line}
    assert listed == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_app_help_of_each_command_names_its_options_and_succeeds(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Usage: takt {name}" in text
    assert "--help" in text


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["trian"], "No such command 'trian'"),
        (["status"], "Missing argument"),
        (["status", "job", "--output", "yaml"], "'yaml'"),
        (["plan", "--comparing"], "--comparing"),
        (["up"], "--workers"),
        (["export", "job"], "--out"),
        (["list", "--coordinator", "nope"], "--coordinator is 'nope', need HOST:PORT"),
        (["list", "--coordinator", "127.0.0.1:99999"], "need HOST:PORT with a port from 1 to 65535"),
        (["submit", "job.yaml", "--id", "../x"], "job id is '../x'; use letters"),
        (["run", "job.yaml", "--id", "a\nb"], r"job id is 'a\nb'; use letters"),
    ],
)
def test_app_wrong_usage_exits_2_with_one_error_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "logs", "wait", "cancel", "export"])
@pytest.mark.parametrize("job_id", ["../x", "a\nb", "", "x" * 300, "\udcff"])
def test_app_id_that_no_job_can_have_is_not_found_and_nobody_is_asked(
    command: str, job_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", "out"] if command == "export" else []
    assert main([command, *out, "--", job_id]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: there is no job {job_id!a}; see 'takt list'\n"


def _modules_after(statements: str) -> set[str]:
    program = (
        f"import sys, json\n{statements}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_app_with_all_commands_imported_never_imports_what_only_workers_need() -> None:
    imports = "\n".join(f"import coordinator.cli.commands.{name}" for name in COMMANDS)
    loaded = _modules_after(imports)
    assert "grpc" in loaded
    assert loaded.isdisjoint({"torch", "transformers", "sklearn", "scipy", "datasets", "tokenizers"})


def test_app_help_loads_no_network_library_and_takes_well_under_a_second_of_cpu() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    loaded = _modules_after("from coordinator.cli.app import main\nmain(['--help'])")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert loaded.isdisjoint({"grpc", "google", "safetensors", "ruamel", "structlog"})
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.8


def test_app_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"takt {version('takt-train')}\n"
