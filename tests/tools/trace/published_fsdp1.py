"""Published runs of FSDP1, once more: the real FSDP1 of their PyTorch on a hollow A100, with the fake process group.

    plimsoll rehearse --gpu a100-80gb -- python tests/tools/trace/published_fsdp1.py atorch CARDS
    plimsoll rehearse --gpu a100-40gb -- python tests/tools/trace/published_fsdp1.py lightning NO_SHARD|SHARD_GRAD_OP|FULL_SHARD [offload]

The first wants PyTorch 2.1.2 and transformers 4.35.2, the second PyTorch 2.1.2 and lightning 2.1.4. A line a step: what was allocated
at most so far, in MiB, as both tell it.

`atorch` is fsdp_llama2.py of dlrover's atorch/examples/llama2 at bfd04ef: `amp_native` beside `fsdp` gives FSDP mixed precision in
bfloat16 (auto/model_context.py), `checkpoint` wraps layers by PyTorch's own wrapper, so that transformers leaves `use_cache` on, and
`module_replace` puts flash attention into `LlamaAttention`; PyTorch's flash kernel stands for it here. `lightning` is the guide's
model (docs/source-pytorch/advanced/model_parallel/fsdp.rst at 7f0c343), stepped with a closure as Lightning's Trainer does.
"""

import functools
import sys

import torch
import torch.distributed
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore

STEPS = 3


def spread(model, blocks, cards, **more):
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=cards)
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy(blocks), use_orig_params=True, device_id=torch.cuda.current_device(),
        param_init_fn=lambda module: module.to_empty(device="cuda", recurse=False), **more)


def told(step):
    print("step %d: %.1f MiB" % (step, torch.cuda.max_memory_allocated() / 2**20), flush=True)


def with_flash(self, hidden_states, attention_mask=None, position_ids=None, use_cache=False, **_more):
    """`LlamaAttentionFA.forward`."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    batch, length, _ = hidden_states.size()
    projected = [project(hidden_states) for project in (self.q_proj, self.k_proj, self.v_proj)]
    query, key, value = (x.view(batch, length, -1, self.head_dim).transpose(1, 2) for x in projected)
    del projected
    cos, sin = self.rotary_emb(value, seq_len=length)
    query, key = apply_rotary_pos_emb(query, key, cos, sin, position_ids)
    past = (key, value) if use_cache else None
    with torch.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False, enable_mem_efficient=False):
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return self.o_proj(out.transpose(1, 2).reshape(batch, length, self.hidden_size)), None, past


def atorch(cards):
    import transformers
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer

    LlamaAttention.forward = with_flash
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig())
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = spread(model, {LlamaDecoderLayer}, cards, limit_all_gathers=True, forward_prefetch=True,
                   backward_prefetch=BackwardPrefetch.BACKWARD_PRE, mixed_precision=half)
    wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrap, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.forward = torch.autocast("cuda", dtype=torch.bfloat16)(model.forward)
    for step in range(STEPS):
        tokens = torch.zeros(4, 4096, dtype=torch.long, device="cuda")
        places = torch.arange(4096, device="cuda").expand(4, 4096).contiguous()
        # As there, the last step's outputs live until these have come.
        outputs = model(input_ids=tokens, labels=tokens, attention_mask=torch.ones_like(tokens), position_ids=places)
        outputs["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        told(step)


def lightning(strategy, offload):
    from lightning.pytorch.demos import Transformer

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Transformer(vocab_size=33278, nlayers=32, nhid=4096, ninp=1024, nhead=64)

        def forward(self, tokens, target):
            return F.nll_loss(self.model(tokens, target), target.view(-1))

    with torch.device("meta"):
        model = Model()
    model = spread(model, {torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer}, 2,
                   sharding_strategy=ShardingStrategy[strategy], cpu_offload=CPUOffload(offload_params=offload))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(STEPS):
        tokens, target = (torch.zeros(1, 35, dtype=torch.long, device="cuda") for _ in range(2))

        def closure():
            loss = model(tokens, target)
            optimizer.zero_grad()
            loss.backward()
            return loss

        optimizer.step(closure)
        told(step)


if __name__ == "__main__":
    which, what, *rest = sys.argv[1:]
    if which == "atorch":
        atorch(int(what))
    else:
        lightning(what, rest == ["offload"])
