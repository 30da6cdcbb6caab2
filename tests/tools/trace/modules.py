"""Models as people write them in a file of their own, for `lot.py --modules`: plain PyTorch, every one another way of writing.

Each row of `ROWS` is a call, its inputs, its loss and the sizes of its axes to choose from, as `later.py` has them.
"""

import torch
import torch.nn.functional as F
from torch import nn

from image_modules import (
    BilinearUNet, Classifier, Critic, Denoiser, Detector, FNO, Hash, NeRF, Quantizer, UNet,
    VAE, ViT, Window,
)
from sequence_modules import (
    Cell, CheckpointedGPT, Experts, LinearAttention, MetaLlama, MinGPT, MinimalMamba, TCN, Tagger, Translator,
    WaveNet,
)


class PointNet(nn.Module):
    def __init__(self, classes=40):
        super().__init__()
        sizes = [3, 64, 128, 512]
        self.features = nn.Sequential(*(
            layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        ))
        self.head = nn.Sequential(nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, classes))

    def forward(self, points):
        return self.head(torch.max(self.features(points.transpose(1, 2)), 2)[0])


class GCN(nn.Module):
    """A graph of fixed size: messages gathered by `index_select` and summed by `index_add`."""

    def __init__(self, width=128, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64 if n == 0 else width, width) for n in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, 16)

    def forward(self, x, source, target):
        ones = torch.ones(source.size(0), device=x.device)
        degree = torch.zeros(x.size(0), device=x.device).index_add_(0, target, ones).clamp(min=1)
        for layer, norm in zip(self.layers, self.norms):
            h = layer(x)
            messages = h.index_select(0, source)
            x = torch.zeros_like(h).index_add(0, target, messages) / degree.unsqueeze(1).to(h.dtype)
            x = F.relu(norm(x))
        return self.head(x)


