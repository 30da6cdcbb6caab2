"""Those of `modules.py` that read sequences."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint


class CausalAttention(nn.Module):
    """minGPT's: one product for three, a mask that is a buffer, probabilities by hand."""

    def __init__(self, width, heads, longest):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.attn_drop, self.drop = nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        att = self.attn_drop(F.softmax(att, dim=-1))
        return self.drop(self.proj((att @ v).transpose(1, 2).contiguous().view(b, t, c)))


class Block(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalAttention(width, heads, longest)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class MinGPT(nn.Module):
    def __init__(self, width=256, layers=4, heads=8, vocab=4000, longest=256, tied=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(longest, width)
        self.h = nn.ModuleList(Block(width, heads, longest) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), device=ids.device))
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class CheckpointedGPT(MinGPT):
    """Its blocks are made again in backward, as the file itself asks."""

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), device=ids.device))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Translator(nn.Module):
    """nn.Transformer with masks, as PyTorch's tutorial of translation has it."""

    def __init__(self, width=256, vocab=4000):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.transformer = nn.Transformer(width, 8, 2, 2, 1024, 0.1, batch_first=True)
        self.generator = nn.Linear(width, vocab)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), device=tgt.device)
        out = self.transformer(self.source(src) * 16, self.target(tgt) * 16, tgt_mask=mask, tgt_is_causal=True)
        return self.generator(out)


class Tagger(nn.Module):
    """nn.TransformerEncoder with a mask of padding, then a mean."""

    def __init__(self, width=192, vocab=3000, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 6, 768, 0.1, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, ids):
        mask = ids == 0
        x = self.encoder(self.embed(ids), src_key_padding_mask=mask)
        x = x.masked_fill(mask.unsqueeze(-1), 0.0).sum(1) / (~mask).sum(1, keepdim=True).clamp(min=1)
        return self.head(x)


class Chomp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TCN(nn.Module):
    """Dilated convolutions by weight norm over a series."""

    def __init__(self, channels=64, levels=4):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                weight_norm(nn.Conv1d(8 if n == 0 else channels, channels, 3, padding=2 * 2**n, dilation=2**n)), Chomp(2 * 2**n), nn.ReLU(), nn.Dropout(0.2),
                weight_norm(nn.Conv1d(channels, channels, 3, padding=2 * 2**n, dilation=2**n)), Chomp(2 * 2**n), nn.ReLU(), nn.Dropout(0.2),
            ) for n in range(levels)
        )
        self.first, self.head = nn.Conv1d(8, channels, 1), nn.Linear(channels, 1)

    def forward(self, x):
        for n, block in enumerate(self.blocks):
            x = F.relu(block(x) + (self.first(x) if n == 0 else x))
        return self.head(x[:, :, -1]).squeeze(-1)


