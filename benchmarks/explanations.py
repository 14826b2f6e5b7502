"""How faithful are explanations to the model: `.venv/tasks/bin/python -m benchmarks.explanations --model FOLDER`.

The rows are dev texts of SST-2 (--data) or of the bundled corpus. Comprehensiveness is by how much the probability of
the predicted label falls without the words that contribute the most, which should be much; sufficiency is by how much
it falls if only they are left, which should be little (DeYoung et al. 2020, "ERASER: A Benchmark to Evaluate
Rationalized NLP Models"). Both are means over the 5, 10, 20 and 50 % of words with the largest contributions. Words are
taken out as explanations do it, and again replaced by the mask token, since each favors the explanations that are made
alike. Integrated gradients (Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks") go from the embedding
of padding to those of the text in 20 steps; they need PyTorch.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from benchmarks.packages import untrained
from benchmarks.tables import table
from benchmarks.workload import add_arguments, prepare
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import load_trained
from tasks.encoder.models import Classifier
from tasks.inference.explanation import Part, Reader, explanations, parts_of, without
from tasks.inference.labeler import values
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend

ROWS = 872
FEWEST = 4  # words of a text
SHARES = (0.05, 0.1, 0.2, 0.5)
STEPS = 20
MASK = "[MASK]"
Texts = Sequence[tuple[str, ...]]
#: Computes the probabilities of texts, some at a time.
Answer = Callable[[Iterable[Sequence[str]]], Iterator[Array]]
#: Returns texts without some of their parts.
Erase = Callable[[tuple[str, ...], Iterable[Part]], tuple[str, ...]]


@dataclass(frozen=True)
class Faithfulness:
    """By how much the probability of the predicted label falls, as means over rows and shares of words."""

    comprehensiveness: float  # without the words that contribute the most
    sufficiency: float  # with these words only


def left_out(texts: tuple[str, ...], parts: Iterable[Part]) -> tuple[str, ...]:
    """Leave parts out as explanations do it, the last one first."""
    for part in sorted(parts, key=lambda part: (part.text, part.start), reverse=True):
        (texts,) = without(texts, [part])
    return texts


def masked(texts: tuple[str, ...], parts: Iterable[Part]) -> tuple[str, ...]:
    """Replace parts of single texts by the mask token."""
    (text,) = texts
    for part in sorted(parts, key=lambda part: part.start, reverse=True):
        text = text[: part.start] + MASK + text[part.end :]
    return (text,)


def faithfulness(
    texts: Texts, contributions: Sequence[Array], model: Reader, answer: Answer, erase: Erase = left_out
) -> Faithfulness:
    """Measure the contributions of the parts of each row to its predicted label."""
    label = _computed(answer, texts).argmax(axis=1)
    parts = [parts_of(row, model) for row in texts]
    orders = [np.argsort(-row, kind="stable").tolist() for row in contributions]
    found = []
    for share in SHARES:
        rows = []
        for row, some, order in zip(texts, parts, orders, strict=True):
            most = math.ceil(share * len(some))
            rows.append([erase(row, [some[at] for at in order[:most]]), erase(row, [some[at] for at in order[most:]])])
        sides = [[*texts], [without_most for without_most, _ in rows], [only_most for _, only_most in rows]]
        before, *after = (_computed(answer, side)[np.arange(len(texts)), label] for side in sides)
        found.append([(before - side).mean() for side in after])
    return Faithfulness(*np.mean(found, axis=0).tolist())


def _computed(answer: Answer, texts: Iterable[Sequence[str]]) -> Array:
    return np.concatenate(list(answer(texts)))


def main() -> None:
    """Explain the same texts in each way, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--model", type=Path, help="the folder of a trained model of single texts and classes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        workload = prepare(arguments, scratch)
        tokens = TokenTable.open(workload.data / "dev")
        texts: Texts = tokens.sentences(tokens.documents)
        folder = arguments.model or untrained(workload.encoder, scratch / "model")
        texts = [row for row in texts if len(row[0].split()) >= FEWEST][: 20 if arguments.quick else arguments.rows]
        print(_compare(folder, texts))


