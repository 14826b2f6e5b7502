"""Every benchmark's quick form runs and prints its tables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tasks.launching.launch import ROOT

#: How some of the tables' rows begin.
ROWS = {
    "train_throughput": ["Trainer, as run_glue uses it", "Trainer, best switches", "ours, 1 x "],
    "compression": ["none", "onebit"],
    "techniques": ["default", "stop-words", "augment-order"],
    "pooling": ["native", "mean", "cls"],
    "long_documents": ["truncated to 128", "windows of 128, 32 shared", "truncated to 128, scored in windows"],
    "distillation": ["teacher", "distilled", "hard labels, as many steps"],
    "lora": ["full", "LoRA, attention"],
    "memory": ["base: static batches, fp32", "full, parameter server for compression"],
    "resume": ["1", "MiniLM"],
    "search_kills": ["undisturbed", "killed"],
    "search_steps": ["1"],
    "overlap": ["allreduce.rest.plain", "after backward", "during backward"],
    "contention": ["libgomp's own"],
    "one_host": ["1 x 2", "2 x 1, Gloo", "2 x 1, shared memory"],
    "polling": ["shared memory", "onebit, through Gloo", "parameter server"],
    "step_parts": ["a step", "matrix products of the linear layers", "everything else"],
    "hybrid": ["1 rank", "tensor 2", "pipeline 2", "shard 2"],
    "scaling": ["sum, between hosts", "ring, 2", "ring, onebit, 4", "hierarchical, hosts of 2, 4", "powersgd"],
    "gpu": ["fp32", "base: static batches, fp32", "bf16 without padding, on one GPU", "Trainer, best switches"],
    "preprocess_scale": ["200"],
    "max_risk": ["SST-2, 4,000", "STS-B, 4,000", "STS-B in 6 classes, 4,000"],
    "predict_throughput": ["pipeline, batch 1", "predict_batch_udf", "ours, static 32", "ours, tiers", "ours, tokens"],
    "explanations": ["words left out", "words masked", "integrated gradients", "random"],
    "serve_load": [
        *("ours", "ours, in fp32", "FastAPI with a pipeline", "the lab's way", "mlflow models serve", "LitServe"),
        *("32", "0.5 x capacity", "4 x capacity", "without swaps", "during 2 swaps"),
    ],
}


@pytest.mark.parametrize("name", ROWS)
def test_the_quick_form_prints_its_tables(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    rows = _rows(done.stdout)
    for start in ROWS[name]:
        assert any(first.startswith(start) for first, *_ in rows), done.stdout
    assert not any("nan" in cells for cells in rows)


def _rows(text: str) -> list[list[str]]:
    """The cells of all tables' rows, each row with as many as its header has."""
    rows: list[list[str]] = []
    columns = 0
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            columns = 0
        elif not columns:
            columns = len(cells)
        elif "---" not in line:
            assert len(cells) == columns
            rows.append(cells)
    return rows
