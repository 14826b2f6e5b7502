"""What a checkpoint holds of a training, and how a training goes on from it.

A checkpoint is written after a step's update and before its evaluation, which is done again. On as many ranks
and threads as before, on as many hosts, the losses from there on are to the bit those of a training that was never
stopped. On another layout, which is another number of ranks on any host,

- weights, optimizer, loss scale, sampler, best model and metrics.jsonl go on as they are: batches stay the same rows;
- what the exchange keeps, as compressors' residuals, is handed to the new ranks (Exchange.regroup), and a warning
  names what they drop or lack.

With another number of ranks in all, moreover,

- every rank's random numbers are seeded anew, from the seed, its rank and the step;
- the mean loss of the next line in metrics.jsonl is of the steps since.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from include.artifacts import sha256
from include.stages import BadInput
from tasks.communication.compression.base import State
from tasks.training.checkpoint import Snapshot
from tasks.training.job import Job

if TYPE_CHECKING:
    from tasks.training.loop import Trainer

log = logging.getLogger(__name__)
#: Of the experiment: what the engine reads.
SECTIONS = ("model", "pretraining", "batching", "loss", "training", "communication")


def identity(job: Job) -> dict[str, str]:
    """Hashes of the experiment and of the data, which a checkpoint must share with the training that goes on from it.

    The number of ranks is left out.
    """
    config = job.experiment.part(SECTIONS)
    del config["training"]["ranks"]
    data = {str(file.relative_to(job.data)): sha256(file) for file in sorted(job.data.rglob("*.arrow"))}
    return {"config": _hash(config), "data": _hash(data)}


def save(trainer: Trainer, step: int) -> None:
    """Write a checkpoint of the step. All ranks at once."""
    trainer.checkpoints.write(step, _snapshot(trainer), best=trainer.best.folder)


def resume(trainer: Trainer) -> int:
    """Go on from the newest checkpoint that is whole; its step, 0 when there is none.

    Raises BadInput when the checkpoint lacks something that a training on the same ranks and hosts would have.
    """
    step = trainer.checkpoints.newest(trainer.identity)
    if not step:
        return 0
    try:
        hosts = _restore(trainer, step)
    except KeyError as error:
        raise BadInput(
            f"the checkpoint of step {step} in {trainer.job.folder} has no {error}: it was written by other code"
        ) from error
    if trainer.rank == 0:
        log.info("going on from the checkpoint of step %d", step)
    if trainer.rank == 0 and hosts != trainer.hosts:
        before, now = _layout(hosts), _layout(trainer.hosts)
        log.warning("the layout was (%s) and is (%s) now: losses will differ a little", before, now)
    return step


def _snapshot(trainer: Trainer) -> Snapshot:
    optimizer = _below("optimizer", trainer.optimizer.state())
    own = {
        **_random_state(trainer.device),
        **_below("exchange", trainer.exchange.state()),
        **_below("meter", trainer.meter.state()),
    }
    shared = {**_below("model", _weights(trainer.model)), **_below("average", trainer.average.state())}
    if trainer.exchange.sharded:
        own |= optimizer
    else:
        shared |= optimizer
    values = {
        **trainer.identity,
        "hosts": trainer.hosts,
        "sampler": trainer.sampler.state_dict(),
        "scale": trainer.scale.state(),
        "watch": trainer.watch.state(),
        "best": trainer.best.state(),
        "meter": trainer.meter.totals(),
        "journal": trainer.journal.state(),
    }
    return Snapshot(shared, own, values)


def _restore(trainer: Trainer, step: int) -> list[int]:
    """Put everything back; how many ranks each host had when the checkpoint was written."""
    checkpoints, device = trainer.checkpoints, trainer.device
    values, shared = checkpoints.values(step), checkpoints.shared(step, device)
    _load_weights(trainer.model, _above("model", shared))
    done = values["sampler"]["done"] - 1  # the last step's evaluation is still to come
    trainer.sampler.load_state_dict({"done": done})
    trainer.average.load(_above("average", shared))
    trainer.scale.load(values["scale"])
    trainer.watch.load(values["watch"])
    trainer.best.load(values["best"])
    trainer.meter.load_totals(values["meter"])
    trainer.journal.load(values["journal"], step)
    checkpoints.restore_best(step, trainer.best.folder)
    hosts: list[int] = values["hosts"]
    if sum(hosts) == trainer.world:
        own = checkpoints.own(step, trainer.rank, device)
        trainer.meter.load(_above("meter", own))
        _load_random_state(own, device)
    else:
        _seed_anew(trainer, step)
    if hosts != trainer.hosts:
        own = _regrouped(trainer, [checkpoints.own(step, rank, device) for rank in range(sum(hosts))])
    trainer.optimizer.load(_above("optimizer", own if trainer.exchange.sharded else shared))
    trainer.exchange.load(_above("exchange", own))
    return hosts


def _regrouped(trainer: Trainer, states: list[State]) -> State:
    """This rank's part of what the ranks of another layout had of their own."""
    parts = ("exchange", "optimizer") if trainer.exchange.sharded else ("exchange",)
    own: State = {}
    for part in parts:
        own |= _below(part, trainer.exchange.regroup([_above(part, state) for state in states]))
    return own


def _weights(model: nn.Module) -> State:
    """Parameters and buffers, one that has two names once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@torch.no_grad()
def _load_weights(model: nn.Module, state: State) -> None:
    for name, tensor in _weights(model).items():
        tensor.copy_(state[name])


def _random_state(device: torch.device) -> State:
    """Of dropout's generators."""
    state = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["random.cuda"] = torch.cuda.get_rng_state(device)
    return state


def _load_random_state(own: State, device: torch.device) -> None:
    torch.set_rng_state(own["random.cpu"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(own["random.cuda"].cpu(), device)


def _seed_anew(trainer: Trainer, step: int) -> None:
    seeds = np.random.SeedSequence([trainer.training.seed, trainer.rank, step])
    torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))


def _layout(hosts: Sequence[int]) -> str:
    """In words, as "ranks: 3, hosts: 2"."""
    return f"ranks: {sum(hosts)}, hosts: {len(hosts)}"


def _below(name: str, state: State) -> State:
    return {f"{name}.{key}": value for key, value in state.items()}


def _above(name: str, state: State) -> State:
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
