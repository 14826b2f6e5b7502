"""The files of the tables that users name: a file, a folder of files, or a pattern such as train-*.tsv."""

from __future__ import annotations

import re
from pathlib import Path

from include.fields.data import COMPRESSIONS, FORMATS, Data
from include.glue import SPLITS
from include.stages import BadInput

_PATTERN = re.compile(r"[*?\[]")


def files_of(path: Path) -> list[Path]:
    """Return the files of a table in the order of their names; the path itself if it is neither folder nor pattern.

    Hidden files and those that begin with _, such as Spark's _SUCCESS, are left out, and so are the contents of folders
    with such names.
    """
    folder = fixed_part(path)
    if folder == path and not path.is_dir():
        return [path]
    try:
        found = list(folder.iterdir() if folder == path else folder.glob(str(path.relative_to(folder))))
    except ValueError as error:
        raise BadInput(f"{path} is not a pattern of file names ({error}): write, for example, train-*.tsv") from error
    shown = (file for file in found if not any(part[0] in "._" for part in file.relative_to(folder).parts))
    return sorted(file for file in shown if file.is_file())


def fixed_part(path: Path) -> Path:
    """Return the folder in which a pattern is looked for; the path itself if it is none, or exists as it is written."""
    for part in (*reversed(path.parents), path):
        if _PATTERN.search(part.name) and not part.exists():
            return part.parent
    return path


def is_delta(folder: Path) -> bool:
    """Return whether a folder is a Delta table."""
    return (folder / "_delta_log").is_dir()


def catalog_file(address: str) -> str:
    """Return the file of a catalog in SQLite; "" if the address is another."""
    scheme, separator, path = address.partition(":///")
    return path.partition("?")[0] if separator and scheme.partition("+")[0] == "sqlite" else ""


def local_path(text: str) -> str:
    """Return the path of a table that a user names, of a catalog in SQLite that of its folder; "" for other addresses.

    A container that reads a catalog sees its folder, below which the tables must lie.
    """
    if file := catalog_file(text):
        return str(Path(file).parent)
    return "" if "://" in text else text


def split_paths(data: Data, root: Path) -> dict[str, Path]:
    """Return the path of each split below data.path, the root; the root itself for all of them if it has all rows.

    A folder has all rows if data names no file of a split, and it has none with a default name. There may be no test.
    """
    names = {split: data.file_names(split) for split in SPLITS}
    there = {split: [name for name in names[split] if name and (root / name).exists()] for split in SPLITS}
    is_default = all(len(names[split]) > 1 for split in SPLITS)
    if not root.is_dir():
        is_one = fixed_part(root) != root or root.is_file() or root.suffix.lower() in (*FORMATS, *COMPRESSIONS)
    else:
        is_one = is_default and not any(there.values()) and bool(files_of(root))
    if is_one:
        return dict.fromkeys(SPLITS, root)
    found = {}
    for split in SPLITS:
        if split != "test" and not names[split][0]:
            raise BadInput(f"data.{split} is empty: name its file, files or folder below {root}")
        if len(there[split]) > 1 and there[split][0] != names[split][0]:
            raise BadInput(f"{root} has {' and '.join(there[split])}: name one of them as data.{split}")
        if there[split] or split != "test" or (names[split][0] and len(names[split]) == 1):
            found[split] = root / (there[split] or names[split])[0]
    return found
