"""Mamba as everybody trains it, through the fused kernels of mamba_ssm and causal_conv1d, for `plimsoll trace`.

The Python is theirs: of mamba-ssm 2.3.2.post1 and causal-conv1d 1.7.0, whose `autograd.Function`s transformers 5.17 calls in training
(`mamba_inner_fn`). Both install without a compiler, and without what one would make:

    MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE \\
        pip install --no-build-isolation --no-deps mamba-ssm==2.3.2.post1 causal-conv1d==1.7.0

In the place of that stand functions that allocate what the C++ does, in its order, and compute nothing.

Mamba2 is not here. Into how many parts its backward splits the heads (`nsplits` in ops/triton/ssd_chunk_scan.py), and with that how much it
makes, follows from the batch, the length and the card's number of multiprocessors at once: no expression over axes says it.
"""

import sys
import types

import torch

# `n_chunks` in csrc/selective_scan/selective_scan.cpp: a state is kept for every so many tokens.
CHUNK = 2048


def scan_forward(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    """`selective_scan_fwd` in csrc/selective_scan/selective_scan.cpp."""
    out_z = None if z is None else torch.empty_like(z)
    out = torch.empty_like(delta)
    batch, dim, length = u.shape
    x = torch.empty((batch, dim, -(-length // CHUNK), A.shape[1] * 2), dtype=A.dtype, device="cuda")
    return [out, x] if z is None else [out, x, out_z]


def scan_backward(u, delta, A, B, C, D, z, delta_bias, dout, x, out, dz, delta_softplus, recompute_out_z):
    """`selective_scan_bwd` there; B and C go by the sample, as Mamba has them."""
    out_z = None
    if z is not None:
        dz = torch.empty_like(z) if dz is None else dz
        out_z = torch.empty_like(out) if recompute_out_z else None
    du, ddelta = torch.empty_like(u), torch.empty_like(delta)
    dA, dB, dC = torch.zeros_like(A), torch.zeros_like(B, dtype=torch.float32), torch.zeros_like(C, dtype=torch.float32)
    dD = None if D is None else torch.zeros_like(D)
    ddelta_bias = None if delta_bias is None else torch.zeros_like(delta_bias)
    # What is cast lives until the function returns.
    result = [du, ddelta, dA, dB.to(B.dtype), dC.to(C.dtype), dD, ddelta_bias]
    return result + ([dz] if z is not None else []) + ([out_z] if recompute_out_z else [])


def nothing(*_):
    """What csrc/causal_conv1d.cpp allocates: nothing, but where deterministic algorithms are asked for."""


def module(name, **functions):
    made = types.ModuleType(name)
    vars(made).update(functions)
    sys.modules[name] = made


module("selective_scan_cuda", fwd=scan_forward, bwd=scan_backward)
module("causal_conv1d_cuda", causal_conv1d_fwd=nothing, causal_conv1d_bwd=nothing, causal_conv1d_update=nothing)

import inspect  # noqa: E402

import mamba_ssm  # noqa: E402
from transformers import MambaConfig, MambaForCausalLM  # noqa: E402
from transformers.models.mamba import modeling_mamba  # noqa: E402

# Else the loop over tokens in Python would be recorded, which nobody trains with.
if inspect.getclosurevars(modeling_mamba.mamba_inner_fn).nonlocals.get("implementation") is not mamba_ssm.mamba_inner_fn:
    raise SystemExit("transformers takes no mamba_ssm here: have nothing import its Mamba before this file")


def mamba_130m():
    """`state-spaces/mamba-130m-hf`."""
    return MambaForCausalLM(MambaConfig(hidden_size=768, num_hidden_layers=24, vocab_size=50280))
