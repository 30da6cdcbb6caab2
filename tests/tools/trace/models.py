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
