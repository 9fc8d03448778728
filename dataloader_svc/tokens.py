"""Turns the text of a split into token ids, with the fast tokenizers library alone.

The library's threads do the work; no process is forked, and neither torch nor
transformers is imported.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from dataloader_svc.errors import SpecError, TokenizerError
from dataloader_svc.splits import DIGEST_BYTES, SplitRows
from dataloader_svc.vocabulary import MASK_TOKEN, PAD_TOKEN, SPECIAL_TOKENS, demo_config, demo_tokenizer

ROWS_AT_ONCE = 2048
"""Rows handed to the library in one call; its results take about a kilobyte a token until they are packed."""

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja"),
)
"""Files of a Hugging Face folder that belong to its tokenizer."""

DECIDING_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""Those of them that the tokens of a row depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenisedRows:
    """Tokens of all rows of a split, unpadded, one row after the other, and what their vocabulary is.

    T tokens in all, N rows; row ``i`` is ``[starts[i], starts[i + 1])``. V ids of ordinary tokens.
    """

    input_ids_T: npt.NDArray[np.int32]
    token_types_T: npt.NDArray[np.uint8]
    special_T: npt.NDArray[np.bool_]
    """Whether the tokenizer put a token in to frame the text; all others are maskable."""
    starts: npt.NDArray[np.int64]
    """Shape (N + 1,)."""
    labels_N: npt.NDArray[np.int64] | npt.NDArray[np.float32] | None
    """Ids, or numbers; None where the split has no labels."""
    pad_token_id: int
    mask_token_id: int | None
    """None where the tokenizer has no mask token."""
    ordinary_ids_V: npt.NDArray[np.int32]
    """Ids of the vocabulary without its special tokens, ascending."""
    digest: str
    """That of the text and the tokenizer that they come from, see `rows_digest`."""
    num_maskable_N: npt.NDArray[np.int64] = field(init=False)
    """Tokens of each row that are not special."""

    def __post_init__(self) -> None:
        before = np.concatenate(([0], np.cumsum(~self.special_T, dtype=np.int64)))
        object.__setattr__(self, "num_maskable_N", np.diff(before[self.starts]))

    @property
    def num_rows(self) -> int:
        """Rows of the split."""
        return len(self.starts) - 1

    def lengths_of(self, rows_B: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each of these rows."""
        return self.starts[rows_B + 1] - self.starts[rows_B]


class RowTokenizer:
    """The tokenizer of one job; belongs to one thread, because truncation is a state of the library's object."""

    def __init__(
        self,
        library: Tokenizer,
        *,
        config: dict[str, Any],
        pad_token_id: int,
        mask_token_id: int | None,
        folder: Path | None,
        digest: str,
    ) -> None:
        self._library = library
        self._config = config
        self._folder = folder
        self.digest = digest
        """Digest of all of it that tokens depend on."""
        self.pad_token_id = pad_token_id
        """Id that fills a row up to its microbatch's width."""
        self.mask_token_id = mask_token_id
        """Id that stands in the place of a hidden token; None where the tokenizer has none."""

    @property
    def vocabulary_size(self) -> int:
        """A bound that every id is below."""
        return int(max(self._library.get_vocab(with_added_tokens=True).values())) + 1

    def check_length(self, max_length: int, *, num_texts: int) -> None:
        """Check that rows cut to ``max_length`` can hold something.

        Raises:
            SpecError: special tokens would leave no room for a token of each text.
        """
        special = int(self._library.num_special_tokens_to_add(num_texts == 2))
        if max_length < special + num_texts:
            raise SpecError(
                f"data.max_length is {max_length}, need at least {special + num_texts}: "
                f"{special} special tokens and a token of each text"
            )

    def tokenise(self, rows: SplitRows, *, max_length: int) -> TokenisedRows:
        """Return the tokens of all rows, the longer text of a pair cut first where a row is too long.

        Raises:
            TokenizerError: the library cannot, or what it gives cannot be held.
        """
        self._library.no_padding()
        side = self._config.get("truncation_side", "right")
        self._library.enable_truncation(max_length, strategy="longest_first", direction=side)
        ids, types, special, lengths = [], [], [], np.zeros(len(rows), dtype=np.int64)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            texts: Any = rows.first[part]
            if rows.second is not None:
                texts = list(zip(texts, rows.second[part], strict=True))
            try:
                encodings = self._library.encode_batch_fast(texts)
                ids.append(np.concatenate([np.array(encoding.ids, dtype=np.int32) for encoding in encodings]))
                types.append(np.concatenate([np.array(encoding.type_ids, dtype=np.uint8) for encoding in encodings]))
            except Exception as error:  # the library raises nothing narrower, numpy OverflowError
                last = start + len(texts) - 1
                raise TokenizerError(
                    f"data.tokenizer: {self._folder} cannot tokenise a row of {start} to {last}: {error}; "
                    "use the tokenizer of the model"
                ) from error
            lengths[part] = [len(encoding) for encoding in encodings]
            masks = [np.array(encoding.special_tokens_mask, dtype=np.bool_) for encoding in encodings]
            special.append(np.concatenate(masks))
        return TokenisedRows(
            input_ids_T=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
            token_types_T=np.concatenate(types) if types else np.zeros(0, dtype=np.uint8),
            special_T=np.concatenate(special) if special else np.zeros(0, dtype=np.bool_),
            starts=np.concatenate(([0], np.cumsum(lengths))),
            labels_N=None if rows.labels is None else _labels(rows.labels),
            pad_token_id=self.pad_token_id,
            mask_token_id=self.mask_token_id,
            ordinary_ids_V=self._ordinary_ids(),
            digest=rows_digest(rows, self),
        )

    def _ordinary_ids(self) -> npt.NDArray[np.int32]:
        special = {index for index, token in self._library.get_added_tokens_decoder().items() if token.special}
        vocabulary = self._library.get_vocab(with_added_tokens=True)
        return np.array(sorted(set(vocabulary.values()) - special), dtype=np.int32)

    def save(self, folder: Path) -> None:
        """Write the tokenizer into a folder, from which `AutoTokenizer` loads it.

        The files of a tokenizer that came from a folder are copied as they are.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self._folder is not None:
            for name in TOKENIZER_FILES:
                if (self._folder / name).is_file():
                    shutil.copyfile(self._folder / name, folder / name)
            return
        self._library.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(self._config, indent=2) + "\n", encoding="utf-8")


def rows_digest(rows: SplitRows, tokenizer: RowTokenizer) -> str:
    """Return the digest of a split's tokenised rows: that of its text, a dot, that of its tokenizer."""
    return f"{rows.digest()}.{tokenizer.digest}"


