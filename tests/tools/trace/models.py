"""Small models whose steps do what published ones seldom do, for `hulls.py`."""

import torch
from torch import nn
from torch.nn import functional


class Parts(nn.Module):
    """A sum of losses that share nothing but the batch: of two small heads, of a number, and of a body that is deep."""

    def __init__(self):
        super().__init__()
        self.near, self.far = nn.Linear(64, 3), nn.Linear(64, 10)
        self.scale = nn.Parameter(torch.ones(()))
        self.body = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x, y, t):
        """The body comes last, so all of it is differentiated while the heads' share of the sum is held."""
        near = functional.mse_loss(self.near(x), t)
        far = functional.cross_entropy(self.far(x), y)
        h = self.body(x)
        return (h * h).mean() + near + 0.3 * far + 0.1 * self.scale


class Layers(nn.Module):
    """Linear layers in a list, for several cards: each may be wrapped by itself."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(3)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = functional.relu(layer(x))
        return self.head(x)


class Block(nn.Module):
    """Attention by PyTorch's fused kernel, and a dropout."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, 4, 16).permute(2, 0, 3, 1, 4)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(self.out(a.transpose(1, 2).reshape(b, s, 64)))


class Attends(nn.Module):
    """Blocks in a list, and a loss of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(64, 500)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())
