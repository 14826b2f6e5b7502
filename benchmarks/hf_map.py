"""datasets' way from a TSV file to saved token ids: `python -m benchmarks.hf_map FILE ENCODER FOLDER PROCESSES`."""

from __future__ import annotations

import sys
from typing import Any


def main(file: str, encoder: str, folder: str, processes: str) -> None:
    """Save the rows with their token ids, at most 128 per row, as Arrow files in the folder."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder)

    def tokenize(batch: dict[str, list[Any]]) -> Any:
        return tokenizer(batch["sentence"], truncation=True, max_length=128)

    rows = load_dataset("csv", data_files=file, delimiter="\t", split="train", cache_dir=folder)
    made = rows.map(tokenize, batched=True, num_proc=int(processes))  # which saves them
    print(f"{len(made)} rows in {len(made.cache_files)} files")


if __name__ == "__main__":
    main(*sys.argv[1:])
