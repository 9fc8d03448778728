"""The project's own laws: who may import whom, and what no file may hold.

Each rule is one test over the real sources, and one over a snippet that breaks it.
"""

import re

import pytest

from tests.architecture import (
    MACHINE_PATH,
    ROOT,
    SERVICES,
    Source,
    files_longer_than,
    forbidden_imports,
    forbidden_module_names,
    forking_code,
    imports_outside,
    is_within,
    matching_lines,
    project_sources,
    unsafe_code,
)

SOURCES = project_sources()
IN_SERVICES = is_within(*SERVICES, "takt")
PIPELINE_WORDS = re.compile(
    r"\b(microbatch|pipeline|gradient|activation|stage|epoch|optimizer|torch|tensor)", re.IGNORECASE
)
TEXT_FILES = ("README.md", "Makefile", ".ci/*", "deploy/**/*.yaml", *(f"{room}/**/*.md" for room in SERVICES))


def is_agent(source: Source) -> bool:
    return source.module.startswith("stage_worker.agent")


def test_sources_are_found_in_every_room() -> None:
    rooms = {source.module.split(".")[0] for source in SOURCES}
    assert rooms >= {*SERVICES, "takt", "tests"}


def test_coordinator_schedule_imports_only_the_standard_library() -> None:
    assert not imports_outside(SOURCES, is_within("coordinator.schedule"), ["coordinator.schedule"])


def test_coordinator_never_imports_torch_or_transformers() -> None:
    assert not forbidden_imports(SOURCES, is_within("coordinator"), ["torch", "transformers"])


def test_engine_never_imports_the_wire() -> None:
    banned = ["grpc", "grpc_health", "takt", "prometheus_client"]
    assert not forbidden_imports(SOURCES, is_within("stage_worker.engine"), banned)


def test_models_never_import_the_engine_that_runs_them() -> None:
    assert not forbidden_imports(SOURCES, is_within("stage_worker.models"), ["stage_worker.engine"])


def test_coordinator_never_imports_its_command_line() -> None:
    below = [source for source in SOURCES if not source.module.startswith("coordinator.cli")]
    assert not forbidden_imports(below, is_within("coordinator"), ["coordinator.cli"])


def test_agent_never_imports_torch() -> None:
    assert any(is_agent(source) for source in SOURCES)
    assert not forbidden_imports(SOURCES, is_agent, ["torch", "transformers"])


def test_data_sharding_imports_only_numpy_beside_the_standard_library() -> None:
    allowed = ["numpy", "dataloader_svc.sharding"]
    assert not imports_outside(SOURCES, is_within("dataloader_svc.sharding"), allowed)


@pytest.mark.parametrize("service", SERVICES)
def test_service_imports_no_other_service(service: str) -> None:
    others = [other for other in SERVICES if other != service]
    assert not forbidden_imports(SOURCES, is_within(service), others)


def test_rpc_imports_no_message_and_no_service() -> None:
    assert not forbidden_imports(SOURCES, is_within("takt.rpc"), ["takt.v1", *SERVICES])


def test_rpc_is_small_and_knows_no_pipeline_word() -> None:
    sources = [source for source in SOURCES if is_within("takt.rpc")(source)]
    assert sum(source.num_lines for source in sources) <= 600
    assert not matching_lines([(source.path, source.text) for source in sources], PIPELINE_WORDS)


def test_module_names_say_what_is_inside() -> None:
    assert not forbidden_module_names(SOURCES)


def test_main_modules_are_short() -> None:
    assert not files_longer_than(59, SOURCES, lambda source: source.path.endswith("__main__.py"))


def test_files_hold_one_noun() -> None:
    assert not files_longer_than(300, SOURCES, lambda source: not is_within("tests")(source))
    assert not files_longer_than(400, SOURCES, is_within("tests"))  # tables of cases are long


def test_services_run_no_code_that_came_as_data() -> None:
    assert not unsafe_code(source for source in SOURCES if IN_SERVICES(source))


def test_services_and_their_launcher_make_children_by_exec_only() -> None:
    """H90: gRPC and the tokenizers have threads, and a fork would copy the locks that these hold."""
    assert not forking_code(source for source in SOURCES if IN_SERVICES(source))


