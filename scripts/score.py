"""Score a table from the command line: what `make score` calls, in the stages' environment."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from include.scratch import scratch_folder
from include.stages import BadInput, ExitCode, parse_result
from scripts.ending import exit_code

#: The fields of the section scoring that have a flag, and a variable of `make score`.
_GIVEN = ("input", "text", "text2", "model")


def main() -> int:
    """Run the stage, copy its files to the output if it is given, and print a summary. Return the stage's exit code."""
    options = _options()
    output: Path | None = options.output
    if output is not None and output.exists():
        raise BadInput(f"{output} is there already: name a new folder as OUTPUT")
    done = subprocess.run(_command(options), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == ExitCode.BAD_INPUT:
        print(f"(make score: {', '.join(f'scoring.{name} is {name.upper()}' for name in _GIVEN)})", file=sys.stderr)
    if done.returncode:
        return done.returncode
    result = parse_result(done.stdout.splitlines()[-1])
    if output is not None:
        _copy(Path(result["artifact"]), result["files"], output)
    print(_summary(result, output or Path(result["artifact"])))
    return ExitCode.DONE


def _command(options: argparse.Namespace) -> list[str]:
    given = {name: getattr(options, name) for name in _GIVEN}
    overrides = [f"scoring.{name}={json.dumps(value)}" for name, value in given.items() if value]
    command = [sys.executable, "-m", "tasks", "score", "--experiment", options.experiment, "--run", str(_run(options))]
    return [*command, *(part for text in (*overrides, *options.set) for part in ("--set", text))]


def _run(options: argparse.Namespace) -> Path:
    """Return the folder of the run. A run that was stopped is named to continue it."""
    home = Path(os.environ.get("SPARK_BERT_HOME") or "work")
    return home / "runs" / (options.run or f"score-{datetime.now(UTC):%Y%m%d-%H%M%S}")


def _copy(artifact: Path, files: dict[str, str], output: Path) -> None:
    """Make the folder `output` with a single rename."""
    output.absolute().parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(output.absolute().parent, f".{output.name}") as folder:
        (folder / "output").mkdir()
        for name in files.values():
            shutil.copy(artifact / name, folder / "output" / name)
        (folder / "output").rename(output)


def _summary(result: dict[str, Any], folder: Path) -> str:
    reasons = "".join(f", {count} x {reason}" for reason, count in result["reasons"].items())
    lines = [
        f"{'rows':12}{result['rows_in']} in, {result['rows']} scored, {result['aside']} set aside{reasons}",
        f"{'model':12}{result['model_version']}",
    ]
    return "\n".join([*lines, *(f"{'open':12}{folder / name}" for name in result["files"].values())])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", default="retrain", help="names the champion, by its dataset or task")
    parser.add_argument("--input", help="a .csv, .tsv, .parquet or .jsonl file, a folder of them, or a JDBC address")
    parser.add_argument("--text", help="the column with the text")
    parser.add_argument("--text2", help="the column with the second text of a pair")
    parser.add_argument("--model", help="the folder of a model; the champion by default")
    parser.add_argument("--output", type=Path, help="a new folder for the files")
    parser.add_argument("--run", help="the name of the run; to go on with one that was stopped")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(exit_code(main, "run the same command again to go on (for a database, add RUN=NAME)"))
