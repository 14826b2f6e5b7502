"""The stage preprocess: clean, sample, re-split, augment and tokenize, with one Arrow file per partition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from include.experiment import Experiment
from include.runs import Run
from include.scratch import scratch_folder
from tasks.assets import encoder_folder, tokenizer_fingerprint, wordnet_fingerprint
from tasks.context import Context, Outcome
from tasks.encoder import lexicon
from tasks.encoder.tokens import open_tokenizer


def plan(experiment: Experiment, run: Run) -> str:
    """Return a text that changes whenever the tokenizer changes, or the lexicon or WordNet if they are used."""
    tokenizer = tokenizer_fingerprint(experiment.model.name, experiment.runtime)
    tokenizer += lexicon.fingerprint(experiment.model.lexicon)
    if "synonyms" in experiment.preprocessing.augment:
        return f"{tokenizer}-{wordnet_fingerprint(experiment.runtime)}"
    return tokenizer


def run(context: Context, plan: str) -> Outcome:
    """Write a folder of token ids for each split that has rows."""
    experiment = context.experiment
    encoder = encoder_folder(experiment.model.name, experiment.runtime)
    options = experiment.preprocessing
    # What is wrong is reported before the work starts.
    open_tokenizer(encoder / "tokenizer.json", options.max_length, options.window_stride)
    if experiment.model.kind in ("encoder", "frozen") and not _surely_fits(encoder, options.max_length):
        from tasks.encoder.loading import check_encoder  # torch takes seconds to import

        check_encoder(encoder, options.max_length)
    from tasks.stages.pipeline.preprocess.splits import tokenize_splits

    validated = context.inputs["validate"].path
    with scratch_folder(context.output, "lexicon") as folder:
        tokenizer = lexicon.write_tokenizer(encoder, experiment.model.lexicon, folder)
        counts = tokenize_splits(experiment, validated, tokenizer, context.output)
    result: dict[str, Any] = {}
    for key in ("rows", *(("windows",) if options.long == "windows" else ()), "truncated", "empty", "partitions"):
        result[key] = {name: split[key] for name, split in counts.items()}
    result["mean_length"] = {name: round(split["tokens"] / split["windows"], 2) for name, split in counts.items()}
    return Outcome(result)


def _surely_fits(encoder: Path, max_length: int) -> bool:
    """Return whether the encoder has more positions than its inputs and what a family may put before them need."""
    try:
        config = json.loads((encoder / "config.json").read_bytes())
        config = config.get("encoder", config)
        limit = config.get("max_position_embeddings")
        # RoBERTa and similar encoders count positions from the padding id plus 1.
        return limit is None or bool(limit > max_length + (config.get("pad_token_id") or 0))
    except (ValueError, AttributeError, TypeError):
        return False  # check_encoder says what is wrong
