"""As `modules.py`, drawn later: other models of people's own, which `lot.py --own more_modules` takes."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import orthogonal


class Decoder(nn.Module):
    """Captions: features of an image are read by PyTorch's own decoder layers."""

    def __init__(self, words=2000, width=192):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.GELU(), nn.Conv2d(64, width, 4, 4))
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(1, 128, width))
        layer = nn.TransformerDecoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerDecoder(layer, 3, nn.LayerNorm(width)), nn.Linear(width, words)

    def forward(self, image, ids):
        seen = self.stem(image).flatten(2).transpose(1, 2)
        said = self.words(ids) * math.sqrt(self.words.embedding_dim) + self.places[:, : ids.size(1)]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1), device=ids.device)
        return self.head(self.layers(said, seen, tgt_mask=mask, tgt_is_causal=True))


class ConvLSTM(nn.Module):
    """Frames one after the other through convolutions that carry a state."""

    def __init__(self, width=24):
        super().__init__()
        self.width = width
        self.gates, self.out = nn.Conv2d(1 + width, 4 * width, 3, padding=1), nn.Conv2d(width, 1, 1)

    def forward(self, frames):
        b, n, _, h, w = frames.shape
        hidden = cell = frames.new_zeros(b, self.width, h, w)
        guesses = []
        for step in range(n):
            i, f, o, g = self.gates(torch.cat([frames[:, step], hidden], 1)).chunk(4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            guesses.append(self.out(hidden))
        return F.mse_loss(torch.stack(guesses[:-1], 1), frames[:, 1:])


class Recognizer(nn.Module):
    """Speech: two convolutions over a spectrogram, an encoder, CTC."""

    def __init__(self, width=144, signs=48):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.Hardtanh(0, 20), nn.Conv2d(32, 32, 3, 2, 1), nn.Hardtanh(0, 20))
        self.project = nn.Linear(32 * 20, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 3), nn.Linear(width, signs)

    def forward(self, spectrogram):
        x = self.front(spectrogram.unsqueeze(1)).permute(0, 3, 1, 2).flatten(2)
        return self.head(self.encoder(self.project(x))).log_softmax(-1)


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, width), nn.Sigmoid())

    def forward(self, x):
        return x * self.fc(x.mean((2, 3)))[:, :, None, None]


class Fixup(nn.Module):
    """Residual blocks with squeeze and excitation, instance norm, stochastic depth by a mask, mixup in the loss."""

    def __init__(self, width=48, depth=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.InstanceNorm2d(width, affine=True), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), Squeeze(width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            keep = torch.empty(x.size(0), 1, 1, 1, device=x.device).bernoulli_(0.9)
            x = x + block(x) * keep / 0.9
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Flow(nn.Module):
    """RealNVP: couplings by masks, the logarithm of the determinant as the loss."""

    def __init__(self, width=64, hidden=256, steps=6):
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.LeakyReLU(0.1), nn.Linear(hidden, hidden), nn.LeakyReLU(0.1), nn.Linear(hidden, 2 * width))
            for _ in range(steps)
        )
        self.register_buffer("mask", (torch.arange(width) % 2).float())

    def forward(self, x):
        volume = x.new_zeros(x.size(0))
        for number, net in enumerate(self.nets):
            mask = self.mask if number % 2 else 1 - self.mask
            scale, shift = net(x * mask).chunk(2, 1)
            scale = torch.tanh(scale) * (1 - mask)
            x, volume = x * scale.exp() + shift * (1 - mask), volume + scale.sum(1)
        prior = -0.5 * (x**2 + math.log(2 * math.pi)).sum(1)
        return -(prior + volume).mean()


