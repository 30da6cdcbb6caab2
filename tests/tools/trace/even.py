"""Mixtures whose experts are modules (transformers 4), on a card where every number is zero: tokens go to the experts evenly.

A router's choice is data. On a hollow card nothing is chosen, so `torch.where` finds no token for any expert, and what a
mixture holds is not there. Here it finds an even share, `tokens * k / experts`, the first experts one more where that leaves
a rest; what PyTorch allocates for it is allocated as it is there.
"""

import sys


def share(pairs, experts, index):
    """How many of the pairs of token and choice are of this expert."""
    return pairs // experts + (index < pairs % experts)


def split():
    """From now on. Of no use but on a hollow card."""
    import torch

    where, one_hot, greater = torch.where, torch.nn.functional.one_hot, torch.greater
    chosen = {"experts": 0, "pairs": 0, "index": 0, "masked": False}
    of_list, equal, above = torch.nn.ModuleList.__getitem__, torch.Tensor.__eq__, torch.Tensor.__gt__

    def counted(indices, num_classes=-1):
        # GPT-OSS has a class more, of tokens that are masked: none goes there.
        experts = sys._getframe(1).f_locals.get("num_experts", num_classes)
        chosen.update(experts=experts, pairs=indices.numel(), index=0, masked=experts != num_classes)
        return one_hot(indices, num_classes=num_classes)

    def shared(condition, *rest):
        if rest or condition.dtype != torch.int64:
            return where(condition, *rest)
        count = share(chosen["pairs"], chosen["experts"], chosen["index"])
        chosen["index"] += 1
        # Of so many booleans a hollow card finds all. They lie where the mask's row-major copy does, which is there so long.
        whole = condition.contiguous()
        return where(whole.view(-1).view(torch.bool)[:count].view(count, *[1] * (condition.dim() - 1)))

    def hit(sums, least):
        """`torch.greater(expert_mask.sum(...), 0).nonzero()`: those with a token."""
        out = greater(sums, least)
        return Hit(out) if sums.dim() == 1 and sums.numel() - chosen["experts"] in (0, 1) else out

    def more(self, least):
        """`(expert_mask.sum(...) > 0).nonzero(as_tuple=True)[0].tolist()`, which transformers 4.52 had."""
        out = above(self, least)
        return Hit(out) if self.dim() == 1 and self.numel() == chosen["experts"] and least == 0 else out

    class Hit:
        """What knows how many experts have a token."""

        def __init__(self, mask):
            self.mask = mask

        def nonzero(self, as_tuple=False):
            numbers = self.mask.nonzero()[: min(chosen["experts"], chosen["pairs"])]
            return (Numbers(numbers),) if as_tuple else numbers

    class Numbers:
        """What is asked of the card, which says nothing of use."""

        def __init__(self, numbers):
            self.numbers = numbers

        def tolist(self):
            return list(range(len(self.numbers.tolist())))

    def item(self, index):
        if isinstance(index, torch.Tensor):
            # The value is asked of the card, which waits for it.
            index.item()
            index = chosen["index"]
        return of_list(self, index)

    def same(self, other):
        """`expert_idx == num_experts`: whether it is the class of what is masked, which is asked of the card and is not so."""
        out = equal(self, other)
        if chosen["masked"] and isinstance(other, int) and other == chosen["experts"] and self.dim() == 0:
            out.item()
            return False
        return out

    torch.where, torch.nn.functional.one_hot, torch.greater = shared, counted, hit
    torch.nn.ModuleList.__getitem__, torch.Tensor.__eq__, torch.Tensor.__gt__ = item, same, more
