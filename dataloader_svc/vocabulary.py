"""The built-in tokenizer: one word, one id, over the words of the built-in task."""

from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from dataloader_svc.demo import demo_words

PAD_TOKEN, UNKNOWN_TOKEN, CLASS_TOKEN, SEPARATOR_TOKEN, MASK_TOKEN = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNKNOWN_TOKEN, CLASS_TOKEN, SEPARATOR_TOKEN, MASK_TOKEN)
"""Their place is their id."""


def demo_tokenizer() -> Tokenizer:
    """Return the built-in tokenizer; rows are framed as BERT wants them."""
    words = (*SPECIAL_TOKENS, *demo_words())
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, UNKNOWN_TOKEN))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        (SEPARATOR_TOKEN, words.index(SEPARATOR_TOKEN)), (CLASS_TOKEN, words.index(CLASS_TOKEN))
    )
    return tokenizer


def demo_config() -> dict[str, Any]:
    """Return the tokenizer_config.json that goes with it."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "pad_token": PAD_TOKEN,
        "unk_token": UNKNOWN_TOKEN,
        "cls_token": CLASS_TOKEN,
        "sep_token": SEPARATOR_TOKEN,
        "mask_token": MASK_TOKEN,
    }