class Stepper(nn.Module):
    """A neural ordinary differential equation by Runge-Kutta of fourth order."""

    def __init__(self, width=128, steps=8):
        super().__init__()
        self.steps = steps
        self.field = nn.Sequential(nn.Linear(width + 1, 256), nn.Softplus(), nn.Linear(256, 256), nn.Softplus(), nn.Linear(256, width))
        self.head = nn.Linear(width, 10)

    def slope(self, t, x):
        return self.field(torch.cat([x, torch.full_like(x[:, :1], t)], 1))

    def forward(self, x):
        h = 1 / self.steps
        for number in range(self.steps):
            t = number * h
            a = self.slope(t, x)
            b = self.slope(t + h / 2, x + h / 2 * a)
            c = self.slope(t + h / 2, x + h / 2 * b)
            d = self.slope(t + h, x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        return self.head(x)


class Sparse(nn.Module):
    """A mixture that sends each token to the best expert, with places for so many and a loss of balance."""

    def __init__(self, width=192, experts=4, words=2000):
        super().__init__()
        self.words, self.gate, self.head = nn.Embedding(words, width), nn.Linear(width, experts, bias=False), nn.Linear(width, words)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)
        self.norm = nn.RMSNorm(width)

    def forward(self, ids):
        x = self.words(ids).flatten(0, 1)
        seen = self.norm(x)
        chance = self.gate(seen).float().softmax(-1)
        best, which = chance.max(-1)
        chosen = F.one_hot(which, chance.size(-1)).float()
        place = ((chosen.cumsum(0) - 1) * chosen).sum(-1).long()
        room = ids.numel() // chance.size(-1) * 2
        kept = (place < room).float()
        sent = chosen * kept[:, None]
        slots = F.one_hot(place.clamp(max=room - 1), room).float()
        dispatch = torch.einsum("te,tc->tec", sent, slots)
        inside = torch.einsum("tec,td->ecd", dispatch.to(seen.dtype), seen)
        made = torch.bmm(F.gelu(torch.bmm(inside, self.up.to(inside.dtype))), self.down.to(inside.dtype))
        out = torch.einsum("tec,ecd->td", (dispatch * best[:, None, None]).to(made.dtype), made)
        balance = (chosen.mean(0) * chance.mean(0)).sum() * chance.size(-1)
        logits = self.head(x + out)
        return F.cross_entropy(logits, ids.flatten()) + 0.01 * balance


class Rotary(nn.Module):
    """Attention by hand: rotated halves, ALiBi's slopes, a soft cap, an additive mask."""

    def __init__(self, width=256, heads=8, words=2000):
        super().__init__()
        self.heads, self.words = heads, nn.Embedding(words, width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False), nn.Linear(width, words)
        self.register_buffer("slopes", 2 ** (-8 * torch.arange(1, heads + 1) / heads), persistent=False)

    @staticmethod
    def turned(x):
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)

    def forward(self, ids):
        x = self.words(ids)
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        angle = torch.arange(s, device=x.device)[:, None] / 10000 ** (torch.arange(0, q.size(-1), 2, device=x.device) / q.size(-1))
        angle = torch.cat([angle, angle], -1)
        q, k = (t * angle.cos() + self.turned(t) * angle.sin() for t in (q, k))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = 30 * torch.tanh(scores / 30)
        away = torch.arange(s, device=x.device)
        scores = scores + self.slopes[:, None, None] * (away[None] - away[:, None]).clamp(max=0)
        scores = scores.masked_fill(torch.triu(torch.ones(s, s, dtype=torch.bool, device=x.device), 1), float("-inf"))
        mixed = F.dropout(scores.softmax(-1, dtype=torch.float32).type_as(v), 0.1, self.training) @ v
        return self.head(x + self.out(mixed.transpose(1, 2).reshape(b, s, w)))


class Siamese(nn.Module):
    """Two sentences by one orthogonal projection, cosine embedding loss, a bag with weights."""

    def __init__(self, words=5000, width=256):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width, mode="sum")
        self.project = orthogonal(nn.Linear(width, width, bias=False))

    def one(self, ids, weights):
        return F.normalize(self.project(self.bag(ids, per_sample_weights=weights.softmax(-1))), dim=-1)

    def forward(self, a, b, weights, same):
        return F.cosine_embedding_loss(self.one(a, weights), self.one(b, weights), same, margin=0.3)


class SuperResolution(nn.Module):
    """EDSR with pixel shuffle, a Charbonnier loss and a total variation."""

    def __init__(self, width=32, depth=4):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(depth))
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, low, high):
        x = self.first(low)
        for block in self.body:
            x = x + 0.1 * block(x)
        out = self.up(x) + F.interpolate(low, scale_factor=2, mode="bicubic", align_corners=False)
        loss = torch.sqrt((out - high) ** 2 + 1e-6).mean()
        return loss + 1e-4 * ((out[..., 1:, :] - out[..., :-1, :]).abs().mean() + (out[..., 1:] - out[..., :-1]).abs().mean())


class PPO(nn.Module):
    """An actor and a critic with one trunk, clipped ratios, entropy, advantages that are normalised."""

    def __init__(self, width=256, actions=6):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(32, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, seen, action, before, advantage, returned):
        x = self.trunk(seen)
        choice = torch.distributions.Categorical(logits=self.actor(x), validate_args=False)
        ratio = (choice.log_prob(action) - before).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return -gain + 0.5 * (self.critic(x).squeeze(-1) - returned).pow(2).mean() - 0.01 * choice.entropy().mean()