def _compare(folder: Path, texts: Texts) -> str:
    model = load_trained(folder)
    runner = Runner(folder, TorchBackend(model, torch.get_num_threads()))
    parts, random = [parts_of(row, runner.head) for row in texts], np.random.default_rng(0)

    def answer(some: Iterable[Sequence[str]]) -> Iterator[Array]:
        return (values(runner.head, logits) for logits in runner.logits(some))

    def by_masking() -> list[Array]:
        every = [
            (masked(row, [part]), whole)
            for row, some, whole in zip(texts, parts, answers, strict=True)
            for part in some
        ]
        changed = _computed(answer, (row for row, _ in every))
        falls = [whole.max() - one[whole.argmax()] for (_, whole), one in zip(every, changed, strict=True)]
        return np.split(np.array(falls), np.cumsum([len(some) for some in parts])[:-1])

    def by_leaving_out() -> list[Array]:
        found = explanations(runner.head, runner.head.label_names, texts, answers, answer)
        return [np.array([part["contribution"] for part in row]) for row in found]

    answers = _computed(answer, texts)
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    methods: dict[str, Callable[[], Sequence[Array]]] = {
        "words left out": by_leaving_out,
        "words masked": by_masking,
        f"integrated gradients, {STEPS} steps": lambda: [
            gradients(model, words, row[0], some) for row, some in zip(texts, parts, strict=True)
        ],
        "random": lambda: [random.random(len(some)) for some in parts],
    }
    lines = []
    for name, method in methods.items():
        started = time.perf_counter()
        contributions = method()
        seconds = time.perf_counter() - started
        figures = [faithfulness(texts, contributions, runner.head, answer, erase) for erase in (left_out, masked)]
        cells = [f"{value:.4f}" for one in figures for value in (one.comprehensiveness, one.sufficiency)]
        lines.append([name, *cells, f"{1000 * seconds / len(texts):.1f}"])
    header = ("contributions", "comprehensiveness", "sufficiency", "comp., masked", "suff., masked", "ms per text")
    return f"{len(texts)} texts of {np.mean([len(some) for some in parts]):.1f} words\n\n{table(header, lines)}"


def gradients(model: Classifier, words: Tokenizer, text: str, parts: Sequence[Part]) -> Array:
    """Return the integrated gradients of the predicted label's probability, summed over the tokens of each part."""
    encoding = words.encode(text)
    ids = torch.tensor([encoding.ids])
    embed = model.encoder.get_input_embeddings()
    special = torch.tensor(encoding.special_tokens_mask).bool()
    ends = [embed(each)[0].detach() for each in (ids * special, ids)]
    steps = (torch.arange(STEPS) + 0.5)[:, None, None] / STEPS
    path = (ends[0] + steps * (ends[1] - ends[0])).requires_grad_()
    copies = ids.expand(STEPS, -1)
    with torch.no_grad():
        label = int(model(ids, torch.ones_like(ids), torch.zeros_like(ids)).argmax())
    hook = embed.register_forward_hook(lambda *_: path)
    try:
        logits = model(copies, torch.ones_like(copies), torch.zeros_like(copies))
    finally:
        hook.remove()
    (slopes,) = torch.autograd.grad(logits.softmax(dim=1)[:, label].sum(), path)
    tokens = (slopes.mean(dim=0) * (ends[1] - ends[0])).sum(dim=1).numpy()
    spans = [start for start, _ in encoding.offsets]
    inside = ~special.numpy()
    return np.array(
        [
            tokens[[inside[at] and part.start <= start < part.end for at, start in enumerate(spans)]].sum()
            for part in parts
        ]
    )


if __name__ == "__main__":
    main()