def test_no_file_holds_a_path_of_one_machine() -> None:
    texts = [(source.path, source.text) for source in SOURCES]
    texts += [
        (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for pattern in TEXT_FILES
        for path in ROOT.glob(pattern)
        if path.is_file()
    ]
    assert not matching_lines(texts, MACHINE_PATH)


# Each rule can fail.

BAD_IMPORTS = {
    "import": "import torch",
    "from": "from torch.nn import Linear",
    "in a function": "def f():\n    import torch.distributed as dist",
    "by name": "import importlib\nimportlib.import_module('torch.nn')",
}


@pytest.mark.parametrize("text", BAD_IMPORTS.values(), ids=BAD_IMPORTS.keys())
def test_forbidden_imports_finds_every_kind_of_import(text: str) -> None:
    (broken,) = forbidden_imports([Source("coordinator/x.py", text)], is_within("coordinator"), ["torch"])
    assert broken.startswith(f"coordinator/x.py:{len(text.splitlines())} imports torch")


def test_forbidden_imports_follows_the_projects_own_modules() -> None:
    sources = [
        Source("stage_worker/agent.py", "import os\nfrom stage_worker import record"),
        Source("stage_worker/record.py", "from .deep import thing"),
        Source("stage_worker/deep/__init__.py", "\n\nimport torch"),
        Source("stage_worker/engine/stage.py", "import torch"),
    ]
    assert forbidden_imports(sources, is_agent, ["torch"]) == [
        "stage_worker/deep/__init__.py:3 imports torch, which is imported by stage_worker/record.py:1, "
        "which is imported by stage_worker/agent.py:2"
    ]


def test_forbidden_imports_lets_names_that_only_begin_alike_pass() -> None:
    source = Source("coordinator/x.py", "import torchx\nfrom takt.rpc import torch_free")
    assert not forbidden_imports([source], is_within("coordinator"), ["torch"])


def test_forbidden_imports_reads_relative_imports() -> None:
    source = Source("proto/takt/rpc/x.py", "from ..v1 import jobs_pb2")
    assert forbidden_imports([source], is_within("takt.rpc"), ["takt.v1"])


def test_imports_outside_finds_what_is_not_allowed() -> None:
    source = Source("coordinator/schedule/x.py", "import enum\nimport numpy\nfrom coordinator import spec")
    assert imports_outside([source], is_within("coordinator.schedule"), ["coordinator.schedule"]) == [
        "coordinator/schedule/x.py:2 imports numpy",
        "coordinator/schedule/x.py:3 imports coordinator.spec",
    ]


@pytest.mark.parametrize("path", ["coordinator/utils.py", "tests/unit/data_helpers.py", "stage_worker/common/x.py"])
def test_forbidden_module_names_finds_names_that_say_nothing(path: str) -> None:
    assert len(forbidden_module_names([Source(path, "")])) == 1
    assert not forbidden_module_names([Source("coordinator/database.py", "")])


def test_files_longer_than_counts_lines() -> None:
    sources = [Source("a.py", "x\n" * 300), Source("b.py", "x\n" * 301)]
    (broken,) = files_longer_than(300, sources, lambda source: True)
    assert broken.startswith("b.py:301 ")


UNSAFE = [
    "import pickle",
    "from torch import load",
    "import torch\ntorch.load('x')",
    "eval('1')",
    "import subprocess\nsubprocess.run('ls', shell=True)",
    "import os\nos.system('ls')",
    "import numpy\nnumpy.load('x', allow_pickle=True)",
    "import torch.distributed as dist\ndist.all_gather_object([], 1)",
]


@pytest.mark.parametrize("text", UNSAFE)
def test_unsafe_code_finds_it_on_its_line(text: str) -> None:
    (broken,) = unsafe_code([Source("coordinator/x.py", text)])
    assert broken.startswith(f"coordinator/x.py:{len(text.splitlines())} ")


@pytest.mark.parametrize("text", ["model.eval()", "from safetensors.torch import load", "run('ls', shell=False)"])
def test_unsafe_code_lets_safe_code_pass(text: str) -> None:
    assert not unsafe_code([Source("coordinator/x.py", text)])


FORKING = [
    "import multiprocessing",
    "from multiprocessing import Process",
    "from concurrent.futures import ProcessPoolExecutor",
    "from concurrent import futures\nfutures.ProcessPoolExecutor()",
    "import os\nos.fork()",
    "from os import fork",
    "import subprocess\nsubprocess.Popen(['ls'], preexec_fn=f)",
]


@pytest.mark.parametrize("text", FORKING)
def test_forking_code_finds_it_on_its_line(text: str) -> None:
    (broken,) = forking_code([Source("coordinator/x.py", text)])
    assert broken.startswith(f"coordinator/x.py:{len(text.splitlines())} ")


def test_forking_code_lets_children_by_exec_pass() -> None:
    text = "import subprocess\nsubprocess.Popen(['ls'], start_new_session=True)\nfrom concurrent.futures import Future"
    assert not forking_code([Source("coordinator/x.py", text)])


@pytest.mark.parametrize("top", ["home", "work", "root", "Users"])
def test_machine_path_is_found_but_not_in_an_address(top: str) -> None:
    bad = [("README.md", f"first\nsee /{top}/somebody/file")]
    assert matching_lines(bad, MACHINE_PATH) == [f"README.md:2 says '/{top}/'"]
    assert not matching_lines([("README.md", f"https://example.com/{top}/x and ./{top}/x")], MACHINE_PATH)
