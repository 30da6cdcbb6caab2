# ---------------------------------------------------------------------------------------------------------------------
# How many elements a mask selects


# Of how many a part is taken, rounded up.
PARTS = 32


def is_mask(index):
    import torch

    return index is not None and index.dtype in (torch.bool, torch.uint8)


class Selecting:
    """`nonzero`, and what picks by a mask: how many there are only data says, but where a mask follows from sizes. Otherwise all of them
    are taken, which nothing takes more memory than, or the part that was answered; either is reported."""

    def __init__(self, watch):
        self.watch = watch
        # Of masks that somebody asked for, or by which values were put somewhere, how many that were, by storage and size.
        self.selected = {}
        self.turn = None

    def number(self, tensor):
        """The storage of a tensor on the card."""
        return self.watch.tape.alive.get(tensor.untyped_storage()._cdata, (None,))[0]

    def count(self, mask):
        """How many elements hold."""
        watch = self.watch
        known = watch.contents.value(mask, self.number, lambda mask: int(mask.count_nonzero()))
        if known is not None:
            return known
        truth = watch.truth(mask)
        if truth is not None:
            return mask.numel() if truth else 0
        place = self.number(mask), mask.numel()
        if place not in self.selected:
            who = asking()
            part = watch.answers.get(who, ANSWERS.get(who, True))
            if isinstance(part, float) and part <= 1:
                # It comes out even where lengths are multiples of 32.
                part = math.ceil(part * PARTS) / PARTS
            watch.asked[who] = ["mask", "all" if part is True else part]
            if part == FIRST:
                turn = who, watch.tape.begun, len(watch.tape.turns)
                part, self.turn = self.turn != turn, turn
            # A number above one is how many, any other which part.
            count = int(part) if part > 1 else int(part * PARTS) * mask.numel() // PARTS
            self.selected[place] = max(0, min(count, mask.numel()))
        return self.selected[place]

    def nonzero(self, func, mask):
        return self.places(mask)

    def places(self, mask):
        """`nonzero` (`nonzero_cuda` in Nonzero.cu): a row for each dimension, seen from the other side."""
        import torch

        watch, count = self.watch, self.count(mask)
        plain = torch._C._DisableTorchDispatch()
        made = torch.empty(mask.dim(), count, dtype=torch.int64, device="meta").t()
        del plain
        return watch.seen(torch.ops.aten.nonzero.default, watch.tape.as_fake(made), (mask,), {})

    def columns(self, indices, device):
        """What stands for the masks among indices (`expandTensors` in IndexingUtils.h): the places of what they select, a number for each
        dimension. They live as long as the list."""
        import torch

        out = []
        for index in indices:
            if not is_mask(index):
                out.append(index)
            elif isinstance(index, torch._subclasses.FakeTensor) and index.device.type == "cuda":
                places = self.places(index)
                out += [places.select(1, dim) for dim in range(index.dim())]
            else:
                # The host's own mask is looked at there.
                with self.watch:
                    out += [column.to(device) for column in index.nonzero().unbind(1)]
        return out

    def index(self, func, x, indices):
        return self.watch.seen(func, func(x, self.columns(indices, x.device)), (x, indices), {})

    def masked_select(self, func, x, mask):
        import torch

        x, mask = torch.broadcast_tensors(x if x.dim() else x.unsqueeze(0), mask if mask.dim() else mask.unsqueeze(0))
        return self.watch.seen(func, torch.ops.aten.index.Tensor(x, self.columns([mask], x.device)), (x, mask), {})

    def index_put(self, func, x, indices, values, accumulate=False, unsafe=False):
        """`_index_put_impl_` in TensorAdvancedIndexing.cpp: a number of the host's fills what a single mask selects."""
        (first, *others) = [index for index in indices if index is not None]
        alone = not others and is_mask(first)
        if alone and values.dim() == 1 + x.dim() - first.dim() and values.size(0) > 1 and indices[0] is first:
            self.selected[self.number(first), first.numel()] = values.size(0)
        if not (alone and not accumulate and values.numel() == 1 and values.device.type == "cpu"):
            self.columns(indices, x.device)
        return self.watch.seen(func, x, (x, indices, values, accumulate), {})

    def masked_scatter(self, mask, source):
        """Where a mask says, one value after the other is put: it selects no more than there are."""
        self.selected[self.number(mask), mask.numel()] = min(source.numel(), mask.numel())


def selects(func, args):
    """Which of these an operator is, if it asks how many elements of a mask hold."""
    import torch

    aten = torch.ops.aten
    if func is aten.nonzero.default:
        return "nonzero"
    if func is aten.masked_select.default:
        return "masked_select"
    if func is aten.index.Tensor and any(is_mask(index) for index in args[1]):
        return "index"
    if func in (aten.index_put_.default, aten._index_put_impl_.default) and any(is_mask(index) for index in args[1]):
        return "index_put"
    return None
