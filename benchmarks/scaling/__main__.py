"""How training scales with ranks: `.venv/tasks/bin/python -m benchmarks.scaling --folder FOLDER`, as root.

It measures steps of one rank and collectives of two, and writes down what follows for more ranks over links of 1
Gbit/s. Then it measures them, each in a network namespace of its own: the engine's exchange really sends, and sleep
stands for compute. Only if every median is within 10 % of its prediction, it also predicts up to 1,024 nodes, and where
compression pays. It needs root, iproute2 and a quiet machine, and takes about 40 minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.links import missing
from benchmarks.scaling import outlook, report
from benchmarks.scaling.calibrate import Calibration
from benchmarks.scaling.study import QUICK, TOLERANCE, Plan, Row, run
from benchmarks.scaling.trace import Layout

EXTRAPOLATED = ("none", "fp16", "onebit", "powersgd")  # top-k's bytes grow with the ranks: it only gets worse


def main() -> None:
    """Do the study, and print its tables; the plots lie in its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="of all that is measured and drawn; a study continues there")
    parser.add_argument("--quick", action="store_true", help="a tiny random encoder and a few steps: does it work?")
    parser.add_argument("--predict-only", action="store_true", help="measure no more than two ranks yet")
    parser.add_argument("--ranks", type=int, nargs="+", choices=Plan.ranks, default=Plan.ranks, help="to be measured")
    arguments = parser.parse_args()
    if not (arguments.folder or arguments.quick):
        parser.error("--folder is missing: what is measured would be lost")
    if reason := missing():
        sys.exit(f"There can be no network namespaces here: {reason}. Run it as root, with iproute2, on a kernel with "
                 "network namespaces, veth, bridge and tbf.")  # fmt: skip
    torch.set_num_threads(1)  # as on every rank; and threads would not survive a fork
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        plan = QUICK if arguments.quick else Plan(ranks=tuple(arguments.ranks))
        folder = arguments.folder or scratch / "study"
        calibration, rows = run(folder, plan, scratch, arguments.predict_only)
        describe(calibration, rows, plan, folder)


def describe(calibration: Calibration, rows: list[Row], plan: Plan, folder: Path) -> None:
    """Print the tables and draw the plots. Nothing is extrapolated if a prediction was off by more than TOLERANCE."""
    before, after = calibration.load
    print(f"{calibration.machine}; load average {before:.1f} before the calibration and {after:.1f} after it\n")
    print(report.wire_table(calibration.wires[0]))
    print(f"\nA small message takes {1e6 * calibration.hop:.0f} microseconds from host to host.\n")
    print(report.compute_table(calibration.profiles) + "\n")
    if not rows:
        return
    print(report.rows_table(rows))
    found: list[outlook.Extrapolated] = []
    if off := [row for row in rows if abs(row.error) > TOLERANCE]:
        names = "; ".join(f"{row.layout.label}, {row.layout.ranks} ranks" for row in off)
        print(f"\nNothing is extrapolated: {len(off)} of {len(rows)} medians are more than {100 * TOLERANCE:.0f} % off "
              f"their prediction ({names}).")  # fmt: skip
    else:
        found = extrapolate(calibration, rows, plan, folder)
    alone = calibration.profiles[plan.encoders[0]].step
    report.draw_scaling(rows, alone, [one for one in found if one.size == plan.encoders[0]], folder / "scaling.png")


def extrapolate(calibration: Calibration, rows: list[Row], plan: Plan, folder: Path) -> list[outlook.Extrapolated]:
    """Print, and return, the efficiency of more nodes; print and draw the links below which compression pays."""
    layouts = [Layout(compression, nodes) for compression in EXTRAPOLATED for nodes in outlook.NODES]
    layouts += [Layout("none", nodes, per_host=2) for nodes in outlook.NODES]
    sizes = (plan.encoders[0], plan.encoders[-1])
    found = [one for size in sizes for one in outlook.extrapolate(calibration, size, layouts)]
    print(f"\nPredicted efficiency, %:\n\n{report.outlook_table(found)}\n\n{report.PAPERS}")
    breaks = [
        outlook.break_even(calibration, size, compression)
        for compression in outlook.COMPRESSIONS
        for size in plan.encoders
    ]
    print(f"\nLinks below which compression pays on {outlook.LINKED} nodes:\n\n{report.breaks_table(breaks)}")
    report.draw_breaks(breaks, max(abs(row.error) for row in rows), folder / "break-even.png")
    return found


if __name__ == "__main__":
    main()