class Dice(nn.Module):
    """Volumes: a small V-Net in three dimensions, group norm, dice and focal loss."""

    def __init__(self, width=8):
        super().__init__()

        def block(a, b):
            return nn.Sequential(nn.Conv3d(a, b, 3, padding=1, bias=False), nn.GroupNorm(4, b), nn.LeakyReLU(inplace=True))

        self.a, self.b, self.c = block(1, width), block(width, 2 * width), block(3 * width, width)
        self.up, self.out = nn.ConvTranspose3d(2 * width, 2 * width, 2, 2), nn.Conv3d(width, 2, 1)

    def forward(self, x, y):
        a = self.a(x)
        b = self.b(F.max_pool3d(a, 2))
        logits = self.out(self.c(torch.cat([self.up(b), a], 1))).float()
        chance, truth = logits.softmax(1), F.one_hot(y, 2).movedim(-1, 1).float()
        dice = 1 - (2 * (chance * truth).sum((2, 3, 4)) + 1) / (chance.sum((2, 3, 4)) + truth.sum((2, 3, 4)) + 1)
        cross = F.cross_entropy(logits, y, reduction="none")
        return dice.mean() + ((1 - (-cross).exp()) ** 2 * cross).mean()


class Forecast(nn.Module):
    """A series in patches: reversible norm, linears over time, quantiles."""

    def __init__(self, patch=16, width=128):
        super().__init__()
        self.patch, self.into = patch, nn.Linear(patch, width)
        layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.2, activation=F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 3 * 24)
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def forward(self, x, y):
        mean, spread = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, unbiased=False) + 1e-5
        pieces = ((x - mean) / spread).unfold(-1, self.patch, self.patch // 2)
        made = self.out(self.encoder(self.into(pieces))[:, -1]).view(-1, 3, 24) * spread[:, None] + mean[:, None]
        off = y[:, None] - made
        return torch.maximum(self.levels[:, None] * off, (self.levels[:, None] - 1) * off).mean()


class Penalty(nn.Module):
    """WGAN-GP's critic: the norm of a gradient is part of the loss."""

    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.InstanceNorm2d(2 * width, affine=True),
            nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(2 * width * 64, 1),
        )

    def forward(self, real, made):
        share = torch.rand(real.size(0), 1, 1, 1, device=real.device)
        between = (share * real + (1 - share) * made).requires_grad_()
        (slope,) = torch.autograd.grad(self.net(between).sum(), between, create_graph=True)
        return self.net(made).mean() - self.net(real).mean() + 10 * ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


class Adapted(nn.Module):
    """MAML: one step on weights of the support set, the loss of the query set through it."""

    def __init__(self, width=128):
        super().__init__()
        self.a, self.b = nn.Linear(32, width), nn.Linear(width, 5)

    def forward(self, seen, y, asked, z):
        weights = list(self.parameters())

        def run(x, w):
            return F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3])

        slopes = torch.autograd.grad(F.cross_entropy(run(seen, weights), y), weights, create_graph=True)
        return F.cross_entropy(run(asked, [w - 0.1 * s for w, s in zip(weights, slopes)]), z)


class Transformed(nn.Module):
    """A spatial transformer before a small network with drop path and layer scale."""

    def __init__(self, width=48, depth=3):
        super().__init__()
        self.place = nn.Sequential(nn.Conv2d(3, 8, 7), nn.MaxPool2d(2), nn.ReLU(True), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 6))
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(depth))
        self.mixes = nn.ModuleList(nn.Conv2d(width, width, 7, padding=3, groups=width) for _ in range(depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)) for _ in range(depth))
        self.scales = nn.ParameterList(nn.Parameter(torch.full((width, 1, 1), 1e-5)) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = F.grid_sample(x, F.affine_grid(self.place(x).view(-1, 2, 3), x.shape, align_corners=False).to(x.dtype), align_corners=False)
        x = self.stem(x)
        for norm, mix, mlp, scale in zip(self.norms, self.mixes, self.mlps, self.scales):
            x = x + F.dropout2d(scale * mlp(mix(norm(x))), 0.1, self.training)
        return self.head(x.mean((-2, -1)))


class Hyper(nn.Module):
    """A network that writes another one's filters, one set a sample, by a grouped convolution; FiLM; sines."""

    def __init__(self, width=16):
        super().__init__()
        self.width, self.code = width, nn.Linear(32, 128)
        self.filters, self.film = nn.Linear(128, width * 3 * 9), nn.Linear(128, 2 * width)
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x, z):
        b, c, h, w = x.shape
        code = torch.sin(30 * self.code(z))
        filters = self.filters(code).view(b * self.width, 3, 3, 3)
        made = F.conv2d(x.reshape(1, b * c, h, w).to(filters.dtype), filters, padding=1, groups=b).view(b, self.width, h, w)
        scale, shift = self.film(code).view(b, 2, self.width, 1, 1).unbind(1)
        return self.out(F.relu(made * (1 + scale) + shift))