class Attend(nn.Module):
    """A graph's attention with `scatter_reduce` and `gather` over edges."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.lin, self.heads, self.width = nn.Linear(64, heads * width, bias=False), heads, width
        self.left, self.right = nn.Parameter(torch.randn(heads, width)), nn.Parameter(torch.randn(heads, width))
        self.head = nn.Linear(heads * width, 8)

    def forward(self, x, source, target):
        n = x.size(0)
        h = self.lin(x).view(n, self.heads, self.width)
        scores = F.leaky_relu((h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target], 0.2).float()
        index = target.unsqueeze(1).expand_as(scores)
        highest = torch.full((n, self.heads), float("-inf"), device=x.device).scatter_reduce(0, index, scores.detach(), "amax")
        scores = torch.exp(scores - highest[target])
        total = torch.zeros((n, self.heads), device=x.device).scatter_add(0, index, scores)
        scores = (scores / (total[target] + 1e-16)).to(h.dtype)
        out = torch.zeros_like(h).index_add_(0, target, h[source] * scores.unsqueeze(-1))
        return self.head(F.elu(out.flatten(1)))


class TwoTowers(nn.Module):
    """Recommendation: bags of embeddings, two towers, scores of all against all."""

    def __init__(self, items=20000, width=64):
        super().__init__()
        self.user, self.item = nn.Embedding(items, width), nn.EmbeddingBag(items, width, mode="mean")
        self.left = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64))
        self.right = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, user, bag):
        left, right = self.left(self.user(user)), self.right(self.item(bag))
        left, right = F.normalize(left, dim=-1), F.normalize(right, dim=-1)
        return left @ right.t() / 0.07


class DLRM(nn.Module):
    def __init__(self, tables=6, rows=5000, width=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("below", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        all_ = torch.stack([x, *(table(sparse[:, n]) for n, table in enumerate(self.tables))], dim=1)
        dots = torch.bmm(all_, all_.transpose(1, 2))
        flat = dots[:, self.below[0], self.below[1]]
        return self.top(torch.cat([x, flat.to(x.dtype)], dim=1)).squeeze(1)


class Triplet(nn.Module):
    """One network for three images."""

    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3), nn.PReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 64),
        )

    def forward(self, a, p, n):
        return F.triplet_margin_loss(self.net(a), self.net(p), self.net(n))


class Contrast(nn.Module):
    """SimCLR: two views through one network, NT-Xent over all."""

    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
        )
        self.proj = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, one, two):
        z = F.normalize(self.proj(self.net(torch.cat([one, two]))).float(), dim=1)
        n = one.size(0)
        likeness = z @ z.t() / 0.5
        likeness = likeness.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), -9e15)
        target = torch.cat([torch.arange(n, 2 * n, device=z.device), torch.arange(n, device=z.device)])
        return F.cross_entropy(likeness, target)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class OwnFunction(nn.Module):
    """An activation whose gradient is written by hand."""

    def __init__(self, width=512, depth=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128 if n == 0 else width, width) for n in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.layers:
            x = Swish.apply(layer(x))
        return self.head(x)


class Tabular(nn.Module):
    """Numbers and categories: embeddings concatenated, batch norms, dropout."""

    def __init__(self):
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(size, min(50, (size + 1) // 2)) for size in (100, 60, 24, 1000))
        self.bn_cont = nn.BatchNorm1d(16)
        inside = sum(embed.embedding_dim for embed in self.embeds) + 16
        self.layers = nn.Sequential(
            nn.Linear(inside, 512), nn.ReLU(True), nn.BatchNorm1d(512), nn.Dropout(0.1), nn.Linear(512, 256), nn.ReLU(True), nn.BatchNorm1d(256), nn.Dropout(0.1),
            nn.Linear(256, 1),
        )

    def forward(self, cats, cont):
        x = torch.cat([embed(cats[:, n] % embed.num_embeddings) for n, embed in enumerate(self.embeds)], 1)
        return self.layers(torch.cat([x, self.bn_cont(cont)], 1))


class KAN(nn.Module):
    """Layers of splines: bases of a grid by broadcast, two products a layer."""

    def __init__(self, sizes=(32, 64, 64, 8), grid=5):
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:]))
        self.spline = nn.ParameterList(nn.Parameter(torch.randn(b, a * grid) * 0.1) for a, b in zip(sizes, sizes[1:]))
        self.register_buffer("knots", torch.linspace(-2, 2, grid))

    def forward(self, x):
        for base, spline in zip(self.base, self.spline):
            bases = torch.exp(-((x.unsqueeze(-1) - self.knots) ** 2))
            x = base(F.silu(x)) + F.linear(bases.flatten(1), spline)
        return x


class LowRank(nn.Module):
    """LoRA by hand: frozen linears with two narrow ones beside."""

    def __init__(self, width=512, depth=4, rank=8):
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.frozen.requires_grad_(False)
        self.a = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(depth))
        self.b = nn.ModuleList(nn.Linear(rank, width, bias=False) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for frozen, a, b in zip(self.frozen, self.a, self.b):
            x = F.relu(frozen(x) + b(a(x)) * 2.0)
        return self.head(x)


class Teacher(nn.Module):
    """Distillation: a large network without gradients, a small one with."""

    def __init__(self, large=512, small=128):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(256, large), nn.GELU(), nn.Linear(large, large), nn.GELU(), nn.Linear(large, 100))
        self.student = nn.Sequential(nn.Linear(256, small), nn.GELU(), nn.Linear(small, 100))

    def forward(self, x):
        with torch.no_grad():
            wanted = F.softmax(self.teacher(x) / 4, dim=-1)
        return F.kl_div(F.log_softmax(self.student(x) / 4, dim=-1), wanted, reduction="batchmean") * 16


class Cross(nn.Module):
    """Perceiver's: few latents look at many inputs, then at one another."""

    def __init__(self, width=128, latents=32, depth=3):
        super().__init__()
        self.latents, self.inputs = nn.Parameter(torch.randn(latents, width)), nn.Linear(16, width)
        self.cross = nn.MultiheadAttention(width, 4, kdim=width, vdim=width, batch_first=True)
        self.selfs = nn.ModuleList(nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth + 1))
        self.head = nn.Linear(width, 6)

    def forward(self, x):
        keys = self.inputs(x)
        z = self.latents.unsqueeze(0).repeat(x.size(0), 1, 1)
        z = z + self.cross(self.norms[0](z), keys, keys)[0]
        for norm, attention in zip(self.norms[1:], self.selfs):
            y = norm(z)
            z = z + attention(y, y, y)[0]
        return self.head(z.mean(1))


