from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from include.artifacts import MANIFEST, Artifact, ArtifactStore, Manifest, artifact_key, write_json
from include.named_experiments import load
from include.runs import Run, descendants
from include.scratch import kernel
from include.stages import PIPELINE, STAGES, BadInput

EXPERIMENT = load("movies")


def _manifest(stage: str = "validate", key: str = "k1", exit_code: int = 0) -> Manifest:
    part = STAGES[stage].part(EXPERIMENT)
    return Manifest(stage, key, 1, part, {}, "", "revision", {"rows": 1}, exit_code, "too bad" if exit_code else "")


def _commit(store: ArtifactStore, manifest: Manifest, text: str = "hello") -> Artifact:
    with store.writing(manifest.stage, manifest.key) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "data.txt").write_text(text)
        return store.commit(folder, manifest)


def test_what_is_committed_is_found_again(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    assert store.find("validate", "k1") is None
    made = _commit(store, _manifest())
    found = store.find("validate", "k1")
    assert found is not None and found.path == made.path
    assert found.manifest.result == {"rows": 1}
    assert set(found.manifest.files) == {"sub/data.txt"}
    assert [path.name for path in (tmp_path / "artifacts/validate").iterdir()] == ["k1"]


def test_a_file_that_looks_unchanged_is_hashed_only_in_a_full_check(tmp_path: Path) -> None:
    made = _commit(ArtifactStore(tmp_path), _manifest())
    file = made.path / "sub" / "data.txt"
    state = file.stat()
    file.write_text("HELLO")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))  # where the clock of files ticks slowly
    with pytest.raises(BadInput, match=r"data\.txt is missing or damaged"):
        ArtifactStore(tmp_path).find("validate", "k1")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert ArtifactStore(tmp_path).find("validate", "k1") is not None
    with pytest.raises(BadInput, match=r"data\.txt is missing or damaged"):
        ArtifactStore(tmp_path, full_check=True).find("validate", "k1")
    with pytest.raises(BadInput, match=r"data\.txt is missing or damaged"):
        ArtifactStore(tmp_path).find("validate", "k1", hashed=True)


def test_a_copy_with_other_times_is_hashed_and_accepted(tmp_path: Path) -> None:
    made = _commit(ArtifactStore(tmp_path), _manifest())
    (made.path / "sub" / "data.txt").touch()
    assert ArtifactStore(tmp_path).find("validate", "k1") is not None


def test_a_crash_while_writing_leaves_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(RuntimeError), store.writing("validate", "k1") as folder:
        (folder / "half").write_text("ha")
        raise RuntimeError
    assert list((tmp_path / "artifacts/validate").iterdir()) == []


