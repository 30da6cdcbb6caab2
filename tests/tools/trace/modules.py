"""Models as people write them in a file of their own, for `lot.py --modules`: plain PyTorch, every one another way of writing.

Each row of `ROWS` is a call, its inputs, its loss and the sizes of its axes to choose from, as `later.py` has them.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint


class Classifier(nn.Module):
    """The tutorial's: convolutions, pooling, dropout, two linears."""

    def __init__(self, width=32):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, width, 3), nn.Conv2d(width, 2 * width, 3)
        self.drop = nn.Dropout(0.25)
        self.fc1, self.fc2 = nn.Linear(2 * width * 14 * 14, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.drop(torch.flatten(x, 1))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


class Twice(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Milesial's: two convolutions a level, skips by concatenation, transposed convolutions or bilinear upsampling."""

    def __init__(self, width=32, levels=4, bilinear=False):
        super().__init__()
        sizes = [width * 2**n for n in range(levels)]
        self.start = Twice(3, width)
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(b, a, 1)) if bilinear
            else nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(sizes, sizes[1:])
        )
        self.merge = nn.ModuleList(Twice(2 * a, a) for a in sizes[:-1])
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        skips = [self.start(x)]
        for down in self.down:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge)):
            x = up(x)
            other = skips.pop()
            high, wide = other.size(2) - x.size(2), other.size(3) - x.size(3)
            x = F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
            x = merge(torch.cat([other, x], dim=1))
        return self.out(x)


class BilinearUNet(UNet):
    def __init__(self):
        super().__init__(bilinear=True)


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


class ViT(nn.Module):
    """A vision transformer by `unfold` and chunks, as small repositories have it."""

    def __init__(self, image=96, patch=8, width=192, depth=4, heads=6):
        super().__init__()
        self.patch, count = patch, (image // patch) ** 2
        self.embed = nn.Linear(3 * patch * patch, width)
        self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, count + 1, width))
        self.layers = nn.ModuleList(
            nn.ModuleList([
                nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True), nn.LayerNorm(width),
                nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
            ]) for _ in range(depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 100))

    def forward(self, x):
        x = self.embed(F.unfold(x, self.patch, stride=self.patch).transpose(1, 2))
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], dim=1) + self.pos
        for norm1, attention, norm2, mlp in self.layers:
            y = norm1(x)
            x = x + attention(y, y, y, need_weights=False)[0]
            x = x + mlp(norm2(x))
        return self.head(x[:, 0])


class Residual(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.norm2, self.conv2 = nn.GroupNorm(8, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.dropout(F.silu(self.norm2(h)), 0.1, self.training)) + self.skip(x)


class Denoiser(nn.Module):
    """A DDPM's network, its noise and its loss in one, with attention at the bottom."""

    def __init__(self, width=32):
        super().__init__()
        time = 4 * width
        self.width, self.time = width, nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = Residual(width, width, time), Residual(width, 2 * width, time)
        self.pool1, self.pool2 = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)
        self.middle, self.norm = Residual(2 * width, 2 * width, time), nn.GroupNorm(8, 2 * width)
        self.qkv, self.proj = nn.Conv1d(2 * width, 6 * width, 1), nn.Conv1d(2 * width, 2 * width, 1)
        self.up2, self.up1 = Residual(4 * width, width, time), Residual(2 * width, width, time)
        self.last = nn.Conv2d(width, 3, 3, padding=1)
        betas = torch.linspace(1e-4, 0.02, 1000)
        self.register_buffer("kept", torch.cumprod(1 - betas, 0))

    def forward(self, x, t):
        kept = self.kept[t][:, None, None, None]
        noise = torch.randn_like(x)
        x = kept.sqrt() * x + (1 - kept).sqrt() * noise
        half = self.width // 2
        angles = t[:, None].float() * torch.exp(-math.log(10000) * torch.arange(half, device=x.device) / half)[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        one = self.down1(self.first(x), time)
        two = self.down2(self.pool1(one), time)
        x = self.middle(self.pool2(two), time)
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).view(b, c, h * w)).chunk(3, dim=1)
        weight = torch.softmax(torch.einsum("bct,bcs->bts", q, k) * c**-0.5, dim=-1)
        x = x + self.proj(torch.einsum("bts,bcs->bct", weight, v)).view(b, c, h, w)
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2), two], dim=1), time)
        x = self.up1(torch.cat([F.interpolate(x, scale_factor=2), one], dim=1), time)
        return F.mse_loss(self.last(x), noise)


