from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from include.experiment import Experiment
from include.glue import LOSSES
from include.named_experiments import build, load, names, parse_overrides, require_threshold
from include.stages import STAGES, BadInput


@pytest.mark.parametrize("name", names())
def test_every_named_experiment_is_valid(name: str) -> None:
    experiment = load(name)
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment
    assert experiment.thresholds, "a named experiment has a gate"


def test_an_experiment_is_frozen() -> None:
    with pytest.raises(ValidationError):
        load("movies").training.epochs = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epochs=-1", "training.epochs = -1: input should be greater than 0"),
        ("training.epochs=.inf", "training.epochs = '.inf': input should be a valid number"),
        ("training.epochs=inf", "training.epochs = inf: input should be a finite number"),
        ("training.batch_size=1.5", "training.batch_size = 1.5: input should be a valid integer"),
        ("training.learning_rate=0", "training.learning_rate = 0: input should be greater than 0"),
        ("training.learning_rate=1e9", "less than or equal to 0.1"),
        ("preprocessing.max_length=0", "preprocessing.max_length = 0"),
        ("preprocessing.max_length=100000", "less than or equal to 512"),
        ("preprocessing.stride=257", "preprocessing.stride = 257: input should be less than or equal to 256"),
        ("training.epoch=1", "unknown key training.epoch, did you mean epochs?"),
        ("trainig.epochs=1", "unknown key trainig, did you mean training?"),
        ("gate.acuracy=0.9", "unknown key gate.acuracy, did you mean accuracy?"),
        ("gate.F1=0.9", "unknown key gate.F1, did you mean f1?"),
        ("gate.f1_score=0.9", "unknown key gate.f1_score, did you mean f1?"),
        ("gate.macro_f1=0.9", "unknown key gate.macro_f1, did you mean f1_macro?"),
        ("data.sample=0.1", "unknown key data.sample, did you mean preprocessing.sample?"),
        ("train.epochs=1", "unknown key train, did you mean training or data.train?"),
        ("model.epochs=1", "unknown key model.epochs, did you mean pretraining.epochs or training.epochs?"),
        ("data.task=SST-3", "data.task: there is no task 'SST-3': write one of movie-reviews, SST-2, CoLA"),
        ("data.task=SST-2", "write data.source: glue, hub, files, delta or iceberg"),
        ("data.source=glue", "is not available from data.source glue"),
        ("training.ranks=3", "batch_size 32 is not a multiple of training.ranks 3: write 30"),
        (
            "training.ranks=0",
            "training.ranks: 0 is not a number of ranks: write auto, or a whole number from 1 to 1024",
        ),
        ("training.ranks=all", "training.ranks: 'all' is not a number of ranks: write auto, or a whole number"),
        (
            "runtime.ranks_on=spark",
            "runtime.ranks_on spark needs a number of ranks, but training.ranks auto is chosen for one",
        ),
        ("gate.pearson=0.5", "gate.pearson does not fit the classification task movie-reviews"),
        ("gate.accuracy=92.7", "gate.accuracy = 92.7: input should be less than or equal to 1"),
        ("preprocessing.clean=[html, stem]", "preprocessing.clean.1 = 'stem'"),
        ("preprocessing.augment=[shuffle]", "preprocessing.augment.0 = 'shuffle': input should be 'synonyms', 'mask"),
        ("gate.slices={length:long: 80}", "gate.slices.length:long = 80: input should be less than or equal to 1"),
        (
            "gate.slices={length:tiny: 0.8}",
            "gate.slices names 'length:tiny', which is not a slice of dev: write "
            "one of length:short, length:medium, length:long, label:negative, label:positive",
        ),
        ("retraining.min_agreement=0.9", "retraining.trial_texts is 0, so there is none: write the number of texts"),
        ("training=3", "cannot read the override"),
        ("training.epochs", "cannot read the override"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_a_remedy(override: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        load("movies", [override])
    assert message in str(error.value)


def test_the_terms_of_a_lexicon_are_trained() -> None:
    with pytest.raises(BadInput, match=r"terms of model\.lexicon: write training\.lora_rank: 0, or no model\.lexicon"):
        load("movies", ["model.lexicon=film", "training.lora_rank=8"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.ranks=3", "training.ranks 3 is not a multiple of 2, the number of ranks that parallel.tensor, "
         "parallel.pipeline and parallel.shard divide a model among: write 2, or training.ranks: auto"),
        ("training.sparse_embeddings=true", "not with parallel.tensor, pipeline or shard: write training.sparse_embe"),
        ("training.fused_layers=true", "write training.fused_layers: false"),
        ("training.compiled_layers=true", "write training.compiled_layers: false"),
        ("training.lora_rank=8", "write training.lora_rank: 0"),
        ("training.average_decay=0.9", "write training.average_decay: 0.0"),
        ("batching.padding_free=true", "write batching.padding_free: false"),
        ("communication.strategy=parameter-server", "write communication.strategy: all-reduce"),
        ("communication.compression=int8", "write communication.compression: none"),
        ("pretraining.text=texts.txt", 'write pretraining.text: ""'),
        ("model.teacher=large", 'write model.teacher: ""'),
        ("runtime.lost_rank=shrink", "write runtime.lost_rank: fail"),
        ("parallel.shard=2", "set one of the two fields to 1"),
        ("parallel.pipeline=8", "parallel.micro_batches 4 leave some of the 8 stages of parallel.pipeline idle"),
        ("training.accumulation=2", "write parallel.micro_batches"),
        ("training.freeze_layers=1", "write training.freeze_layers: 0, or parallel.pipeline: 1"),
        ("model.kind=textcnn", "parallel.pipeline 2 has no meaning with model.kind textcnn"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_divided_model_is_refused(override: str, message: str) -> None:
    plain = ["parallel.pipeline=2", "training.sparse_embeddings=false", "training.fused_layers=false"]
    assert load("movies", plain).parallel.ranks == 2
    with pytest.raises(BadInput) as error:
        load("movies", [*plain, override])
    assert message in str(error.value)


def test_ranks_that_share_rows_do_not_divide_a_batch() -> None:
    plain = ["training.sparse_embeddings=false", "training.fused_layers=false", "training.batch_size=6"]
    assert load("movies", [*plain, "parallel.tensor=4", "training.ranks=8"]).parallel.same_rows == 4
    with pytest.raises(BadInput, match="not a multiple of the 4 ranks that compute different rows: write 4"):
        load("movies", [*plain, "parallel.shard=4"])


def test_windows_that_do_not_fit_are_refused_with_a_remedy() -> None:
    windows = ["preprocessing.long=windows", "preprocessing.max_length=33"]
    with pytest.raises(
        BadInput, match=r"stride 17 is more than half .* 33, .*: write preprocessing.stride: 16 or less"
    ):
        load("movies", [*windows, "preprocessing.stride=17"])
    with pytest.raises(BadInput, match=r"windows is for single texts, .*: write preprocessing.long: truncate"):
        load("stsb", ["data.path=glue", *windows, "preprocessing.stride=8"])
    assert load("movies", [*windows, "preprocessing.stride=16"]).preprocessing.window_stride == 16
    assert load("movies", ["preprocessing.max_length=33"]).preprocessing.window_stride is None


def test_truncation_leaves_the_key_of_preprocess_as_it_was() -> None:
    assert "preprocessing.long" not in STAGES["preprocess"].key_part(load("movies"))
    assert (
        STAGES["preprocess"].key_part(load("movies", ["preprocessing.long=windows"]))["preprocessing.long"] == "windows"
    )


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(BadInput) as error:
        load("movies", ["data.task=classification", "data.labels=[yes]", "training.ranks=3"])
    for remedy in (
        "write data.source: files, delta or iceberg;",
        "needs data.path",
        "needs two or more data.labels",
        "write 30",
    ):
        assert remedy in str(error.value)
    assert "remove data.columns" not in str(error.value)  # they belong to files


@pytest.mark.parametrize(
    ("kind", "override", "message"),
    [
        (
            "tfidf",
            "training.lora_rank=8",
            "training.lora_rank 8 has no meaning with model.kind tfidf, which is a regression",
        ),
        ("tfidf", "model.pooling=mean", "write model.pooling: native, or model.kind: encoder"),
        ("frozen", "communication.compression=fp16", "write communication.compression: none"),
        ("frozen", "loss.kind=focal", "write loss.kind: auto"),
        ("frozen", "training.ranks=2", "trained by Spark and not by ranks: write training.ranks: auto"),
        ("frozen", "model.teacher=large", 'write model.teacher: "", or model.kind: encoder'),
        ("textcnn", "pretraining.text=imdb.txt", 'write pretraining.text: "", or model.kind: encoder'),
        ("textcnn", "training.freeze_layers=1", "model.kind textcnn, which is a network without encoder layers"),
        ("textcnn", "retraining.start=champion", "write retraining.start: encoder"),
    ],
)
def test_what_a_baseline_does_not_have_is_refused(kind: str, override: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        load("movies", [f"model.kind={kind}", override])
    assert message in str(error.value)


@pytest.mark.parametrize("kind", ["frozen", "tfidf", "textcnn"])
@pytest.mark.parametrize("name", ["movies", "sst2", "cola", "stsb"])
def test_named_experiments_allow_every_kind(name: str, kind: str) -> None:
    experiment = load(name, [f"model.kind={kind}", "training.ranks=1"])
    assert STAGES["preprocess"].key_part(experiment) == STAGES["preprocess"].key_part(load(name))


def test_movie_reviews_may_come_from_files_too() -> None:
    assert load("movies", ["data.source=files", "data.path=reviews"]).task.gate == 0.85


def test_any_batch_size_goes_with_ranks_that_the_machine_decides() -> None:
    assert load("movies", ["training.batch_size=33"]).training.ranks == "auto"


@pytest.mark.parametrize("kind", ["tokens", "tiers"])
def test_ranks_need_not_divide_a_batch_size_that_is_not_used(kind: str) -> None:
    assert load("movies", ["training.ranks=3", f"batching.kind={kind}"]).training.batch_size % 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"task": "SST-2", "source": "glue"}, "needs data.path"),
        ({"task": "classification", "source": "files", "path": "x", "labels": ["a"]}, "needs two or more data.labels"),
        (
            {"task": "regression", "source": "files", "path": "x", "score_range": [5, 0]},
            r"data.score_range \[5, 0\] is reversed: write \[0, 5\]",
        ),
        ({"task": "regression", "source": "files", "path": "x", "score_range": [5, 5]}, "write the lowest and highest"),
        (
            {"task": "regression", "source": "hub", "score_range": [0, 5]},
            "is not available from data.source hub: write data.source: files",
        ),
        ({"task": "SST-2", "source": "files", "path": "x", "labels": ["a", "b"]}, "has its own labels"),
        (
            {"task": "SST-2", "source": "glue", "path": "x", "columns": {"label": "y"}},
            'data.columns {"label": "y"} works only with',
        ),
        (
            {"task": "SST-2", "source": "glue", "path": "x", "label_map": {"a": "0"}},
            'data.label_map {"a": "0"} works only with',
        ),
        (
            {"task": "regression", "source": "delta", "path": "x", "delimiter": ";"},
            "delimiter ; works only with data.source files, not with delta",
        ),
        ({"task": "SST-2", "source": "delta"}, "data.source delta needs data.path: write the folder or the address"),
        ({"task": "SST-2", "source": "iceberg", "path": "sqlite:///x"}, "iceberg needs data.table: write the name"),
        ({"task": "SST-2", "source": "delta", "path": "x", "table": "a.b.c"}, "works only with data.source iceberg"),
        ({"task": "SST-2", "source": "files", "path": "x", "version": "1"}, "works only with data.source delta and"),
        ({"task": "SST-2", "source": "delta", "path": "x", "version": "one"}, "data.version"),
        (
            {"task": "SST-2", "source": "delta", "path": "x", "test": "y"},
            "has no meaning with data.source delta, a table",
        ),
        (
            {"task": "SST-2", "source": "iceberg", "path": "postgresql://me:secret@db/x", "table": "a.b.c"},
            "the address contains a login",
        ),
        ({"delimiter": ";;"}, "';;' cannot separate columns: write one character, such as ; or the word tab"),
        ({"encoding": "cp12525"}, "there is no encoding 'cp12525': write, for example, utf-8, cp1252"),
    ],
)
def test_an_impossible_pair_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build({"data": data}, "the experiment")


def test_kept_columns_differ_in_more_than_case() -> None:
    data = {"task": "classification", "source": "files", "path": "x", "labels": ["a", "b"], "keep": ["id", "x", "ID"]}
    with pytest.raises(BadInput, match=r"data\.keep names 'ID' twice \(case is ignored, as Spark does\): name it once"):
        build({"data": data}, "mine")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["no", ""], "the label '' has no visible character"),
        (["no", " \u200b\u00a0"], r"the label ' \u200b\xa0' has no visible character: rename it"),
        (["no", "yes", "no"], "the label 'no' is listed twice: list each label once"),
        (["no", "yes\tplease"], r"the label 'yes\tplease' contains a tab, a line break or another control character"),
        (["no", "yes\n"], r"the label 'yes\n' contains a tab, a line break"),
        (["no", "yes\x85"], r"the label 'yes\x85' contains a tab, a line break"),
        (["no", "\ud83d"], r"data.labels: '\ud83d' contains a NUL character or half of a surrogate pair"),
        (["no", "y\0es"], r"data.labels: 'y\x00es' contains a NUL character or half"),
    ],
)  # fmt: skip
def test_labels_differ_and_can_be_seen_and_written(labels: list[str], message: str) -> None:
    data = {"task": "classification", "source": "files", "path": "x", "labels": labels}
    with pytest.raises(BadInput) as error:
        build({"data": data}, "mine")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"path": "x\0y"}, r"data.path: 'x\x00y' contains a NUL character"),
        ({"columns": {"sentence": "\udcff"}}, r"data.columns: '\udcff' contains a NUL character or half of a sur"),
    ],
)
def test_text_that_no_file_can_hold_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput) as error:
        build({"data": {"task": "SST-2", "source": "files", "path": "x", **data}}, "mine")
    assert message in str(error.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"unknown experiment .colla., did you mean cola"):
        load("colla")


