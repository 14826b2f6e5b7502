"""The published GLUE files and the bundled corpus, where they lie on this machine."""

from __future__ import annotations

from pathlib import Path

from include.experiment import Experiment
from include.glue import SPLITS
from include.stages import ExitCode
from tasks.assets import CORPUS_FILE
from tasks.context import cache_folder
from tasks.sources.published import BundledCorpus
from tests.tasks.stages.pipeline.validate import made_up

GLUE = Path(__file__).parents[6] / "shared" / "data" / "glue"
CORPUS = cache_folder() / "corpora" / "movie-reviews" / CORPUS_FILE

if GLUE.is_dir():

    def test_cola_overlaps_a_little(tmp_path: Path) -> None:
        data = {"task": "CoLA", "source": "glue", "path": str(GLUE)}
        artifact = made_up.validate(tmp_path, Experiment.model_validate({"data": data}))
        assert artifact.manifest.message == ""
        assert artifact.manifest.result["rows"] == {"train": 8512, "dev": 1043, "test": 1063}
        assert artifact.manifest.result["overlap_removed"] == 39
        rules = made_up.rules(artifact)
        assert (rules["dev", "overlap"]["observed"], rules["test", "overlap"]["observed"]) == (18, 21)


if CORPUS.is_file():

    def test_the_bundled_corpus_is_cut_into_three() -> None:
        source = BundledCorpus(CORPUS)
        records = {split: list(source.records(split)) for split in SPLITS}
        assert {split: len(found) for split, found in records.items()} == {"train": 8017, "dev": 1037, "test": 989}
        assert sum(record.label == "1" for record in records["dev"]) == 490


if GLUE.is_dir() and CORPUS.is_file():

    def test_training_on_the_bundled_corpus_and_evaluating_on_sst2_is_stopped(tmp_path: Path) -> None:
        lines = [f"{record.sentences[0]}\t{record.label}" for record in BundledCorpus(CORPUS).records("train")]
        (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines]))
        files = {split: str(GLUE / "SST-2" / f"{split}.tsv") for split in ("dev", "test")}
        data = {"task": "SST-2", "source": "files", "path": str(tmp_path), **files}
        manifest = made_up.validate(tmp_path, Experiment.model_validate({"data": data})).manifest
        assert manifest.exit_code == ExitCode.BAD_INPUT
        assert "dev: overlap limit: 574 of 872 rows also occur in train" in manifest.message