def test_a_folder_without_a_manifest_is_not_an_artifact(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _commit(store, _manifest())
    (made.path / MANIFEST).unlink()
    assert store.find("validate", "k1") is None


def test_a_folder_without_a_manifest_is_replaced(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _commit(store, _manifest())
    (made.path / MANIFEST).unlink()
    (made.path / "sub" / "stale").touch()
    assert set(_commit(store, _manifest()).manifest.files) == {"sub/data.txt"}
    assert store.find("validate", "k1") is not None and not (made.path / "sub" / "stale").exists()


def test_one_that_appears_while_the_stage_works_is_replaced_too(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with store.writing("validate", "k1") as folder:
        (store.path("validate", "k1") / "half").mkdir(parents=True)
        store.commit(folder, _manifest())
    found = store.find("validate", "k1")
    assert found is not None and [path.name for path in found.path.iterdir()] == [MANIFEST]


def test_a_file_or_a_link_in_an_artifacts_place_is_named_before_the_work_begins(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    (tmp_path / "artifacts/validate").mkdir(parents=True)
    store.path("validate", "k1").touch()
    with pytest.raises(NotADirectoryError, match="validate/k1"), store.writing("validate", "k1"):
        raise AssertionError


def test_the_leftovers_of_a_killed_stage_are_swept(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with store.writing("validate", "k1") as folder:
        leftover = folder.rename(folder.with_name(f".k0-abcdefgh-{kernel()}"))
    assert leftover.exists()
    _commit(store, _manifest())
    assert [path.name for path in (tmp_path / "artifacts/validate").iterdir()] == ["k1"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "emptied manifest", "another file"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    store = ArtifactStore(tmp_path)
    made = _commit(store, _manifest())
    file = made.path / "sub/data.txt"
    match damage:
        case "flip":
            state = file.stat()
            file.write_text("hellO")
            os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))  # where the clock of files ticks slowly
        case "truncate":
            file.write_text("hell")
        case "remove":
            file.unlink()
        case "manifest":
            (made.path / MANIFEST).write_text('{"stage": ')
        case "emptied manifest":
            manifest = json.loads((made.path / MANIFEST).read_text())
            write_json(made.path / MANIFEST, {**manifest, "files": {}, "modified": {}})
        case "another file":
            (made.path / "sub/more.txt").touch()
    with pytest.raises(BadInput, match=r"remove .*k1 and run"):
        store.find("validate", "k1")


def test_of_two_writers_one_wins_whole(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: _commit(store, _manifest(), f"writer {number}"), range(8)))
    assert {artifact.path for artifact in made} == {store.path("validate", "k1")}
    assert store.find("validate", "k1") is not None
    assert len(list((tmp_path / "artifacts/validate").iterdir())) == 1


def test_a_key_depends_on_everything_it_is_made_of() -> None:
    keys = {
        artifact_key(1, {"a": 1}, {"b": "k"}, "f"),
        artifact_key(2, {"a": 1}, {"b": "k"}, "f"),
        artifact_key(1, {"a": 2}, {"b": "k"}, "f"),
        artifact_key(1, {"a": 1}, {"b": "l"}, "f"),
        artifact_key(1, {"a": 1}, {"b": "k"}, "g"),
    }
    assert len(keys) == 5
    assert artifact_key(1, {"a": 1, "b": 2}, {}, "") == artifact_key(1, {"b": 2, "a": 1}, {}, "")


def test_write_json_replaces_in_one_go(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    write_json(file, {"a": 1})
    with pytest.raises(ValueError):
        write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": 1}


def test_a_run_points_at_its_artifacts(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "first")
    with pytest.raises(BadInput, match="run the stage validate first"):
        run.artifact("validate")
    run.add(_commit(run.store, _manifest()), EXPERIMENT)
    assert run.artifact("validate", EXPERIMENT).manifest.key == "k1"
    assert run.record()["stages"]["validate"]["path"] == "artifacts/validate/k1"


def test_a_run_of_another_experiment_is_not_mixed_in(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "first")
    run.add(_commit(run.store, _manifest()), EXPERIMENT)
    with pytest.raises(
        BadInput, match=r"made from another experiment: data.task was .movie-reviews. and is now .SST-2."
    ):
        run.artifact("validate", load("sst2"))


def test_a_mistyped_command_leaves_what_a_run_has(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "first")
    run.add(_commit(run.store, _manifest()), EXPERIMENT)
    run.add(_commit(run.store, _manifest("preprocess")), EXPERIMENT)
    before = run.record()
    run.fail("validate", BadInput("data.path /typo is no folder"), load("sst2"))
    assert run.record() == before


def test_a_record_keeps_what_each_stage_was_given(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "first")
    run.add(_commit(run.store, _manifest()), load("movies", ["training.epochs=7"]))
    run.add(_commit(run.store, _manifest("preprocess")), load("movies", ["preprocessing.max_length=64"]))
    experiment = run.record()["experiment"]
    assert experiment["training"]["epochs"] == 7 and experiment["preprocessing"]["max_length"] == 64


def test_a_failed_stage_is_no_input(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "first")
    run.add(_commit(run.store, _manifest(exit_code=2)), EXPERIMENT)
    with pytest.raises(BadInput, match="validate failed in the run first: too bad"):
        run.artifact("validate")


def test_a_stage_that_changed_makes_the_run_forget_what_followed(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "first")
    run.add(_commit(run.store, _manifest()), EXPERIMENT)
    run.add(_commit(run.store, _manifest("preprocess")), EXPERIMENT)
    run.add(_commit(run.store, _manifest()), EXPERIMENT)
    assert set(run.record()["stages"]) == {"validate", "preprocess"}
    run.add(_commit(run.store, _manifest(key="k2")), EXPERIMENT)
    assert set(run.record()["stages"]) == {"validate"}


def test_descendants_follow_the_pipeline() -> None:
    beside = {"challenge", "register", "promote"}
    others = {"publish", "search", "recommend"}
    assert descendants("validate") == set(PIPELINE) - {"validate", "pretrain"} | beside | others
    assert descendants("predict") == {"export"}
    assert descendants("champion") == beside
    assert descendants("export") == set()


@pytest.mark.parametrize("name", ["first", "runs/..", "runs/first/second", "runs/."])
def test_a_run_folder_lies_among_runs(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="must be in a folder named runs"):
        Run(tmp_path / name)


def test_a_run_folder_has_a_name_that_json_can_hold(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"runs/\\udcff' is not UTF-8: give it a name that is"):
        Run(tmp_path / "runs" / "\udcff")


@pytest.mark.parametrize(
    "record",
    [
        "[]", "null", "3", "{}", '{"run": "first"}', '{"run": "first", "stages": []}',
        '{"run": "first", "stages": {"validate": "k1"}}', '{"run": "first", "stages": {"validate": {"key": "k1"}}}',
        '{"run": "first", "stages": {"validate": {"key": 1, "exit_code": 0}}}',
        '{"run": "first", "stages": {}, "experiment": "movies"}',
        '{"run": "first", "stages": {}, "experiment": {"data": 3}}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_record_of_another_shape_is_damaged(tmp_path: Path, record: str) -> None:
    run = Run(tmp_path / "runs" / "first")
    run.folder.mkdir(parents=True)
    run.file.write_text(record)
    with pytest.raises(BadInput, match=r"run\.json is damaged: remove .*first and run the stages again"):
        run.record()


def test_only_what_python_compiles_of_a_listed_file_need_not_be_listed(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with store.writing("validate", "k1") as folder:
        (folder / "code.py").write_text("")
        made = store.commit(folder, _manifest())
    compiled = made.path / "__pycache__"
    compiled.mkdir()
    for name in ("code.cpython-312.pyc", "code.cpython-312.pyc.139842"):
        (compiled / name).touch()
    assert store.find("validate", "k1") is not None
    for name in ("other.cpython-312.pyc", "code.py"):
        (compiled / name).touch()
        with pytest.raises(BadInput, match=r"is not listed in manifest\.json"):
            store.find("validate", "k1")
        (compiled / name).unlink()
