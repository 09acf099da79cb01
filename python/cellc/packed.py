"""Packed sequences for modules: what holds them in PyTorch. In: the inputs of a call, rows of all sequences [total, ...]
with cu_seqlens [B + 1], a PackedSequence, or nested tensors of the layout torch.jagged. Out: rows with cu_seqlens, and a
function that gives outputs the form that the inputs had. Guaranteed: everything that moves rows is PyTorch's own, so that
gradients go through it; states stand in the order of the sequences as they were given. For a cell of which no kernels
take packed sequences, rows are padded to the longest, which is said once (with_torch.py), and found in their places again."""

import torch
from torch.nn.utils.rnn import PackedSequence

from .errors import ShapeError, TypeMismatch
from .names import by_the_spec


def each(found, change):
    """What `change` makes of an output, or of each of several."""
    return change(found) if isinstance(found, torch.Tensor) else type(found)(*map(change, found))


def same(name, wanted, tensor):
    raise ShapeError(f"{name}: {tensor} holds other sequences than {wanted}; all inputs of a call hold the same")


def rows_of_packed(sequence):
    """(places of the rows of all sequences, in the order in which they were given, among those of the data; cu_seqlens)"""
    sizes = sequence.batch_sizes
    steps = (sizes.unsqueeze(0) > torch.arange(int(sizes[0]) if len(sizes) else 0).unsqueeze(1)).sum(1)
    order = torch.arange(len(steps)) if sequence.unsorted_indices is None else sequence.unsorted_indices.cpu()
    steps = steps[order]
    starts = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
    first = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])           # of each step
    t = torch.arange(int(starts[-1])) - starts[:-1].repeat_interleave(steps)
    return first[t] + order.repeat_interleave(steps), starts


def enter_packed(name, inputs, wanted):
    one = inputs[0]
    for declared, x in zip(wanted[1:], inputs[1:]):
        same_order = [x.sorted_indices is None, one.sorted_indices is None] in ([True, True], [False, False]) and (
            x.sorted_indices is None or torch.equal(x.sorted_indices, one.sorted_indices))
        if not torch.equal(x.batch_sizes, one.batch_sizes) or not same_order:
            same(name, wanted[0].name, declared.name)
    places, starts = rows_of_packed(one)
    back = torch.empty_like(places)
    back[places] = torch.arange(len(places))
    device = one.data.device
    places, back = places.to(device), back.to(device)

    def leave(y):
        return PackedSequence(y.index_select(0, back), one.batch_sizes, one.sorted_indices, one.unsorted_indices)

    return [x.data.index_select(0, places) for x in inputs], starts.to(device), leave


def enter_nested(name, inputs, wanted):
    one = inputs[0]
    for declared, x in zip(wanted, inputs):
        if x.layout != torch.jagged or x._ragged_idx != 1 or x.lengths() is not None:
            raise TypeMismatch(f"{name}: {declared.name} is a nested tensor; wanted one of the layout torch.jagged, "
                               f"contiguous, whose sequences have several lengths in their first axis")
        if x.offsets() is not one.offsets() and not torch.equal(x.offsets(), one.offsets()):
            same(name, wanted[0].name, declared.name)

    def leave(y):
        return torch.nested.nested_tensor_from_jagged(y, one.offsets())

    return [x.values() for x in inputs], one.offsets(), leave


def enter(instance, inputs, named, step):
    """(inputs as rows with cu_seqlens behind them, what gives an output its form back). Named inputs go to their places."""
    name, wanted = instance.name, [t for t in instance.manifest.inputs if t.kind == "input"]
    rows = list(inputs[:len(wanted)])
    for declared in wanted[len(rows):]:
        keyword = next((k for k in named if by_the_spec(k, instance.keywords) == declared.name), None)
        if keyword is None:
            break
        rows.append(named.pop(keyword))
    more = list(inputs[len(wanted):])
    starts = [named.pop("cu_seqlens")] if "cu_seqlens" in named else []
    holds = [kind for kind in (PackedSequence, "nested") if any(
        isinstance(x, PackedSequence) if kind is PackedSequence else isinstance(x, torch.Tensor) and x.is_nested for x in rows)]
    if step:
        if holds or starts:
            raise TypeMismatch(f"{name}: a step takes a row of each sequence, [B, ...], and no cu_seqlens")
        batch = rows[0].shape[0] if rows and isinstance(rows[0], torch.Tensor) and rows[0].dim() else 0
        device = rows[0].device if rows and isinstance(rows[0], torch.Tensor) else None
        return [*rows, torch.arange(batch + 1, dtype=torch.int32, device=device), *more], lambda y: y
    if not holds:
        return [*rows, *starts, *more], lambda y: y
    if starts:
        raise TypeMismatch(f"{name}: cu_seqlens was given, but the inputs say themselves where their sequences begin")
    kind = holds[0]
    if len(holds) > 1 or not all((isinstance(x, PackedSequence) if kind is PackedSequence
                                  else isinstance(x, torch.Tensor) and x.is_nested) for x in rows):
        raise TypeMismatch(f"{name}: some inputs are {'a PackedSequence' if kind is PackedSequence else 'nested tensors'}, "
                           "and others are not; wanted all inputs of one kind")
    rows, starts, change = (enter_packed if kind is PackedSequence else enter_nested)(name, rows, wanted)
    return [*rows, starts.to(torch.int32), *more], lambda found: each(found, change)


def pad(instance, inputs, step):
    """(inputs of the same cell with lengths, what takes the rows out of an output)"""
    *rows, starts = inputs
    if not isinstance(starts, torch.Tensor) or starts.dim() != 1 or starts.is_floating_point():
        raise TypeMismatch(f"{instance.name}: cu_seqlens is no tensor of integers, [B + 1]")
    steps = starts.diff()
    if step:
        return [*rows, steps.to(torch.int32)], None
    total = int(starts[-1]) if len(starts) else -1
    if total < 0 or int(starts[0]) != 0 or bool((steps < 0).any()):
        raise ShapeError(f"{instance.name}: cu_seqlens goes from {int(starts[0]) if len(starts) else 'nothing'} to {total}; "
                         "wanted 0 first, and never less than the one before")
    batch, longest = len(steps), int(steps.max()) if len(steps) else 0
    sequence = torch.arange(batch, device=starts.device).repeat_interleave(steps)
    places = sequence * longest + torch.arange(total, device=starts.device) - starts[:-1].repeat_interleave(steps)
    padded = []
    for declared, x in zip(instance.manifest.inputs, rows):
        if x.dim() < 1 or x.shape[0] != total:
            raise ShapeError(f"{instance.name}: {declared.name} has shape {list(x.shape)}; wanted "
                             f"[total, {', '.join(axis.text for axis in declared.axes)}] with total = {total}, as cu_seqlens says")
        whole = x.new_zeros((batch * longest, *x.shape[1:])).index_copy(0, places, x)
        padded.append(whole.unflatten(0, (batch, longest)))
    return [*padded, steps.to(torch.int32)], lambda y: y.flatten(0, 1).index_select(0, places)