class VAE(nn.Module):
    def __init__(self, width=32, latent=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2), nn.Flatten(),
        )
        self.mu, self.logvar = nn.Linear(2 * width * 256, latent), nn.Linear(2 * width * 256, latent)
        self.decode = nn.Linear(latent, 2 * width * 256)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (2 * width, 16, 16)), nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid(),
        )

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        out = self.decoder(self.decode(z))
        return F.l1_loss(out.float(), x.float(), reduction="sum") - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


class Critic(nn.Module):
    """A discriminator by spectral norm: every weight is made anew."""

    def __init__(self, width=64):
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width]
        self.body = nn.Sequential(*(
            layer for a, b in zip(sizes, sizes[1:]) for layer in (spectral_norm(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True))
        ))
        self.out = spectral_norm(nn.Linear(4 * width, 1))

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3))).squeeze(1)


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


class NeRF(nn.Module):
    def __init__(self, width=256, depth=6, bands=10):
        super().__init__()
        self.bands = bands
        self.layers = nn.ModuleList()
        inside = 3 + 6 * bands
        for n in range(depth):
            self.layers.append(nn.Linear(inside if n == 0 else width + (inside if n == depth // 2 else 0), width))
        self.sigma, self.rgb = nn.Linear(width, 1), nn.Sequential(nn.Linear(width, 128), nn.ReLU(True), nn.Linear(128, 3))

    def forward(self, points):
        powers = 2.0 ** torch.arange(self.bands, device=points.device)
        angles = (points.unsqueeze(-1) * powers).flatten(-2)
        encoded = torch.cat([points, angles.sin(), angles.cos()], dim=-1)
        x = encoded
        for n, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, encoded], -1) if n == len(self.layers) // 2 else x))
        density = F.softplus(self.sigma(x)).squeeze(-1)
        alpha = 1 - torch.exp(-density * 0.01)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * through).unsqueeze(-1) * torch.sigmoid(self.rgb(x))).sum(1)


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: complex weights over the lowest modes."""

    def __init__(self, width=32, modes=12):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)
        self.w = nn.Conv2d(width, width, 1)

    def forward(self, x):
        xf = torch.fft.rfft2(x.float())
        out = torch.zeros_like(xf)
        m = self.modes
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", xf[:, :, :m, :m], self.weight)
        return F.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + self.w(x))


class FNO(nn.Module):
    def __init__(self, width=32, layers=3):
        super().__init__()
        self.lift, self.project = nn.Conv2d(1, width, 1), nn.Conv2d(width, 1, 1)
        self.layers = nn.Sequential(*(Spectral(width) for _ in range(layers)))

    def forward(self, x):
        return self.project(self.layers(self.lift(x)))


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


class Window(nn.Module):
    """Windows of a picture by views and rolls, with a table of biases, as Swin has it."""

    def __init__(self, width=96, side=7, heads=3, depth=2):
        super().__init__()
        self.side, self.heads = side, heads
        self.embed = nn.Conv2d(3, width, 4, 4)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width), "norm2": nn.LayerNorm(width),
            "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
        }) for _ in range(depth))
        self.tables = nn.ParameterList(nn.Parameter(torch.zeros((2 * side - 1) ** 2, heads)) for _ in range(depth))
        place = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        apart = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + side - 1
        self.register_buffer("index", apart[..., 0] * (2 * side - 1) + apart[..., 1])
        self.head = nn.Linear(width, 50)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        s = self.side
        for n, (layer, table) in enumerate(zip(self.layers, self.tables)):
            y = layer["norm1"](x)
            if n % 2:
                y = torch.roll(y, (-(s // 2), -(s // 2)), (1, 2))
            y = y.view(b, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
            q, k, v = layer["qkv"](y).reshape(-1, s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            bias = table[self.index.view(-1)].view(s * s, s * s, -1).permute(2, 0, 1).contiguous()
            att = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + bias.unsqueeze(0)
            y = layer["proj"]((att.softmax(-1) @ v).transpose(1, 2).reshape(-1, s * s, c))
            y = y.view(b, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            if n % 2:
                y = torch.roll(y, (s // 2, s // 2), (1, 2))
            x = x + y
            x = x + layer["mlp"](layer["norm2"](x))
        return self.head(x.mean((1, 2)))


class Detector(nn.Module):
    """A small head of boxes and classes over two scales, with its loss."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.SiLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.SiLU())
        self.two = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, 2, 1), nn.SiLU())
        self.heads = nn.ModuleList(nn.Conv2d(2 * width, 5 + classes, 1) for _ in range(2))

    def forward(self, x, boxes):
        one = self.one(x)
        two = self.two(one)
        out = [head(f).permute(0, 2, 3, 1).flatten(1, 2) for head, f in zip(self.heads, (one, two))]
        out = torch.cat(out, 1).float()
        place = out[..., :4].sigmoid()
        lost = F.smooth_l1_loss(place, boxes[:, None, :].expand_as(place), reduction="none").sum(-1)
        weight = F.binary_cross_entropy_with_logits(out[..., 4], torch.zeros_like(out[..., 4]), reduction="none")
        return (lost + weight + out[..., 5:].logsumexp(-1)).mean()


