"""Tiny encoders of many families with random weights, each with a tokenizer of the family's kind."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from tests.tasks.encoder.samples import reviews

_WORDPIECE = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_BPE = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_DISENTANGLED = {
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "max_relative_positions": -1,
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0,
}  # fmt: skip
#: The tokenizer of each family, and the values of its configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("wordpiece", {}),
    "distilbert": ("wordpiece", {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}),
    "electra": ("wordpiece", {"embedding_size": 16}),
    "mpnet": ("wordpiece", {"pad_token_id": 0}),
    "roberta": ("bpe", {"type_vocab_size": 1}),
    "modernbert": ("bpe", {"local_attention": 8, "layer_types": ["full_attention", "sliding_attention"]}),
    "albert": ("unigram", {"embedding_size": 16}),
    "xlm-roberta": ("unigram", {"type_vocab_size": 1}),
    "deberta-v2": ("unigram", _DISENTANGLED),
}


def family(folder: Path, kind: str) -> Path:
    """Save an encoder of a family, without dropout and with its tokenizer, in the format of the Hugging Face hub."""
    tokenizer, values = FAMILIES[kind]
    words, special = _tokenizer(tokenizer)
    sizes = {
        "vocab_size": words.get_vocab_size(), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 66,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0,
        "pad_token_id": words.token_to_id(special[1]), "bos_token_id": words.token_to_id(special[0]),
        "eos_token_id": words.token_to_id(special[2]), "cls_token_id": words.token_to_id(special[0]),
        "sep_token_id": words.token_to_id(special[2]),
    }  # fmt: skip
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **{**sizes, **values}))  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), special, strict=True))
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if tokenizer == "wordpiece" else [])]
    PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=inputs, **names).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return folder


def _tokenizer(kind: str) -> tuple[Tokenizer, tuple[str, str, str, str, str]]:
    """Train a tokenizer. Also return its tokens that begin, pad, separate, stand for the unknown, and mask."""
    texts = [text for (text,) in reviews(100)[0]]
    if kind == "wordpiece":
        return _wordpiece(texts), ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
    words = _bpe(texts) if kind == "bpe" else _unigram(texts)
    return words, ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def _wordpiece(texts: Iterable[str]) -> Tokenizer:
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=120, special_tokens=list(_WORDPIECE)))
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    words.decoder = decoders.WordPiece()
    return words


def _bpe(texts: Iterable[str]) -> Tokenizer:
    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=320, special_tokens=list(_BPE), initial_alphabet=alphabet)
    )
    words.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    return words


def _unigram(texts: Iterable[str]) -> Tokenizer:
    """SentencePiece's model, as transformers converts it."""
    words = Tokenizer(models.Unigram())
    words.normalizer, words.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    words.train_from_iterator(
        texts, trainers.UnigramTrainer(vocab_size=120, special_tokens=list(_BPE), unk_token="<unk>")
    )
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    words.decoder = decoders.Metaspace()
    return words