def test_overrides_are_yaml_values() -> None:
    floors = "gate.slices={length:long: 0.5}"
    experiment = load("movies", ["training.learning_rate=2e-5", "preprocessing.clean=[html]", floors])
    assert experiment.training.learning_rate == 2e-5
    assert experiment.preprocessing.clean == ("html",)
    assert experiment.gate.slices == {"length:long": 0.5}


def test_a_text_field_takes_what_is_written() -> None:
    columns = "data.columns={label: 2024, sentence: null} data.keep=[1e3, 1_0]"
    labels = "data.labels=[0, 2024, nan, no, yes, on, NULL, 1_0, 0x1F, 1:30, 2026-02-03, ~]"
    texts = 'model.name=1e3 scoring.text=2024 scoring.table= data.label_separator=| streaming.text=5 "$HOME" of [x'
    own = "data.task=classification data.source=files data.path=C: #1"
    found = load("movies", [own, columns, labels, texts])
    assert found.data.labels == (
        "0", "2024", "nan", "no", "yes", "on", "NULL", "1_0", "0x1F", "1:30", "2026-02-03", "~"
    )  # fmt: skip
    assert (found.data.columns, found.data.keep) == ({"label": "2024", "sentence": "null"}, ("1e3", "1_0"))
    assert (found.model.name, found.scoring.text, found.scoring.table) == ("1e3", "2024", "")
    assert (found.data.path, found.data.label_separator, found.streaming.text) == ("C: #1", "|", '5 "$HOME" of [x')