class Sets(nn.Module):
    """A set transformer with inducing points, pooling by attention, a mask of what is there."""

    def __init__(self, width=96, points=16):
        super().__init__()
        self.into, self.points, self.seed = nn.Linear(8, width), nn.Parameter(torch.randn(1, points, width)), nn.Parameter(torch.randn(1, 1, width))
        self.a, self.b, self.c = (nn.MultiheadAttention(width, 4, batch_first=True, dropout=0.1) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x, there):
        missing = there < 0
        h = self.into(x)
        inner = self.a(self.points.expand(x.size(0), -1, -1), h, h, key_padding_mask=missing, need_weights=False)[0]
        h = self.norm(h + self.b(h, inner, inner, need_weights=False)[0])
        pooled, _ = self.c(self.seed.expand(x.size(0), -1, -1), h, h, key_padding_mask=missing)
        return self.head(pooled.squeeze(1))


class Bottleneck(nn.Module):
    """An autoencoder with tied weights, an information bottleneck, a loss of sparse features and one of a kernel (MMD)."""

    def __init__(self, width=256, hidden=1024):
        super().__init__()
        self.weight, self.up, self.down = nn.Parameter(torch.randn(hidden, width) * 0.05), nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(width))

    @staticmethod
    def kernel(a, b):
        return torch.exp(-torch.cdist(a, b) ** 2 / a.size(1)).mean()

    def forward(self, x):
        features = F.relu(F.linear(x - self.down, self.weight, self.up))
        best = features.topk(64, dim=-1)
        kept = torch.zeros_like(features).scatter_(-1, best.indices, best.values)
        back = kept @ self.weight + self.down
        drawn = torch.randn_like(back)
        likeness = self.kernel(back, back) + self.kernel(drawn, drawn) - 2 * self.kernel(back, drawn)
        return F.mse_loss(back, x) + 1e-3 * features.norm(p=1, dim=-1).mean() + likeness


CE = "F.cross_entropy(model(x), y)"
# Call, inputs, loss, sizes.
ROWS = [
    ("Decoder()", ["x=float32[B,3,64,64]", "ids=int64[B,S]"], "F.cross_entropy(model(x, ids).transpose(1, 2), ids)", {"S": [48, 96]}),
    ("ConvLSTM()", ["x=float32[B,6,1,S,S]"], "model(x)", {"S": [32, 48]}),
    ("Recognizer()", ["x=float32[B,80,S]", "y=int64[B,20]"], "F.ctc_loss(model(x).transpose(0, 1).float(), y, torch.full((y.size(0),), x.size(2) // 4, dtype=torch.long), torch.full((y.size(0),), 20, dtype=torch.long))", {"S": [256, 400]}),
    ("Fixup()", ["x=float32[B,3,S,S]", "y=int64[B]"], CE, {"S": [48, 64]}),
    ("Flow()", ["x=float32[B,64]"], "model(x)", {}),
    ("Stepper()", ["x=float32[B,128]", "y=int64[B]"], CE, {}),
    ("Sparse()", ["ids=int64[B,S]"], "model(ids)", {"S": [64, 128]}),
    ("Rotary()", ["ids=int64[B,S]"], "F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())", {"S": [64, 128]}),
    ("Siamese()", ["a=int64[B,24]", "b=int64[B,24]", "w=float32[B,24]", "s=float32[B]"], "model(a, b, w, s)", {}),
    ("SuperResolution()", ["x=float32[B,3,48,48]", "y=float32[B,3,96,96]"], "model(x, y)", {}),
    ("PPO()", ["x=float32[B,32]", "a=int64[B]", "o=float32[B]", "g=float32[B]", "r=float32[B]"], "model(x, a, o, g, r)", {}),
    ("Dice()", ["x=float32[B,1,32,32,32]", "y=int64[B,32,32,32]"], "model(x, y)", {}),
    ("Penalty()", ["x=float32[B,3,32,32]", "z=float32[B,3,32,32]"], "model(x, z)", {}),
    ("Adapted()", ["x=float32[B,32]", "y=int64[B]", "q=float32[B,32]", "z=int64[B]"], "model(x, y, q, z)", {}),
    ("Transformed()", ["x=float32[B,3,S,S]", "y=int64[B]"], CE, {"S": [64, 96]}),
    ("Hyper()", ["x=float32[B,3,32,32]", "z=float32[B,32]"], "F.mse_loss(model(x, z), x)", {}),
    ("Sets()", ["x=float32[B,N,8]", "t=int64[B,N]", "y=int64[B]"], "F.cross_entropy(model(x, t), y)", {"N": [64, 128]}),
    ("Bottleneck()", ["x=float32[B,256]"], "model(x)", {}),
    ("Forecast()", ["x=float32[B,S]", "y=float32[B,24]"], "model(x, y)", {"S": [96, 192]}),
]


def classes():
    """As `later.classes`."""
    for call, inputs, loss, axes in ROWS:
        yield "more_modules:" + call, inputs, loss, axes