class MinimalMamba(nn.Module):
    """A selective scan, step by step in Python."""

    def __init__(self, width=64, state=8, vocab=1000):
        super().__init__()
        self.embed, self.inner, self.state = nn.Embedding(vocab, width), 2 * width, state
        self.in_proj, self.conv = nn.Linear(width, 4 * width, bias=False), nn.Conv1d(2 * width, 2 * width, 4, groups=2 * width, padding=3)
        self.x_proj, self.dt_proj = nn.Linear(2 * width, 4 + 2 * state, bias=False), nn.Linear(4, 2 * width)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1, dtype=torch.float32).repeat(2 * width, 1)))
        self.D, self.out = nn.Parameter(torch.ones(2 * width)), nn.Linear(2 * width, vocab)

    def forward(self, ids):
        x, gate = self.in_proj(self.embed(ids)).chunk(2, dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., : ids.size(1)].transpose(1, 2))
        dt, b, c = self.x_proj(x).split([4, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        a = torch.exp(torch.einsum("bld,dn->bldn", dt.float(), -torch.exp(self.A_log.float())))
        bx = torch.einsum("bld,bln,bld->bldn", dt, b, x)
        h, ys = torch.zeros(x.size(0), self.inner, self.state, device=x.device), []
        for n in range(x.size(1)):
            h = a[:, n] * h + bx[:, n]
            ys.append(torch.einsum("bdn,bn->bd", h.to(c.dtype), c[:, n]))
        y = torch.stack(ys, dim=1) + x * self.D
        return self.out(y * F.silu(gate))


class Experts(nn.Module):
    """A mixture in which every expert sees every token, weighed by a gate of the highest two."""

    def __init__(self, width=128, experts=4, vocab=2000):
        super().__init__()
        self.embed, self.gate = nn.Embedding(vocab, width), nn.Linear(width, experts, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02), nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        scores, picks = torch.topk(self.gate(x), 2, dim=-1)
        weights = torch.zeros(*x.shape[:-1], self.up.size(0), device=x.device, dtype=x.dtype)
        weights = weights.scatter(-1, picks, F.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype))
        h = F.gelu(torch.einsum("btd,edf->btef", x, self.up))
        return self.head(x + torch.einsum("btef,efd,bte->btd", h, self.down, weights))


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class LlamaBlock(nn.Module):
    """Meta's way: complex rotations, keys repeated for grouped heads, SwiGLU."""

    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.dim = heads, groups, width // heads
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * self.dim, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.w2 = nn.Linear(3 * width, width, bias=False)
        self.norm1, self.norm2 = Norm(width), Norm(width)

    def rotate(self, x, turns):
        turned = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(turned * turns[None, :, None]).flatten(3).type_as(x)

    def repeat(self, x):
        b, t, h, d = x.shape
        n = self.heads // self.groups
        return x[:, :, :, None, :].expand(b, t, h, n, d).reshape(b, t, h * n, d)

    def forward(self, x, turns):
        b, t, _ = x.shape
        y = self.norm1(x)
        q = self.rotate(self.wq(y).view(b, t, self.heads, self.dim), turns)
        k = self.rotate(self.wk(y).view(b, t, self.groups, self.dim), turns)
        v = self.wv(y).view(b, t, self.groups, self.dim)
        q, k, v = (z.transpose(1, 2) for z in (q, self.repeat(k), self.repeat(v)))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(out.transpose(1, 2).contiguous().view(b, t, -1))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class MetaLlama(nn.Module):
    def __init__(self, width=256, layers=4, heads=8, groups=2, vocab=4000, longest=512):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.layers, self.norm = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(layers)), Norm(width)
        turns = torch.outer(torch.arange(longest), 1.0 / 10000 ** (torch.arange(0, width // heads, 2) / (width // heads)))
        self.register_buffer("turns", torch.polar(torch.ones_like(turns), turns), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.turns[: ids.size(1)])
        return self.head(self.norm(x)).float()


class WaveNet(nn.Module):
    def __init__(self, width=32, levels=6):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.filters = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=2**n) for n in range(levels))
        self.gates = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=2**n) for n in range(levels))
        self.skips, self.res = (nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(levels)) for _ in range(2))
        self.end1, self.end2 = nn.Conv1d(width, 64, 1), nn.Conv1d(64, 256, 1)

    def forward(self, x):
        x, total = self.first(x.unsqueeze(1)), 0
        for n, (filters, gates, skip, res) in enumerate(zip(self.filters, self.gates, self.skips, self.res)):
            padded = F.pad(x, (2**n, 0))
            y = torch.tanh(filters(padded)) * torch.sigmoid(gates(padded))
            total = total + skip(y)
            x = x + res(y)
        return self.end2(F.relu(self.end1(F.relu(total))))


class Cell(nn.Module):
    """A recurrent network by its cell, as nn.GRUCell has it."""

    def __init__(self, width=128, vocab=1000):
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(vocab, width), nn.GRUCell(width, width), nn.Linear(width, vocab)

    def forward(self, ids):
        x, h, out = self.embed(ids), None, []
        for n in range(16):
            h = self.cell(x[:, n], h)
            out.append(h)
        return self.head(torch.stack(out, 1))


class LinearAttention(nn.Module):
    """Attention by kernels: cumulated products of keys and values."""

    def __init__(self, width=128, heads=4, vocab=1000):
        super().__init__()
        self.embed, self.qkv, self.heads = nn.Embedding(vocab, width), nn.Linear(width, 3 * width), heads
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).unbind(2)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.cumsum(torch.einsum("bthd,bthe->bthde", k, v), dim=1)
        z = 1 / (torch.einsum("bthd,bthd->bth", q, k.cumsum(1).to(q.dtype)) + 1e-6)
        out = torch.einsum("bthd,bthde,bth->bthe", q, kv.to(q.dtype), z)
        return self.head(x + out.reshape(b, t, c))