def _labels(labels: tuple[int, ...] | tuple[float, ...]) -> npt.NDArray[np.int64] | npt.NDArray[np.float32]:
    are_ids = all(isinstance(label, int) for label in labels)
    return np.array(labels, dtype=np.int64) if are_ids else np.array(labels, dtype=np.float32)


def open_tokenizer(folder: Path | None) -> RowTokenizer:
    """Open the tokenizer of a Hugging Face folder, or the built-in one where ``folder`` is None.

    Raises:
        TokenizerError: the folder holds no fast tokenizer, or one that cannot pad or cut.
    """
    if folder is None:
        built_in = demo_tokenizer()
        return RowTokenizer(
            built_in,
            config=demo_config(),
            pad_token_id=SPECIAL_TOKENS.index(PAD_TOKEN),
            mask_token_id=SPECIAL_TOKENS.index(MASK_TOKEN),
            folder=None,
            digest=_digest(built_in.to_str().encode()),
        )
    path = folder / "tokenizer.json"
    try:
        is_there = path.is_file()
    except OSError as error:  # of a folder that may not be looked into, for instance
        raise TokenizerError(f"data.tokenizer: {path} cannot be read: {error.strerror}") from error
    if not is_there:
        raise TokenizerError(
            f"data.tokenizer: there is no file {path}; "
            "save the tokenizer there with AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    try:
        content = path.read_bytes()
        library = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(f"data.tokenizer: {path} cannot be read: {error}") from error
    config = _read_json(folder / "tokenizer_config.json")

    def find_id(role: str) -> int | None:
        text = _token_text(config.get(role) or _read_json(folder / "special_tokens_map.json").get(role))
        return None if text is None else library.token_to_id(text)

    side = config.get("truncation_side", "right")
    if side not in ("left", "right"):
        raise TokenizerError(f"data.tokenizer: {folder} has truncation_side {side!r}, need left or right")
    pad_token_id = find_id("pad_token")
    if pad_token_id is None:
        raise TokenizerError(
            f"data.tokenizer: {folder} names no pad token of its vocabulary; load it with AutoTokenizer, set pad_token "
            "to a token that it has, for instance its eos_token, and save it again with save_pretrained"
        )
    mask_token_id = find_id("mask_token")
    return RowTokenizer(
        library,
        config=config,
        pad_token_id=pad_token_id,
        mask_token_id=mask_token_id,
        folder=folder,
        digest=_digest(content, side, pad_token_id, mask_token_id),
    )


def _digest(content: bytes, *settings: str | int | None) -> str:
    return hashlib.blake2b(json.dumps(settings).encode() + content, digest_size=DIGEST_BYTES).hexdigest()


def require_mask_token(token_id: int | None, *, tokenizer: Path | None) -> int:
    """Return the id of the mask token.

    Raises:
        TokenizerError: the tokenizer has none.
    """
    if token_id is None:
        raise TokenizerError(
            f"data.tokenizer: {tokenizer} names no mask token of its vocabulary, and "
            "train.objective masked_lm needs one; use a tokenizer that has one, or another objective"
        )
    return token_id


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"data.tokenizer: {path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"data.tokenizer: {path} is not a JSON object")
    return value


def _token_text(token: Any) -> str | None:
    """Return a special token's text; files hold it as a string or as an object with its content."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
