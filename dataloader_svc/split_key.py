"""What the tokens of a split depend on."""

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path

import tokenizers

from dataloader_svc.corpus import FileStamp
from dataloader_svc.settings import MalformedLines
from dataloader_svc.splits import SplitName

SOURCES = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitKey:
    """All that the tokens of a split depend on; jobs that agree in it share one copy."""

    task: str
    labels: tuple[str, ...]
    malformed_lines: MalformedLines
    split: SplitName
    source: Path | None
    tokenizer: Path | None
    max_length: int
    max_train_rows: int | None
    stamps: tuple[FileStamp, ...]

    def digest(self, *, service: str) -> str:
        """Return the digest of all this that outlives a process: the contents of the files, wherever they lie.

        Args:
            service: `service_digest`.

        Raises:
            OSError: a file cannot be read.
        """
        places = {"source", "tokenizer", "stamps"}
        decides = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in places}
        files = [(stamp.path.name, _content(stamp.path)) for stamp in self.stamps]
        return _digest(decides, files, service)


def service_digest() -> str:
    """Return the digest of the service itself: its sources and the version of the tokenizers library.

    What another version would generate, read, cut or lay out differently has another digest with it, and nobody has
    to remember to count a version up.
    """
    sources = [(path.name, _content(path)) for path in sorted(SOURCES.glob("*.py"))]
    return _digest(sources, tokenizers.__version__)


def _digest(*values: object) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=20).hexdigest()


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
