"""Generate the stubs of proto/takt/v1; with --check, only say whether they are up to date.

The generator's version is pinned in pyproject.toml, so that everybody gets the same bytes.
"""

import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
PROTOS = sorted((ROOT / "takt" / "v1").glob("*.proto"))
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")


def generate(out: Path) -> None:
    """Write the stubs of all protos below ``out``."""
    code = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            *(str(path) for path in PROTOS),
        ]
    )
    if code != 0:
        raise SystemExit(f"protoc failed with exit code {code}")


def stubs(root: Path) -> dict[str, Path]:
    """Return the generated files below ``root`` by name."""
    return {path.name: path for pattern in PATTERNS for path in (root / "takt" / "v1").glob(pattern)}


def main(argv: list[str]) -> int:
    """Generate, or check; return the exit code."""
    if argv != ["--check"]:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = stubs(Path(scratch)), stubs(ROOT)
        stale = [
            name
            for name in sorted(fresh.keys() | committed.keys())
            if name not in fresh
            or name not in committed
            or not filecmp.cmp(fresh[name], committed[name], shallow=False)
        ]
    for name in stale:
        print(f"proto/takt/v1/{name} is out of date; run: python proto/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
