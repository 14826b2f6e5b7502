"""What a model with a head computes, and that it comes back as it was saved, here and in plain transformers."""

from __future__ import annotations

import dataclasses
import json
import resource
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from include.stages import BadInput, Transient
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import copy_tokenizer, load_encoder, load_pretrained, load_trained, read_head
from tasks.encoder.models import MaskedLanguageModel, predict_logits
from tasks.encoder.spec import HeadSpec
from tasks.encoder.tokens import open_tokenizer
from tests.tasks.encoder.families import family
from tests.tasks.encoder.samples import edit_config, label_sets, reviews, write_split

POOLINGS: tuple[Any, ...] = ("native", "mean", "cls")
SPEC = HeadSpec("classification", 2, max_length=32, label_names=("negative", "positive"))
SCORES = HeadSpec("regression", 1, max_length=32, score_range=(1.0, 5.0))


def test_padding_changes_nothing(folder: Path) -> None:
    model = load_pretrained(folder, SPEC).eval()
    ids = torch.tensor([[2, 4, 9, 3]])
    padded = torch.tensor([[2, 4, 9, 3, 7, 7, 7]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    alone, beside = model(ids, torch.ones_like(ids)), model(padded, mask)
    torch.testing.assert_close(alone, beside, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_by_hand(folder: Path, pooling: Any) -> None:
    model = load_pretrained(folder, dataclasses.replace(SPEC, pooling=pooling)).eval()
    ids = torch.tensor([[2, 4, 9, 3], [2, 5, 3, 0]])
    mask = (ids != 0).long()
    tokens = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    rows = torch.stack(
        [tokens[0].mean(0), tokens[1, :3].mean(0)] if pooling == "mean" else [tokens[0, 0], tokens[1, 0]]
    )
    if pooling == "native":  # BERT's pooler
        rows = torch.tanh(cast(Any, model.encoder).pooler.dense(rows))
    torch.testing.assert_close(model(ids, mask), model.output_layer(rows))


def test_segments_reach_an_encoder_that_has_them_and_no_other(folder: Path, tmp_path: Path) -> None:
    ids = torch.tensor([[2, 4, 3, 9, 3]])
    mask, segments = torch.ones_like(ids), torch.tensor([[0, 0, 0, 1, 1]])
    bert = load_pretrained(folder, SPEC).eval()
    assert not torch.equal(bert(ids, mask, segments), bert(ids, mask))
    mpnet = load_pretrained(family(tmp_path / "mpnet", "mpnet"), SPEC).eval()
    assert torch.equal(mpnet(ids, mask, segments), mpnet(ids, mask))


def test_an_untrained_regression_says_the_middle_of_its_range(folder: Path) -> None:
    spec = HeadSpec("regression", 1, max_length=32, score_range=(0.0, 100.0))
    scores = load_pretrained(folder, spec).eval()(torch.tensor([[2, 4, 3]]), torch.ones(1, 3, dtype=torch.long))
    assert scores.shape == (1, 1)
    assert 0 < scores.item() < 100


def test_the_windows_of_a_model_are_not_those_of_one_that_is_trained_on_from_it(folder: Path, tmp_path: Path) -> None:
    model, saved = load_pretrained(folder, dataclasses.replace(SPEC, stride=4)), tmp_path / "model"
    model.save(saved)
    copy_tokenizer(folder, saved, model, SPEC.max_length)
    assert load_trained(saved).spec.stride == 4
    for pooling in ("native", "mean"):  # with the head of the model, and with another one
        again = load_pretrained(saved, dataclasses.replace(SPEC, pooling=pooling))
        again.save(tmp_path / pooling)
        copy_tokenizer(folder, tmp_path / pooling, again, SPEC.max_length)
        assert load_trained(tmp_path / pooling).spec.stride is None


def test_what_is_saved_comes_back_and_plain_transformers_reads_it(folder: Path, tmp_path: Path) -> None:
    model, saved = load_pretrained(folder, SPEC).eval(), tmp_path / "model"
    model.save(saved)
    copy_tokenizer(folder, saved, model, SPEC.max_length)
    again = load_trained(saved)
    ids = torch.tensor([[2, 4, 9, 3]])
    mask = torch.ones_like(ids)
    assert not again.training
    assert again.spec == SPEC
    assert torch.equal(again(ids, mask), model(ids, mask))
    plain = AutoModel.from_pretrained(saved).eval()
    assert torch.equal(plain(ids, mask).last_hidden_state, model.encoder(ids, mask).last_hidden_state)
    assert AutoTokenizer.from_pretrained(saved)("good word3")["input_ids"] == [2, 4, 9, 3]


def test_a_trained_model_brings_its_head_where_it_says_the_same(folder: Path, tmp_path: Path) -> None:
    model, saved = load_pretrained(folder, SPEC), tmp_path / "model"
    model.save(saved)
    copy_tokenizer(folder, saved, model, SPEC.max_length)
    warm = load_pretrained(saved, dataclasses.replace(SPEC, dropout=0.3))
    assert warm.training and warm.spec.dropout == 0.3
    assert torch.equal(warm.output_layer.weight, model.output_layer.weight)
    assert [part.p for part in warm.model.children() if isinstance(part, torch.nn.Dropout)] == [0.3]
    other = load_pretrained(saved, dataclasses.replace(SPEC, label_names=("bad", "worse")))
    assert not torch.equal(other.output_layer.weight, model.output_layer.weight)


def test_logits_of_a_split_are_in_table_order(folder: Path, tmp_path: Path) -> None:
    table = TokenTable.open(write_split(tmp_path / "dev", *reviews(33)))
    model = load_pretrained(folder, SPEC)
    logits = predict_logits(model, table, batch_tokens=100)
    assert model.training  # as it was
    for index in (0, 7, 32):
        batch = table.batch(np.array([index]))
        alone = model.eval()(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        np.testing.assert_allclose(logits[index], alone[0].detach().numpy(), atol=1e-5)


def test_a_full_disk_while_a_model_is_written_can_be_tried_again(folder: Path, tmp_path: Path) -> None:
    model = load_pretrained(folder, SPEC)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))  # bytes that one file may have
    try:
        with pytest.raises(Transient, match="cannot write the model"):
            model.save(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_every_head_can_follow_every_other(tmp_path: Path) -> None:
    """A model that was saved with one head is the encoder of a model with another, or of a pre-training."""
    ids = torch.tensor([[2, 4, 9, 3]])
    mask = torch.ones_like(ids)
    for kind in ("bert", "albert", "roberta"):
        plain = family(tmp_path / kind / "encoder", kind)
        for before in POOLINGS:
            model, saved = load_pretrained(plain, dataclasses.replace(SCORES, pooling=before)), tmp_path / kind / before
            model.save(saved)
            copy_tokenizer(plain, saved, model, 32)
            tokens = model.eval().encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            for after in POOLINGS:
                other = load_pretrained(saved, dataclasses.replace(SPEC, pooling=after)).eval()
                assert other(ids, mask).shape == (1, 2)
                torch.testing.assert_close(other.encoder(input_ids=ids, attention_mask=mask).last_hidden_state, tokens)
                other.save(saved.with_name(f"{before}-{after}"))
                copy_tokenizer(plain, saved.with_name(f"{before}-{after}"), other, 32)
                assert load_trained(saved.with_name(f"{before}-{after}")).spec == other.spec
            masked = MaskedLanguageModel(load_encoder(saved, 32)).eval()
            torch.testing.assert_close(masked.encoder(input_ids=ids, attention_mask=mask).last_hidden_state, tokens)


def test_a_kept_head_says_what_it_predicts(folder: Path, tmp_path: Path) -> None:
    model, saved = load_pretrained(folder, SPEC), tmp_path / "model"
    model.save(saved)
    copy_tokenizer(folder, saved, model, 32)
    edit_config(saved, problem_type=None)  # as most models elsewhere
    kept = load_pretrained(saved, SPEC)
    assert torch.equal(kept.output_layer.weight, model.output_layer.weight)
    assert kept.model.config.problem_type == "single_label_classification"


@pytest.mark.parametrize("pooling", POOLINGS)
def test_half_precision_and_the_insides_are_to_be_had(folder: Path, tmp_path: Path, pooling: Any) -> None:
    load_pretrained(folder, dataclasses.replace(SPEC, pooling=pooling)).save(tmp_path / "model")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", dtype=torch.bfloat16)
    found = plain(torch.tensor([[2, 4, 9, 3]]), output_hidden_states=True)
    assert found.logits.dtype == torch.bfloat16
    assert len(found.hidden_states) == 3


def test_the_copied_tokenizer_is_the_one_that_trained(tmp_path: Path) -> None:
    """Whatever class the folder names: that class of transformers would change lower to upper case, for example."""
    source = family(tmp_path / "encoder", "bert")
    values = json.loads((source / "tokenizer.json").read_text())
    values["normalizer"]["lowercase"] = False
    (source / "tokenizer.json").write_text(json.dumps(values))
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "BertTokenizer"}))
    copy_tokenizer(source, tmp_path / "model", load_pretrained(source, SPEC), 32)
    for text in ("good WORD3 Bad", "good word3"):
        expected = open_tokenizer(source / "tokenizer.json", 32).encode(text, "bad")
        found = AutoTokenizer.from_pretrained(tmp_path / "model")(text, "bad")
        assert (found["input_ids"], found["token_type_ids"]) == (expected.ids, expected.type_ids)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_plain_transformers_applies_a_sigmoid_to_several_labels(folder: Path, tmp_path: Path, pooling: Any) -> None:
    spec = HeadSpec("multilabel", 3, pooling, max_length=32, label_names=("acting", "music", "plot"))
    model = load_pretrained(folder, spec).eval()
    torch.nn.init.normal_(model.output_layer.weight, std=0.5)
    model.save(tmp_path / "saved")
    copy_tokenizer(folder, tmp_path / "saved", model, 32)
    edit_config(tmp_path / "saved", thresholds=[0.25, 0.5, 0.75])
    loaded = load_trained(tmp_path / "saved")
    assert loaded.spec == dataclasses.replace(spec, dropout=spec.dropout, thresholds=(0.25, 0.5, 0.75))
    sentences, labels = label_sets(8)
    table = TokenTable.open(write_split(tmp_path / "split", sentences, labels))
    expected = torch.from_numpy(predict_logits(loaded, table)).sigmoid().numpy()
    plain: Any = pipeline("text-classification", str(tmp_path / "saved"), top_k=None, trust_remote_code=True)
    for row, scores in enumerate(plain([text for (text,) in sentences])):
        found = {one["label"]: one["score"] for one in scores}
        assert [found[name] for name in spec.label_names] == pytest.approx(expected[row], abs=1e-5)