IMAGE = ["x=float32[B,3,S,S]", "y=int64[B]"]
CE = "F.cross_entropy(model(x), y)"
# Call, inputs, loss, sizes.
ROWS = [
    ("Classifier()", ["x=float32[B,3,32,32]", "y=int64[B]"], "F.nll_loss(model(x), y)", {}),
    ("UNet()", ["x=float32[B,3,S,S]", "y=int64[B,S,S]"], CE, {"S": [96, 128]}),
    ("BilinearUNet()", ["x=float32[B,3,S,S]", "y=int64[B,S,S]"], CE, {"S": [96, 128]}),
    ("MinGPT()", ["ids=int64[B,S]", "targets=int64[B,S]"], "model(ids, targets)", {"S": [64, 128, 256]}),
    ("CheckpointedGPT(tied=False)", ["ids=int64[B,S]", "targets=int64[B,S]"], "model(ids, targets)", {"S": [64, 128]}),
    ("Translator()", ["src=int64[B,S]", "tgt=int64[B,T]"], "F.cross_entropy(model(src, tgt).transpose(1, 2), tgt)", {"S": [64, 96], "T": [48, 64]}),
    ("Tagger()", ["ids=int64[B,S]", "y=int64[B]"], "F.cross_entropy(model(ids), y)", {"S": [64, 128]}),
    ("ViT()", ["x=float32[B,3,96,96]", "y=int64[B]"], "F.cross_entropy(model(x), y, label_smoothing=0.1)", {}),
    ("Denoiser()", ["x=float32[B,3,S,S]", "t=int64[B]"], "model(x, t)", {"S": [32, 64]}),
    ("VAE()", ["x=float32[B,3,64,64]"], "model(x)", {}),
    ("Critic()", ["x=float32[B,3,S,S]", "z=float32[B,3,S,S]"], "F.relu(1 - model(x)).mean() + F.relu(1 + model(z)).mean()", {"S": [64]}),
    ("TCN()", ["x=float32[B,8,S]", "y=float32[B]"], "F.mse_loss(model(x), y)", {"S": [128, 256]}),
    ("PointNet()", ["x=float32[B,N,3]", "y=int64[B]"], CE, {"N": [512, 1024]}),
    ("GCN()", ["x=float32[B,64]", "a=int64[E]", "b=int64[E]", "y=int64[B]"], "F.cross_entropy(model(x, a, b), y)", {"E": [8000, 9000]}),
    ("Attend()", ["x=float32[B,64]", "a=int64[E]", "b=int64[E]", "y=int64[B]"], "F.cross_entropy(model(x, a, b), y)", {"E": [8000, 9000]}),
    ("TwoTowers()", ["u=int64[B]", "bag=int64[B,20]"], "F.cross_entropy(model(u, bag), torch.arange(u.size(0), device=u.device))", {}),
    ("DLRM()", ["d=float32[B,13]", "s=int64[B,6]", "y=float32[B]"], "F.binary_cross_entropy_with_logits(model(d, s).float(), y.float())", {}),
    ("NeRF()", ["p=float32[B,64,3]", "c=float32[B,3]"], "F.mse_loss(model(p).float(), c.float())", {}),
    ("FNO()", ["x=float32[B,1,S,S]", "y=float32[B,1,S,S]"], "F.mse_loss(model(x), y)", {"S": [64, 96]}),
    ("MinimalMamba()", ["ids=int64[B,24]"], "F.cross_entropy(model(ids).transpose(1, 2), ids)", {}),
    ("Experts()", ["ids=int64[B,S]"], "F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())", {"S": [64, 128]}),
    ("MetaLlama()", ["ids=int64[B,S]"], "F.cross_entropy(model(ids)[:, :-1].reshape(-1, 4000), ids[:, 1:].reshape(-1))", {"S": [64, 128, 256]}),
    ("Triplet()", ["a=float32[B,3,64,64]", "p=float32[B,3,64,64]", "n=float32[B,3,64,64]"], "model(a, p, n)", {}),
    ("Contrast()", ["a=float32[B,3,64,64]", "b=float32[B,3,64,64]"], "model(a, b)", {}),
    ("OwnFunction()", ["x=float32[B,128]", "y=int64[B]"], CE, {}),
    ("Tabular()", ["c=int64[B,4]", "x=float32[B,16]", "y=float32[B,1]"], "F.huber_loss(model(c, x), y)", {}),
    ("KAN()", ["x=float32[B,32]", "y=int64[B]"], CE, {}),
    ("WaveNet()", ["x=float32[B,S]", "y=int64[B,S]"], CE, {"S": [1024, 2048]}),
    ("Cell()", ["ids=int64[B,16]"], "F.cross_entropy(model(ids).transpose(1, 2), ids)", {}),
    ("Window()", ["x=float32[B,3,112,112]", "y=int64[B]"], CE, {}),
    ("Detector()", ["x=float32[B,3,S,S]", "boxes=float32[B,4]"], "model(x, boxes)", {"S": [96, 128]}),
    ("Hash()", ["p=float32[B,3]", "c=float32[B,4]"], "F.l1_loss(model(p), c)", {}),
    ("LinearAttention()", ["ids=int64[B,S]"], "F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())", {"S": [64, 96]}),
    ("Quantizer()", ["x=float32[B,3,S,S]"], "model(x)", {"S": [64, 96]}),
    ("LowRank()", ["x=float32[B,512]", "y=int64[B]"], CE, {}),
    ("Teacher()", ["x=float32[B,256]"], "model(x)", {}),
    ("Cross()", ["x=float32[B,N,16]", "y=int64[B]"], CE, {"N": [256, 512]}),
]


def classes():
    """As `later.classes`."""
    for call, inputs, loss, axes in ROWS:
        yield "modules:" + call, inputs, loss, axes
