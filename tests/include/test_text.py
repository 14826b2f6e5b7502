"""YAML and JSON of users are read as they look or rejected with the line, and messages quote only a part of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from include.folders import user_folder, user_path
from include.named_experiments import load
from include.stages import BadInput
from include.text import from_json, from_yaml

OWN = {"task": "classification", "source": "files", "path": "x"}
EMOJI = json.dumps({"data": {**OWN, "labels": ["\U0001f600", "\U0001f621"]}})  # json writes each as a surrogate pair
BOMB = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


@pytest.mark.parametrize("name", ["mine.json", "mine.yaml"])
def test_an_emoji_is_one_character_in_every_spelling(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(EMOJI)
    for experiment in (load(str(tmp_path / name)), load(EMOJI)):
        assert experiment.data.labels == ("\U0001f600", "\U0001f621")
    assert from_yaml(json.dumps("\U0001f600")) == "\U0001f600"


def test_a_date_is_the_text_that_stands_there() -> None:
    assert from_yaml("{a: 2026-02-03, b: 2026-13-45}") == {"a": "2026-02-03", "b": "2026-13-45"}


def test_labels_of_a_file_are_the_texts_that_stand_there(tmp_path: Path) -> None:
    text = "data: {task: classification, source: files, path: 1e3, labels: [no, 2024, 1_0, nan], columns: {label: 0}}"
    (tmp_path / "mine.yaml").write_text(text)
    data = load(str(tmp_path / "mine.yaml")).data
    assert (data.path, data.labels, data.columns) == ("1e3", ("no", "2024", "1_0", "nan"), {"label": "0"})


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(b"\xef\xbb\xbf{}")
    assert load(str(tmp_path / "mine.json")) == load("{}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.yaml", "data:\n  task: SST-2\n  task: CoLA\n", "line 3: the key 'task' is written twice: keep one of"),
        ("x.yaml", "data: {}\ntraining: {}\ndata: {}\n", "line 3: the key 'data' is written twice"),
        ("x.json", '{"data": {"task": "SST-2", "task": "CoLA"}}', "the key 'task' is written twice"),
        ("x.yaml", "data: !!timestamp 2026-13-45\n", "line 1: '2026-13-45' cannot be read as a value"),
        ("x.yaml", f"training:\n  seed: {'9' * 5000}\n", "training.seed = 999"),
        ("x.json", f'{{"training": {{"seed": {"9" * 5000}}}}}', "Exceeds the limit"),
        ("x.json", f'{{"training": {{"seed": {"9" * 4000}}}}}', "training.seed = 999"),
        ("x.yaml", f"training: {{seed: !!int 0x{'f' * 5000}}}\n", "seed = a number of thousands of digits: input"),
        ("x.yaml", "data: " + "[" * 1000 + "]" * 1000, "it is nested too deeply"),
        ("x.json", '{"data": ' + "[" * 100_000 + "]" * 100_000 + "}", "it is nested too deeply"),
        ("x.yaml", BOMB, "line 2: the alias *a0 is not supported: write the value itself"),
        ("x.yaml", f"data: {{task: {'x' * 100_000}}}", "data.task: there is no task 'xxxxx"),
        ("x.yaml", f"data: {{? {'x' * 100_000} : 1}}", "unknown key data.xxxxx"),
        ("x.yaml", "data: {" + ", ".join(f"k{n}: 1" for n in range(50)) + "}", "; and 40 more"),
        ("x.yaml", "data:\n\ttask: SST-2\n", "line 2: while scanning for the next token, found character '\\t'"),
        ("x.yaml", "# " + "x" * 2**20, "the file has more than 1,048,576 bytes, which is too large for an experiment"),
        ("x.yaml", "data: {}\n".encode("utf-16"), "save it as UTF-8"),
        ("x.json", "[1]", "must be a mapping of sections, not list"),
        ("x.json", json.dumps({"data": {**OWN, "labels": [1, False]}}), "data.labels.0 = 1: this must be text, but "
         "without quotes it is read as a number: put it in quotes; data.labels.1 = False: this must be text, but "
         "without quotes it is read as true or false: put it in quotes"),
        ("x.json", '{"data": {"path": "\\ud83d"}}', r"data.path: '\ud83d' contains a NUL character or half of a surr"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput) as error:
        load(str(tmp_path / name))
    assert message in str(error.value) and name in str(error.value)
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.seed=" + "9" * 5000, "training.seed = 999"),
        ("data.keep=" + "[" * 3000, "is nested too deeply"),
        ("data.keep=&a [*a]", "the alias *a is not supported"),
        ("data.columns={label: a, label: b}", "the key 'label' is written twice"),
        ("data.path='a' b", "cannot read the value \"'a' b\": line 1: "),
    ],
)
def test_an_override_is_read_the_same_way(override: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        load("movies", [override])
    assert message in str(error.value) and len(str(error.value)) < 2000


@pytest.mark.parametrize(("make", "message"), [(Path.mkdir, "is a folder, not a file"), (os.mkfifo, "is a pipe, a s")])
def test_what_is_no_file_is_not_opened(tmp_path: Path, make: object, message: str) -> None:
    assert callable(make)
    make(tmp_path / "x.yaml")
    with pytest.raises(BadInput, match=message):
        load(str(tmp_path / "x.yaml"))


def test_json_may_be_as_deep_as_python_reads() -> None:
    assert from_json("[[[]]]") == [[[]]]


def test_a_file_stands_for_the_folder_that_it_lies_in(tmp_path: Path) -> None:
    (tmp_path / "package.json").touch()
    assert user_folder(str(tmp_path / "package.json")) == user_folder(str(tmp_path)) == tmp_path
    assert user_folder(str(tmp_path / "nowhere")) == tmp_path / "nowhere"


def test_a_home_folder_is_found_or_its_users_name_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_path("~/x") == Path("/home/me/x")
    with pytest.raises(BadInput, match=r"~no-such-user/x: there is no user of that name here: write the absolute path"):
        user_path("~no-such-user/x")