def test_a_head_for_several_labels_is_kept_for_the_same_labels_only(folder: Path, tmp_path: Path) -> None:
    spec = HeadSpec("multilabel", 2, max_length=32, label_names=("acting", "plot"))
    model = load_pretrained(folder, spec)
    model.save(tmp_path / "saved")
    copy_tokenizer(folder, tmp_path / "saved", model, 32)
    same = load_pretrained(tmp_path / "saved", spec)
    assert torch.equal(same.output_layer.weight, model.output_layer.weight)
    classes = load_pretrained(tmp_path / "saved", dataclasses.replace(spec, kind="classification"))
    assert not torch.equal(classes.output_layer.weight, model.output_layer.weight)


def test_a_saved_model_knows_how_its_texts_were_cleaned_and_one_of_other_origin_does_not(
    encoder: Path, tmp_path: Path
) -> None:
    model = load_pretrained(encoder, dataclasses.replace(SPEC, cleaning=("html",), texts=2))
    model.save(tmp_path / "model")
    copy_tokenizer(encoder, tmp_path / "model", model, 32)
    head = read_head(tmp_path / "model")
    assert (head.cleaning, head.texts) == (("html",), 2)
    again = load_pretrained(tmp_path / "model", dataclasses.replace(SPEC, texts=1))
    assert torch.equal(again.output_layer.weight, model.output_layer.weight)
    again.save(tmp_path / "model")
    head = read_head(tmp_path / "model")
    assert (head.cleaning, head.texts) == ((), 1)
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in config.items() if name not in ("cleaning", "texts")}))
    head = read_head(tmp_path / "model")
    assert (head.cleaning, head.texts) == ((), None)
    file.write_text(json.dumps({**config, "cleaning": ["stem"]}))
    with pytest.raises(BadInput, match=r"config\.json: there is no cleaning rule 'stem'"):
        read_head(tmp_path / "model")


@torch.no_grad()
def test_a_model_that_has_collapsed_to_a_constant_near_zero_is_loaded(folder: Path, tmp_path: Path) -> None:
    model, saved = load_pretrained(folder, dataclasses.replace(SPEC, pooling="mean")).eval(), tmp_path / "model"
    last = cast(Any, model.encoder).encoder.layer[-1].output.LayerNorm
    last.weight.fill_(1e-7)  # so the rows differ by less than rounding
    last.bias.copy_(torch.linspace(1, 2, len(last.bias)))
    ids = torch.tensor([[2, 4, 9, 3]])
    model.output_layer.bias.sub_(model(ids, torch.ones_like(ids))[0])
    model.save(saved)
    copy_tokenizer(folder, saved, model, SPEC.max_length)
    assert load_trained(saved)(ids, torch.ones_like(ids)).abs().max() < 1e-5