def test_other_fields_read_the_text_as_their_type() -> None:
    numbers = "training.batch_size=1e2 training.epochs=1_0 training.ranks=2 communication.staleness=0"
    found = load("sst2", [numbers, "gate.accuracy=0.9", "gate.accuracy=null gate.beat_baseline=no runtime.download=On"])
    assert (found.training.batch_size, found.training.epochs, found.training.ranks) == (100, 10, 2)
    assert found.gate.accuracy is None and not found.gate.beat_baseline and found.runtime.download


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        (" gate.slices={length:long: 0.8}\n x.y=2 ", {"gate.slices": {"length:long": "0.8"}, "x.y": "2"}),
        ("data.path='/a b/c d.e=1' x.y='1'", {"data.path": "/a b/c d.e=1", "x.y": "1"}),
        ("data.path=it's x.y=don't", {"data.path": "it's", "x.y": "don't"}),
        ("""data.keep=['a b.c=d', "e f.g=h"] x.y=1""", {"data.keep": ["a b.c=d", "e f.g=h"], "x.y": "1"}),
        ("""data.columns={"label": "a x.y=1"}""", {"data.columns": {"label": "a x.y=1"}}),
    ],
)
def test_a_text_of_overrides_is_divided_where_the_next_one_begins(text: str, values: dict[str, object]) -> None:
    assert parse_overrides([text]) == values


