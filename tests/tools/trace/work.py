"""Floating-point operations, phase by phase, as `torch.utils.flop_counter` counts them.

Its formulas are asked for every operator that reaches the card. Two things are added to them. Grouped heads, which
its formula of attention refuses, are counted as if every head of the queries had keys of its own, which is what the kernels
do. `_grouped_mm`, for which it has none, is a product of all rows with one expert's matrix each.
"""

from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves
import torch

aten = torch.ops.aten

# Operators whose first operand is the gradient, and then the query.
BACKWARD = {
    aten._scaled_dot_product_efficient_attention_backward,
    aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward,
}
FORWARD = {
    aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_cudnn_attention,
}
SHORT = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}


def ungrouped(query, tensor):
    """The shape of keys or values, with as many heads as the query has."""
    batch, _, length, head = tensor.shape
    return torch.Size([batch, query.shape[1], length, head])


def operations(func, args, kwargs, out):
    """Of one call; `None` where nothing is counted."""
    packet = func._overloadpacket
    if packet is aten._grouped_mm:
        a, b = args[0], args[1]
        if a.dim() == 2 and b.dim() == 2:
            # A weight's gradient: every row is multiplied once, for the expert it belongs to.
            return 2 * a.shape[1] * a.shape[0] * b.shape[1]
        return 2 * a.shape[0] * a.shape[1] * b.shape[2]
    if packet in FORWARD:
        query, key, value = args[:3]
        return flop_counter.sdpa_flop_count(query.shape, ungrouped(query, key), ungrouped(query, value))
    if packet in BACKWARD:
        gradient, query, key, value = args[:4]
        shapes = query.shape, ungrouped(query, key), ungrouped(query, value)
        return flop_counter.sdpa_backward_flop_count(gradient.shape, *shapes)
    formula = flop_counter.flop_registry.get(packet)
    return None if formula is None else formula(*args, **kwargs, out_val=out)


class Work:
    """Operations by phase and by the type of the operands."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.phases = {}

    def see(self, func, args, kwargs, out):
        if self.ledger.closed or self.ledger.paused or not self.ledger.phases:
            return
        counted = operations(func, args, kwargs, out)
        if not counted:
            return
        phase = self.ledger.phases[-1]
        of = self.phases.setdefault((phase["step"], phase["name"]), {})
        first = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))
        name = SHORT.get(first.dtype, str(first.dtype).replace("torch.", ""))
        of[name] = of.get(name, 0) + counted

    def of_step(self, step):
        """Those of one step, its micro-batches together."""
        return {
            name: self.phases[step, name] for name in ("forward", "backward", "optimizer") if (step, name) in self.phases
        }