class Hash(nn.Module):
    """Instant-NGP's grid in plain PyTorch: corners by products and xor, trilinear weights."""

    def __init__(self, levels=4, size=2**14, width=2):
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(size, width) * 1e-4) for _ in range(levels))
        self.size, self.levels = size, levels
        self.net = nn.Sequential(nn.Linear(levels * width, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, points):
        out = []
        for n, table in enumerate(self.tables):
            scaled = points * (16 * 1.5**n)
            floor = scaled.floor()
            frac, low, total = scaled - floor, floor.long(), 0
            for corner in range(8):
                bits = torch.tensor([corner & 1, corner >> 1 & 1, corner >> 2 & 1], device=points.device)
                place = low + bits
                index = (place[:, 0] ^ (place[:, 1] * 2654435761) ^ (place[:, 2] * 805459861)) % self.size
                weight = torch.where(bits.bool(), frac, 1 - frac).prod(-1, keepdim=True)
                total = total + table[index] * weight
            out.append(total)
        return self.net(torch.cat(out, -1))


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


class Quantizer(nn.Module):
    """VQ-VAE: nearest code by distances, straight-through gradient, a moving table."""

    def __init__(self, width=64, codes=512):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1))
        self.codes = nn.Embedding(codes, width)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1))

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, z.size(-1)).float()
        table = self.codes.weight.float()
        apart = flat.pow(2).sum(1, keepdim=True) + table.pow(2).sum(1) - 2 * flat @ table.t()
        picks = torch.argmin(apart, dim=1)
        hot = F.one_hot(picks, table.size(0)).type(flat.dtype)
        q = (hot @ table).view(z.shape)
        loss = F.mse_loss(q.detach(), z.float()) * 0.25 + F.mse_loss(q, z.detach().float())
        q = z + (q - z).detach().to(z.dtype)
        usage = torch.exp(-torch.sum(hot.mean(0) * torch.log(hot.mean(0) + 1e-10)))
        return loss + F.mse_loss(self.decoder(q.permute(0, 3, 1, 2).contiguous()).float(), x.float()) + 0 * usage


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