@pytest.mark.parametrize("name", names())
def test_every_value_can_be_written_as_an_override(name: str) -> None:
    whole = load(name).model_dump(mode="json")
    fields = [f"{section}.{field}={json.dumps(value)}" for section in whole for field, value in whole[section].items()]
    assert load("{}", [" ".join(fields)]) == load(name)


def test_inline_json_and_files_are_experiments(tmp_path: object) -> None:
    whole = load("cola").model_dump_json()
    assert load(whole) == load("cola")
    with pytest.raises(BadInput, match="not JSON"):
        load('{"training": ')
    with pytest.raises(BadInput, match=r"none\.yaml is missing: name a YAML or JSON file"):
        load(f"{tmp_path}/none.yaml")


def test_ones_own_files_complete_the_task() -> None:
    data = {
        "task": "classification", "source": "files", "path": "x", "labels": ["no", "yes"],
        "columns": {"sentence": "q", "sentence2": "a", "label": "same"},
    }  # fmt: skip
    task = build({"data": data}, "mine").task
    assert (task.sentences, task.labels, task.outputs) == (("sentence", "sentence2"), ("no", "yes"), 2)


def test_thresholds_come_from_the_gate_else_from_the_task() -> None:
    assert load("sst2").thresholds == {"accuracy": 0.927}
    assert load("sst2", ["gate.f1=0.5"]).thresholds == {"f1": 0.5}
    assert load("sst2", ["gate.calibration_error=0.1"]).thresholds == {"accuracy": 0.927}
    assert load("cola").thresholds == {"matthews": 0.4551}
    assert load("stsb").thresholds == {"pearson": 0.8597}


