"""Those of `modules.py` that look at images, or draw them."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


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
