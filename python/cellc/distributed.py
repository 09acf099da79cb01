"""One sequence over several processes of torch.distributed (context parallelism): each has some of the steps.

    rank, world = dist.get_rank(), dist.get_world_size()
    share = x.chunk(world, dim=1)[rank]
    y, state = cellc.distributed.split_steps(cell, share, parts=world)

A process takes the states from the one before it, and in backward gives it their gradients; nothing is
approximated, so that any cell can be split, linear in its states or not. The gradients of the params are each
process's share: their sum over the processes is the gradient. The batch goes in `parts` one behind another: a
process works on the second part while the next one has the first. With P parts and R processes, P/(P + R - 1)
of the time is work."""

import torch
import torch.distributed as dist

from .errors import ShapeError, TypeMismatch
from .module import Cell, Op


class Receive(torch.autograd.Function):
    """States from a process; backward gives it their gradients. `anchor` makes autograd come by."""

    @staticmethod
    def forward(ctx, anchor, peer, group, *likes):
        ctx.peer, ctx.group = peer, group
        states = tuple(torch.empty(like.shape, dtype=like.dtype, device=anchor.device) for like in likes)
        for state in states:
            dist.recv(bytes_of(state), peer, group)
        ctx.mark_non_differentiable(*(s for s in states if not (s.is_floating_point() or s.is_complex())))
        return states

    @staticmethod
    def backward(ctx, *gradients):
        for gradient in gradients:
            if gradient.is_floating_point() or gradient.is_complex():
                dist.send(bytes_of(gradient.contiguous()), ctx.peer, ctx.group)
        return None, None, None, *(None for _ in gradients)


class Send(torch.autograd.Function):
    """States to a process; backward takes their gradients from it, before those of the outputs go on."""

    @staticmethod
    def forward(ctx, peer, group, count, *tensors):
        ctx.peer, ctx.group, ctx.count = peer, group, count
        ctx.likes = [torch.empty_like(state, device="meta") for state in tensors[count:]]
        for state in tensors[count:]:
            dist.send(bytes_of(state.contiguous()), peer, group)
        return tuple(output.view_as(output) for output in tensors[:count])

    @staticmethod
    def backward(ctx, *gradients):
        states = []
        for like in ctx.likes:
            states.append(None)
            if like.is_floating_point() or like.is_complex():
                states[-1] = torch.empty(like.shape, dtype=like.dtype, device=gradients[0].device)
                dist.recv(bytes_of(states[-1]), ctx.peer, ctx.group)
        return None, None, None, *gradients, *states


def bytes_of(tensor):
    """The same memory in a type that every backend sends."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def final_states(cell, inputs, state, t0, named):
    """What the states are behind these inputs, on the device meta: shapes and types."""

    def bare(value):
        return torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) else value

    inputs, named = [bare(x) for x in inputs], {name: bare(value) for name, value in named.items()}
    if isinstance(cell, Op):
        return cell(*inputs, state=state, t0=t0, **named)[1]
    own = {name: bare(value) for name, value in [*cell.named_parameters(), *cell.named_buffers()]}
    return torch.func.functional_call(cell, own, tuple(inputs), {"state": state, "t0": t0, **named})[1]


def with_outputs(outputs, made):
    """The outputs with other tensors in them."""
    if isinstance(outputs, torch.Tensor):
        return made[0]
    return type(outputs)(*made)


def joined(results, dim):
    """One of the results of all parts."""
    if isinstance(results[0], torch.Tensor):
        return torch.cat(results, dim)
    if results[0] is None:
        return None
    return type(results[0])(*(joined(list(each), dim) for each in zip(*results)))


def split_steps(cell, /, *inputs, state=None, parts=1, group=None, **named):
    """This process's share of the steps of a cell: (outputs, states behind its steps).

    cell: a module or a functional cell. inputs, named: as in a call of it; of every input [B, T, …] the steps
    of this process, equally many in each, in the order of the ranks (of a reversed cell too, whose last rank
    goes first). state: in front of the whole sequence; it counts in the first process, which gives it its
    gradient. parts: into how many the batch is cut. group: the processes; all by default. The states that are
    returned are those of the whole sequence in the last process.

    Backward has to run through the outputs in every process: one that has no loss calls it on (y * 0).sum().
    It is Tensor.backward, as torch.autograd.grad goes only where its own inputs are, and so past what other
    processes want."""
    if not isinstance(cell, (Cell, Op)):
        raise TypeMismatch(f"split_steps takes a cell that cellc made, not a {type(cell).__name__}")
    manifest = cell.instance.manifest
    if manifest.data["lengths"]:
        raise TypeMismatch(
            f"{manifest.name}: sequences of several lengths have no equal shares of steps; load the cell "
            "without lengths=True"
        )
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    order = -1 if manifest.data["reverse"] else 1
    place = rank if order == 1 else world - 1 - rank
    peers = [dist.get_global_rank(group, r) if group is not None else r for r in range(world)]
    before = peers[rank - order] if place > 0 else None
    behind = peers[rank + order] if place + 1 < world else None
    count = len(manifest.inputs)
    if len(inputs) < count and isinstance(cell, Cell):
        raise ShapeError(f"{manifest.name}: split_steps takes all {count} inputs by position")
    batch = 0 if cell.batch_first else 1
    cut = [x.chunk(parts, batch) for x in inputs[:count]]
    if any(len(c) != parts or c[0].shape != c[-1].shape for c in cut):
        raise ShapeError(
            f"{manifest.name}: a batch of {inputs[0].shape[batch]} cannot be cut into {parts} equal parts"
        )
    rest = inputs[count:]
    steps = inputs[0].shape[1 - batch]
    first = place * steps if manifest.counts_steps or manifest.grows else None
    states = cell.instance.state_list(state if place == 0 else None)
    results = []
    for p in range(parts):
        own = [c[p] for c in cut]
        given = [s if s is None else s.chunk(parts, 0)[p] for s in states]
        if before is not None:
            like = None
            for i in range(place):
                like = final_states(cell, [*own, *rest], like, None if first is None else i * steps, named)
            anchor = torch.zeros((), device=own[0].device, requires_grad=torch.is_grad_enabled())
            given = list(Receive.apply(anchor, before, group, *like))
        outputs, finals = cell(*own, *rest, state=given, t0=first, **named)
        if behind is not None and len(finals):
            tensors = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
            outputs = with_outputs(outputs, Send.apply(behind, group, len(tensors), *tensors, *finals))
        results.append((outputs, finals))
    return joined([r[0] for r in results], batch), joined([r[1] for r in results], 0)