def test_every_stage_reads_parts_that_exist() -> None:
    for stage in STAGES.values():
        assert set(load("movies").part(stage.reads)) == set(stage.reads)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["loss.kind=mse"],
            "loss.kind mse does not fit the classification task movie-reviews: write one of auto, cross-",
        ),
        (
            ["communication.strategy=parameter-server", "communication.compression=onebit"],
            "compression onebit works only with the strategies all-reduce and hierarchical: write",
        ),
        (["communication.staleness=1"], "staleness 1 works only with communication.strategy: parameter-server"),
        (
            ["communication.server_momentum=0.9"],
            "server_momentum 0.9 works only with communication.strategy: parameter-server",
        ),
        (
            ["communication.strategy=parameter-server", "communication.staleness=1", "training.average_decay=0.9"],
            "average_decay 0.9 needs the current parameters at every step",
        ),
    ],
)
def test_a_training_that_cannot_be_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load("movies", overrides)


def test_class_weights_are_for_classes() -> None:
    values = {"data": {"task": "STS-B", "source": "glue", "path": "x"}, "loss": {"class_weights": "balanced"}}
    with pytest.raises(BadInput, match=r"loss.class_weights balanced needs classes, but STS-B has scores: remove loss"):
        build(values, "the experiment")
    with pytest.raises(BadInput, match=r"gate.calibration_error 0.1 needs probabilities, but STS-B has scores: remove"):
        load("stsb", ["gate.calibration_error=0.1"])


