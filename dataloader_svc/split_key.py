"""What the tokens of a split depend on."""

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path

import tokenizers

from dataloader_svc.corpus import FileStamp
from dataloader_svc.errors import ReplacedError
from dataloader_svc.settings import MalformedLines
from dataloader_svc.splits import SplitName
from dataloader_svc.tokens import DECIDING_FILES

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

    def check_unchanged(self, *, known: str, found: str, job: str) -> None:
        """Check that the rows of this key are those that a job was checked with.

        Args:
            known: their digest then; empty where it is not known.
            found: their digest now.
            job: id of the job.

        Raises:
            ReplacedError: they are others.
        """
        if known in ("", found):
            return
        if known.partition(".")[0] != found.partition(".")[0]:
            files = [str(stamp.path) for stamp in self.stamps if stamp.path.name not in DECIDING_FILES]
            what = f"the rows of the split {self.split} in {', '.join(files) or f'the built-in task {self.task}'}"
        else:
            what = f"the tokenizer in {self.tokenizer or 'the data service'}"
        raise ReplacedError(
            f"{what} changed after job {job} was checked, so it cannot go on; start it again, with what is there now "
            "or with what was there before put back, and leave its files alone while it runs"
        )

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
