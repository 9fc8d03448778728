"""What each program of a stage worker loads, which decides how soon it is there."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)


def loaded_by(module: str) -> set[str]:
    """Return the names of all modules that a new interpreter has loaded once it has imported ``module``."""
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=50)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["stage_worker.app", "stage_worker.agent_service"])
def test_agent_loads_no_torch(module: str) -> None:
    loaded = loaded_by(module)
    assert module in loaded
    assert not loaded & {"torch", "transformers", "numpy"}


def test_facts_load_no_modelling_code() -> None:
    loaded = loaded_by("stage_worker.facts")
    assert "stage_worker.models.config" in loaded
    assert not any(name.startswith("transformers.models.bert.modeling") for name in loaded)


def test_executor_has_loaded_what_takes_long_before_its_work_comes() -> None:
    assert "torch" in loaded_by("stage_worker.executor")