def test_a_loss_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"loss\.kind: there is no loss 'hinge': write one of auto, cross-entropy"):
        load("movies", ["loss.kind=hinge"])
    monkeypatch.setitem(LOSSES, "hinge", "classification")
    assert load("movies", ["loss.kind=hinge"]).loss.kind == "hinge"
    assert Experiment.model_json_schema()["$defs"]["Loss"]["properties"]["kind"]["enum"][-1] == "hinge"


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        (
            {"input": "jdbc:postgresql://db/shop"},
            r"needs scoring\.table: write the table to score;.* needs scoring.driver",
        ),
        (
            {"input": "in.csv", "table": "reviews"},
            "scoring.table reviews works only if scoring.input is a database or a catalog of Iceberg: remove",
        ),
        ({"text": "body", "text2": "body"}, "scoring.text and scoring.text2 both name 'body': name two columns"),
    ],
)
def test_a_table_to_score_is_described(scoring: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build({"scoring": scoring}, "the experiment")


@pytest.mark.parametrize(
    "address",
    [
        "jdbc:postgresql://ada:s3cr3t@db/shop",
        "jdbc:postgresql://db/shop?user=ada&password=s3cr3t",
        "jdbc:sqlserver://db;databaseName=shop;Password=s3cr3t",
        "jdbc:oracle:thin:ada/s3cr3t@//db/shop",
        "jdbc:postgresql://db/shop?sslpassword=s3cr3t",
        "jdbc:sqlserver://db;databaseName=shop;accessToken=s3cr3t",
        " JDBC:postgresql://ada:s3cr3t@db/shop",
    ],
)
def test_a_login_in_an_address_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(BadInput, match=r"the address contains a login, .* SPARK_BERT_JDBC_USER") as error:
        build({"scoring": {"input": address, "table": "t", "driver": "d.jar"}}, "the experiment")
    assert "s3cr3t" not in str(error.value)
    whole = {"input": "jdbc:oracle:thin:@//db/shop", "table": "t", "driver": "d.jar"}
    assert build({"scoring": whole}, "the experiment").scoring.is_database


MULTI_LABEL = {"task": "multi-label", "source": "files", "path": "x", "labels": ["acting", "plot"]}


def test_a_multi_label_task_has_metrics_losses_and_slices_of_its_own() -> None:
    gate = {"f1_micro": 0.7, "f1_macro": 0.5, "slices": {"label:plot": 0.4}}
    experiment = build(
        {"data": {**MULTI_LABEL, "label_separator": ", "}, "gate": gate, "loss": {"kind": "focal"}}, "mine"
    )
    assert experiment.task.metric == "f1_micro"
    assert experiment.task.labels_in("plot, acting") == ["plot", "acting"]
    assert experiment.task.labels_in(" ") == []
    assert experiment.thresholds == {"f1_micro": 0.7, "f1_macro": 0.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"labels": ["acting"]}}, "needs two or more data.labels"),
        ({"data": {"source": "hub"}}, "is not available from data.source hub: write data.source: files"),
        ({"data": {"labels": ["a|b", "c"]}}, "the label 'a|b' contains data.label_separator '|'"),
        ({"data": {"labels": ["a ", "c"]}}, "the label 'a ' contains data.label_separator '|', or begins or ends with"),
        ({"data": {"label_separator": "\t"}}, r"data.label_separator: '\t' contains a tab"),
        ({"data": {"label_separator": ""}}, "data.label_separator"),
        (
            {"gate": {"accuracy": 0.5}},
            "gate.accuracy does not fit the multilabel task multi-label: write one of ",
        ),
        ({"gate": {"slices": {"label:music": 0.5}}}, "length:long, label:acting, label:plot"),
        ({"loss": {"kind": "cross-entropy"}}, "write one of auto, binary-cross-entropy, focal"),
        ({"loss": {"class_weights": "balanced"}}, "remove loss.class_weights; for rare labels, try loss.kind: focal"),
    ],
)
def test_what_several_labels_do_not_support_is_refused(values: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(BadInput) as error:
        build({**values, "data": {**MULTI_LABEL, **values.get("data", {})}}, "mine")
    assert message in str(error.value)


def test_any_metric_of_the_gate_can_choose_the_best_checkpoint() -> None:
    assert load("movies", ["training.best_by=f1"]).training.best_by == "f1"
    with pytest.raises(BadInput, match=r"training\.best_by f1_macro does not fit the classification task"):
        load("movies", ["training.best_by=f1_macro"])
    auto = {"task": "auto", "source": "files", "path": "x"}
    assert build({"data": auto, "training": {"best_by": "f1_macro"}}, "mine").training.best_by == "f1_macro"


def test_own_data_without_a_threshold_has_to_beat_a_constant_answer() -> None:
    own = {"data": {"task": "regression", "source": "files", "path": "x"}}
    assert require_threshold(build(own, "mine")).thresholds == {"pearson": 0}
    with pytest.raises(BadInput, match=r"has no threshold of its own: set gate\.pearson"):
        require_threshold(build({**own, "gate": {"beat_baseline": False}}, "mine"))


def test_the_metrics_of_several_labels_are_refused_for_classes() -> None:
    with pytest.raises(BadInput, match=r"gate\.f1_micro does not fit the classification task"):
        load("movies", ["gate.f1_micro=0.5"])


@pytest.mark.parametrize(("overrides", "message"), [
    (["distillation.temperature=4"], "distillation.temperature 4.0 works only with model.teacher: remove it, or name"),
    (["gate.teacher_margin=0.01"], "gate.teacher_margin 0.01 works only with model.teacher"),
    (["model.teacher=large", "distillation.max_rows=9"], "limits distillation.text, which is empty"),
    (["model.teacher=large", "distillation.text=a", "data.task=MRPC", "data.source=hub"], "a line of it is one text"),
    (["model.teacher=large", "distillation.temperature=4", "data.task=STS-B", "data.source=hub"], "STS-B has scores"),
])  # fmt: skip
def test_what_a_teacher_needs(overrides: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load("movies", overrides)


@pytest.mark.parametrize(("teacher", "run"), [
    ("", ""), ("champion", ""), ("large", "large"), ("./large", ""), ("data/large/", ""), ("~ada", ""),
])  # fmt: skip
def test_a_teacher_without_a_slash_is_a_run(teacher: str, run: str) -> None:
    assert load("movies", [f"model.teacher={teacher}"]).model.teacher_run == run
