"""As `modules.py`, drawn later again: models that keep something between steps, loop, route, or change their own weights, which
`lot.py --own further_modules` takes."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class Words(nn.Module):
    """A language model over a vocabulary that is cut into clusters."""

    def __init__(self, words=4000, width=192):
        super().__init__()
        self.words, self.cell = nn.Embedding(words, width), nn.GRUCell(width, width)
        self.out = nn.AdaptiveLogSoftmaxWithLoss(width, words, [400, 1600], div_value=2.0)

    def forward(self, ids):
        x, state, seen = self.words(ids), None, []
        for step in range(8):
            state = self.cell(x[:, step], state)
            seen.append(state)
        return self.out(torch.stack(seen, 1).flatten(0, 1), ids[:, :8].flatten()).loss


class Queue(nn.Module):
    """Momentum contrast: a second encoder that follows, and a queue of what it gave."""

    def __init__(self, width=128, length=2048):
        super().__init__()
        self.query = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, width))
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(width, length), dim=0))

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            for key, query in zip(self.key.parameters(), self.query.parameters()):
                key.data = key.data * 0.999 + query.data * 0.001
            k = F.normalize(self.key(b[torch.randperm(b.size(0), device=b.device)]), dim=1)
        near = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        far = torch.einsum("nc,ck->nk", q, self.queue.clone().detach().to(q.dtype))
        logits = torch.cat([near, far], 1) / 0.07
        self.queue[:, : k.size(0)] = k.t()
        return F.cross_entropy(logits, torch.zeros(logits.size(0), dtype=torch.long, device=logits.device))


class Crops(nn.Module):
    """Self-distillation over crops, with a centre that is kept."""

    def __init__(self, width=128, out=512):
        super().__init__()
        self.student = nn.Sequential(nn.Conv2d(3, width, 8, 8), nn.Flatten(2), nn.Linear(16, width), nn.GELU(), nn.Flatten(), nn.Linear(width * width, out))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(1, out))

    def forward(self, crops):
        seen = [self.student(crop) for crop in crops.unbind(1)]
        with torch.no_grad():
            told = [F.softmax((self.teacher(crop) - self.centre) / 0.04, -1) for crop in crops[:, :2].unbind(1)]
            self.centre.mul_(0.9).add_(torch.cat(told).mean(0, keepdim=True).to(self.centre.dtype), alpha=0.1)
        total, terms = 0, 0
        for i, t in enumerate(told):
            for j, s in enumerate(seen):
                if i != j:
                    total, terms = total - (t * F.log_softmax(s / 0.1, -1)).sum(-1).mean(), terms + 1
        return total / terms


class Assigned(nn.Module):
    """Prototypes to which samples are assigned evenly (Sinkhorn)."""

    def __init__(self):
        super().__init__()
        self.net, self.prototypes = nn.Sequential(nn.Linear(128, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 64)), nn.Linear(64, 300, bias=False)

    def forward(self, a, b):
        with torch.no_grad():
            self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))
        scores = [self.prototypes(F.normalize(self.net(x), dim=1)) for x in (a, b)]
        loss = 0
        for given, other in (scores, scores[::-1]):
            with torch.no_grad():
                q = torch.exp(given.float() / 0.05).t()
                q /= q.sum()
                for _ in range(3):
                    q /= q.sum(1, keepdim=True) * q.size(0)
                    q /= q.sum(0, keepdim=True) * q.size(1)
                q = (q * q.size(1)).t()
            loss = loss - (q * F.log_softmax(other / 0.1, 1)).sum(1).mean()
        return loss


class Perceiver(nn.Module):
    """Latents that read an image over and over with the same weights."""

    def __init__(self, width=128, latents=32):
        super().__init__()
        self.latents, self.into = nn.Parameter(torch.randn(latents, width) * 0.02), nn.Conv1d(3, width, 1)
        self.read = nn.MultiheadAttention(width, 4, batch_first=True)
        self.think = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        seen = self.into(x.flatten(2)).transpose(1, 2)
        h = self.latents.expand(x.size(0), -1, -1)
        for _ in range(3):
            h = self.think(h + self.read(h, seen, seen, need_weights=False)[0])
        return self.head(h.mean(1))


class TimeMix(nn.Module):
    """A state that decays by channel, step by step, as in RWKV."""

    def __init__(self, words=1000, width=96):
        super().__init__()
        self.words, self.mix = nn.Embedding(words, width), nn.ParameterList(nn.Parameter(torch.rand(width)) for _ in range(3))
        self.key, self.value, self.gate, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.decay, self.first, self.norm, self.head = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(width)), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, ids):
        x = self.words(ids)
        before = F.pad(x, (0, 0, 1, -1))
        k, v, r = (layer(x * mix + before * (1 - mix)) for layer, mix in zip((self.key, self.value, self.gate), self.mix))
        num = den = torch.zeros_like(x[:, 0])
        top, out = torch.full_like(num, -1e38), []
        for t in range(ids.size(1)):
            best = torch.maximum(top, self.first + k[:, t])
            a, b = torch.exp(top - best), torch.exp(self.first + k[:, t] - best)
            out.append((a * num + b * v[:, t]) / (a * den + b))
            best = torch.maximum(top - self.decay.exp(), k[:, t])
            a, b = torch.exp(top - self.decay.exp() - best), torch.exp(k[:, t] - best)
            num, den, top = a * num + b * v[:, t], a * den + b, best
        h = x + self.out(torch.sigmoid(r) * torch.stack(out, 1))
        return F.cross_entropy(self.head(self.norm(h)).transpose(1, 2), ids)


class Retention(nn.Module):
    """Attention with a decay instead of a softmax, and group norm over heads."""

    def __init__(self, words=1000, width=128, heads=4):
        super().__init__()
        self.words, self.heads = nn.Embedding(words, width), heads
        self.qkv, self.gate, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.norm, self.head = nn.GroupNorm(heads, width, affine=False), nn.Linear(width, words)
        self.register_buffer("decay", torch.log(1 - 2 ** (-5 - torch.arange(heads, dtype=torch.float))))

    def forward(self, ids):
        x = self.words(ids)
        b, s, c = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        steps = torch.arange(s, device=x.device)
        apart = (steps[:, None] - steps[None]).float()
        mask = torch.exp(apart * self.decay[:, None, None]).masked_fill(apart < 0, 0)
        y = (q @ k.transpose(-1, -2) * mask.to(q.dtype) / math.sqrt(c // self.heads)) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * s, c)).view(b, s, c)
        return F.cross_entropy(self.head(x + self.out(F.silu(self.gate(x)) * y)).transpose(1, 2), ids)


class GraphAttention(nn.Module):
    """A softmax over each node's edges, by `scatter_reduce`."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads, self.into = heads, nn.Linear(16, width)
        self.q, self.k, self.v, self.edge = (nn.Linear(width, width) for _ in range(4))
        self.kinds, self.head = nn.Embedding(8, width), nn.Linear(width, 5)

    def forward(self, x, edges, kind, y):
        h = self.into(x)
        source, target = edges
        e = self.edge(self.kinds(kind))
        shape = (-1, self.heads, h.size(1) // self.heads)
        q, k, v = self.q(h)[target].view(shape), (self.k(h)[source] + e).view(shape), (self.v(h)[source] + e).view(shape)
        score = (q * k).sum(-1) / math.sqrt(shape[-1])
        place = target[:, None].expand_as(score)
        top = torch.full((h.size(0), self.heads), -math.inf, dtype=score.dtype, device=h.device).scatter_reduce(0, place, score.detach(), "amax")
        weight = torch.exp(score - top[target])
        total = torch.zeros_like(top).to(weight.dtype).scatter_add(0, place, weight)
        weight = weight / (total[target] + 1e-9)
        out = torch.zeros(h.size(0), *shape[1:], dtype=v.dtype, device=h.device).index_add(0, target, (weight.unsqueeze(-1) * v).to(v.dtype))
        return F.cross_entropy(self.head(F.elu(h + out.flatten(1))), y)


class Points(nn.Module):
    """Farthest points, their neighbours, and what is largest among these."""

    def __init__(self):
        super().__init__()
        self.near = nn.Sequential(nn.Conv2d(3, 32, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 1), nn.BatchNorm2d(64), nn.ReLU())
        self.far, self.head = nn.Sequential(nn.Conv1d(67, 128, 1), nn.BatchNorm1d(128), nn.ReLU()), nn.Linear(128, 12)

    def forward(self, x):
        b, n, _ = x.shape
        rows = torch.arange(b, device=x.device)
        chosen, apart = torch.zeros(b, 32, dtype=torch.long, device=x.device), torch.full((b, n), 1e10, dtype=x.dtype, device=x.device)
        last = torch.zeros(b, dtype=torch.long, device=x.device)
        for i in range(32):
            chosen[:, i] = last
            apart = torch.minimum(apart, ((x - x[rows, last, None]) ** 2).sum(-1))
            last = apart.max(-1)[1]
        centres = x[rows[:, None], chosen]
        nearest = torch.cdist(centres, x).topk(16, largest=False)[1]
        groups = x[rows[:, None, None], nearest] - centres[:, :, None]
        h = self.near(groups.permute(0, 3, 2, 1)).max(2)[0]
        return self.head(self.far(torch.cat([centres.transpose(1, 2), h], 1)).max(2)[0])


class Actor(nn.Module):
    """Soft actor-critic: two critics, their slow copies, and a temperature that is learnt."""

    def __init__(self, seen=24, acts=6):
        super().__init__()
        net = lambda i, o: nn.Sequential(nn.Linear(i, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, o))  # noqa: E731
        self.policy, self.critics = net(seen, 2 * acts), nn.ModuleList(net(seen + acts, 1) for _ in range(2))
        self.slow, self.heat = copy.deepcopy(self.critics).requires_grad_(False), nn.Parameter(torch.zeros(()))

    def drawn(self, x):
        mean, spread = self.policy(x).chunk(2, -1)
        normal = torch.distributions.Normal(mean.float(), spread.float().clamp(-5, 2).exp())
        raw = normal.rsample()
        return torch.tanh(raw), (normal.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(-1)

    def forward(self, x, a, r, after, end):
        with torch.no_grad():
            act, said = self.drawn(after)
            best = torch.minimum(*(slow(torch.cat([after, act], -1)).squeeze(-1) for slow in self.slow))
            wanted = r + 0.99 * (1 - end) * (best - self.heat.exp() * said)
        loss = sum(F.mse_loss(critic(torch.cat([x, a], -1)).squeeze(-1).float(), wanted.float()) for critic in self.critics)
        act, said = self.drawn(x)
        for critic in self.critics:
            critic.requires_grad_(False)
        best = torch.minimum(*(critic(torch.cat([x, act], -1)).squeeze(-1) for critic in self.critics))
        for critic in self.critics:
            critic.requires_grad_(True)
        heat = -(self.heat * (said.detach() - 6)).mean()
        return loss + (self.heat.exp().detach() * said - best).mean() + heat


class World(nn.Module):
    """A recurrent world model: a posterior and a prior at each step, drawn straight through."""

    def __init__(self, width=128, kinds=8, classes=8):
        super().__init__()
        self.kinds, self.classes = kinds, classes
        self.cell, self.see = nn.GRUCell(kinds * classes + 4, width), nn.Linear(32, width)
        self.post, self.prior, self.show = nn.Linear(2 * width, kinds * classes), nn.Linear(width, kinds * classes), nn.Linear(width + kinds * classes, 32)

    def forward(self, x, a):
        seen = self.see(x)
        state, latent = x.new_zeros(x.size(0), self.cell.hidden_size), x.new_zeros(x.size(0), self.kinds * self.classes)
        loss = 0
        for t in range(x.size(1)):
            state = self.cell(torch.cat([latent, a[:, t]], -1), state)
            post = F.log_softmax(self.post(torch.cat([state, seen[:, t]], -1)).view(-1, self.kinds, self.classes), -1)
            prior = F.log_softmax(self.prior(state).view(-1, self.kinds, self.classes), -1)
            drawn = F.one_hot(torch.distributions.Categorical(logits=post.float()).sample(), self.classes).to(post.dtype)
            latent = (drawn + post.exp() - post.exp().detach()).flatten(1)
            loss = loss + F.mse_loss(self.show(torch.cat([state, latent], -1)), x[:, t])
            loss = loss + F.kl_div(prior, post.detach(), log_target=True, reduction="batchmean") + 0.1 * F.kl_div(prior.detach(), post, log_target=True, reduction="batchmean")
        return loss / x.size(1)


class Copying(nn.Module):
    """A summariser that attends step by step and may copy what it reads."""

    def __init__(self, words=1500, width=96):
        super().__init__()
        self.words, self.read = nn.Embedding(words, width), nn.Linear(width, width)
        self.cell, self.score, self.out, self.gate = nn.LSTMCell(2 * width, width), nn.Linear(width, width), nn.Linear(2 * width, words), nn.Linear(3 * width, 1)

    def forward(self, ids, summary):
        seen = torch.tanh(self.read(self.words(ids)))
        h = c = seen.mean(1)
        context, loss = torch.zeros_like(h), 0
        for t in range(6):
            x = self.words(summary[:, t])
            h, c = self.cell(torch.cat([x, context], -1), (h, c))
            attention = torch.softmax((seen @ self.score(h).unsqueeze(-1)).squeeze(-1), -1)
            context = (attention.unsqueeze(1) @ seen).squeeze(1)
            says = torch.softmax(self.out(torch.cat([h, context], -1)), -1)
            gate = torch.sigmoid(self.gate(torch.cat([h, context, x.to(h.dtype)], -1)))
            chance = (gate * says).float().scatter_add(1, ids, ((1 - gate) * attention).float())
            loss = loss - torch.log(chance.gather(1, summary[:, t + 1 : t + 2]) + 1e-8).mean()
        return loss / 6


class Capsules(nn.Module):
    """Routing by agreement."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(1, 64, 9), nn.Conv2d(64, 64, 9, 2)
        self.weight = nn.Parameter(torch.randn(1, 10, 8 * 36, 16, 8) * 0.01)

    @staticmethod
    def squash(x, dim):
        size = (x**2).sum(dim, keepdim=True)
        return size / (1 + size) * x / torch.sqrt(size + 1e-8)

    def forward(self, x, y):
        h = self.first(F.relu(self.stem(x)))
        u = self.squash(h.view(x.size(0), 8, 8, -1).permute(0, 1, 3, 2).reshape(x.size(0), -1, 8), -1)
        said = (self.weight @ u[:, None, :, :, None]).squeeze(-1)
        logits = torch.zeros(*said.shape[:3], 1, dtype=said.dtype, device=x.device)
        for i in range(3):
            v = self.squash((F.softmax(logits, 1) * said).sum(2, keepdim=True), -1)
            if i < 2:
                logits = logits + (said.detach() * v).sum(-1, keepdim=True)
        length = v.squeeze(2).norm(dim=-1)
        hot = F.one_hot(y, 10)
        return (hot * F.relu(0.9 - length) ** 2 + 0.5 * (1 - hot) * F.relu(length - 0.1) ** 2).sum(1).mean()


class Margin(nn.Module):
    """Faces by an angle with a margin, and centres that are learnt."""

    def __init__(self, people=2000):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.PReLU(32), nn.Conv2d(32, 64, 3, 2, 1), nn.PReLU(64), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 128))
        self.weight, self.centres = nn.Parameter(torch.randn(people, 128)), nn.Parameter(torch.randn(people, 128))

    def forward(self, x, y):
        e = self.net(x)
        cosine = F.linear(F.normalize(e), F.normalize(self.weight)).float().clamp(-1 + 1e-7, 1 - 1e-7)
        hot = torch.zeros_like(cosine).scatter_(1, y.view(-1, 1), 1)
        logits = torch.where(hot.bool(), torch.cos(torch.acos(cosine) + 0.5), cosine) * 64
        return F.cross_entropy(logits, y) + 0.01 * (e - self.centres[y]).pow(2).sum(1).mean()


class Mixed(nn.Module):
    """Images mixed with one another, layers left out by chance."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(48, 48, 7, padding=3, groups=48), nn.BatchNorm2d(48), nn.Conv2d(48, 192, 1), nn.GELU(), nn.Conv2d(192, 48, 1)) for _ in range(3))
        self.head = nn.Linear(48, 100)

    def forward(self, x, y):
        part = torch.distributions.Beta(0.8, 0.8).sample().item()
        order = torch.randperm(x.size(0), device=x.device)
        h = self.stem(part * x + (1 - part) * x[order])
        for block in self.blocks:
            keep = torch.empty(x.size(0), 1, 1, 1, dtype=h.dtype, device=x.device).bernoulli_(0.9).div_(0.9)
            h = h + block(h) * keep
        logits = self.head(h.mean((2, 3)))
        return part * F.cross_entropy(logits, y, label_smoothing=0.1) + (1 - part) * F.cross_entropy(logits, y[order], label_smoothing=0.1)


class Pixels(nn.Module):
    """Convolutions that see only what came before: their weights are masked as they run."""

    class Masked(nn.Conv2d):
        def __init__(self, kind, *args, **kwargs):
            super().__init__(*args, **kwargs)
            mask = torch.ones_like(self.weight)
            middle = self.kernel_size[0] // 2
            mask[:, :, middle, middle + (kind == "B") :] = 0
            mask[:, :, middle + 1 :] = 0
            self.register_buffer("mask", mask)

        def forward(self, x):
            self.weight.data *= self.mask
            return super().forward(x)

    def __init__(self, width=64):
        super().__init__()
        layers = [self.Masked("A", 3, width, 7, padding=3)]
        for _ in range(4):
            layers += [nn.BatchNorm2d(width), nn.ReLU(True), self.Masked("B", width, width, 7, padding=3)]
        self.net = nn.Sequential(*layers, nn.ReLU(True), nn.Conv2d(width, 3 * 32, 1))

    def forward(self, x):
        logits = self.net(x)
        b, _, h, w = logits.shape
        wanted = (x.clamp(0, 1) * 31).long()
        return F.cross_entropy(logits.view(b, 32, 3, h, w), wanted)


class Styled(nn.Module):
    """Convolutions whose weights a style scales for each sample, run as groups."""

    def __init__(self, width=64):
        super().__init__()
        self.map = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, width))
        self.start, self.weights = nn.Parameter(torch.randn(1, width, 8, 8)), nn.ParameterList(nn.Parameter(torch.randn(width, width, 3, 3)) for _ in range(3))
        self.noise, self.out = nn.Parameter(torch.zeros(3)), nn.Conv2d(width, 3, 1)

    def forward(self, z, x):
        style, h = self.map(z), self.start.expand(z.size(0), -1, -1, -1)
        for i, weight in enumerate(self.weights):
            scaled = weight.unsqueeze(0) * style[:, None, :, None, None]
            scaled = scaled * torch.rsqrt(scaled.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
            b, c = h.shape[:2]
            h = F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)
            h = F.conv2d(h.reshape(1, b * c, *h.shape[2:]), scaled.flatten(0, 1).to(h.dtype), padding=1, groups=b).view(b, c, *h.shape[2:])
            h = F.leaky_relu(h + self.noise[i] * torch.randn_like(h[:, :1]), 0.2)
        return F.l1_loss(self.out(h), x)


class Memory(nn.Module):
    """Segments that attend to what the last one left (Transformer-XL)."""

    def __init__(self, words=1000, width=128, layers=2):
        super().__init__()
        self.words, self.left = nn.Embedding(words, width), None
        self.attend = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(layers))
        self.feed = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        h, leaves = self.words(ids), []
        left = self.left or [h.new_zeros(h.size(0), 0, h.size(2)) for _ in self.attend]
        for attend, feed, before in zip(self.attend, self.feed, left):
            leaves.append(h.detach())
            seen = torch.cat([before, h], 1)
            mask = torch.ones(h.size(1), seen.size(1), dtype=torch.bool, device=h.device).triu(1 + before.size(1))
            h = h + attend(h, seen, seen, attn_mask=mask, need_weights=False)[0]
            h = h + feed(h)
        self.left = [leaf for leaf in leaves]
        return F.cross_entropy(self.head(h).transpose(1, 2), ids)


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, f, g, *parameters):
        with torch.no_grad():
            a = x + f(y)
            b = y + g(a)
        ctx.f, ctx.g = f, g
        ctx.save_for_backward(a.detach(), b.detach())
        return a, b

    @staticmethod
    def backward(ctx, da, db):
        a, b = ctx.saved_tensors
        parameters = [*ctx.f.parameters(), *ctx.g.parameters()]
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            seen = ctx.g(a)
            y = b - seen
            grads_g = torch.autograd.grad(seen, [a, *ctx.g.parameters()], db)
            da = da + grads_g[0]
            y = y.detach().requires_grad_()
            grads_f = torch.autograd.grad(ctx.f(y), [y, *ctx.f.parameters()], da)
        assert len(parameters) == len(grads_f) + len(grads_g) - 2
        return (da, db + grads_f[0], None, None, *grads_f[1:], *grads_g[1:])


class Reversed(nn.Module):
    """Blocks that are computed backwards, so that nothing of them is kept."""

    def __init__(self, width=192, depth=4):
        super().__init__()
        net = lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))  # noqa: E731
        self.words, self.blocks = nn.Embedding(1000, width), nn.ModuleList(nn.ModuleList([net(), net()]) for _ in range(depth))
        self.head = nn.Linear(2 * width, 1000)

    def forward(self, ids):
        x = y = self.words(ids)
        for f, g in self.blocks:
            x, y = Reversible.apply(x, y, f, g, *f.parameters(), *g.parameters())
        return F.cross_entropy(self.head(torch.cat([x, y], -1)).transpose(1, 2), ids)


class Tags(nn.Module):
    """A chain of tags: the sum over all ways through, step by step."""

    def __init__(self, tags=12, width=96):
        super().__init__()
        self.words, self.cell = nn.Embedding(1000, width), nn.Conv1d(width, width, 5, padding=2)
        self.head, self.moves, self.start = nn.Linear(width, tags), nn.Parameter(torch.zeros(tags, tags)), nn.Parameter(torch.zeros(tags))

    def forward(self, ids, tags, there):
        scores = self.head(F.relu(self.cell(self.words(ids).transpose(1, 2))).transpose(1, 2)).float()
        tags = tags.clamp(0, self.start.numel() - 1)
        alpha = self.start + scores[:, 0]
        for t in range(1, ids.size(1)):
            new = torch.logsumexp(alpha.unsqueeze(2) + self.moves + scores[:, t].unsqueeze(1), 1)
            alpha = torch.where(there[:, t : t + 1], new, alpha)
        emitted = scores.gather(2, tags.unsqueeze(2)).squeeze(2)
        moved = self.moves[tags[:, :-1], tags[:, 1:]]
        gold = self.start[tags[:, 0]] + (emitted * there).sum(1) + (moved * there[:, 1:]).sum(1)
        return (torch.logsumexp(alpha, 1) - gold).mean()


class Adversary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg()


class Domains(nn.Module):
    """Features that tell classes and do not tell domains."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.InstanceNorm2d(32, affine=True), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.Hardswish(), nn.AdaptiveMaxPool2d(4), nn.Flatten())
        self.classes, self.domains = nn.Linear(1024, 10), nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 1))

    def forward(self, a, y, b):
        here, there = self.net(a), self.net(b)
        told = self.domains(Adversary.apply(torch.cat([here, there]))).squeeze(1)
        domain = torch.cat([torch.zeros_like(told[: a.size(0)]), torch.ones_like(told[a.size(0) :])])
        return F.cross_entropy(self.classes(here), y) + F.binary_cross_entropy_with_logits(told, domain)


class Windows(nn.Module):
    """Attention within windows that overlap, cut out with `unfold`."""

    def __init__(self, words=1000, width=128, window=16):
        super().__init__()
        self.words, self.window = nn.Embedding(words, width), window
        self.q, self.kv, self.head = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, words)

    def forward(self, ids):
        x, w = self.words(ids), self.window
        q = self.q(x).unflatten(1, (-1, w))
        k, v = F.pad(self.kv(x), (0, 0, w, 0)).unfold(1, 2 * w, w).chunk(2, 2)
        scores = torch.einsum("bnqc,bnck->bnqk", q, k) / math.sqrt(q.size(-1))
        hidden = torch.ones(w, 2 * w, dtype=torch.bool, device=x.device).triu(w + 1)
        out = torch.einsum("bnqk,bnck->bnqc", scores.masked_fill(hidden, -1e4).softmax(-1), v)
        return F.cross_entropy(self.head(x + out.flatten(1, 2)).transpose(1, 2), ids)


CE = "F.cross_entropy(model(x), y)"
# Call, inputs, loss, sizes.
ROWS = [
    ("Words()", ["ids=int64[B,8]"], "model(ids)", {}),
    ("Queue()", ["a=float32[B,3,S,S]", "b=float32[B,3,S,S]"], "model(a, b)", {"S": [48, 64]}),
    ("Crops()", ["x=float32[B,4,3,32,32]"], "model(x)", {}),
    ("Assigned()", ["a=float32[B,128]", "b=float32[B,128]"], "model(a, b)", {}),
    ("Perceiver()", ["x=float32[B,3,S,S]", "y=int64[B]"], CE, {"S": [32, 48]}),
    ("TimeMix()", ["ids=int64[B,24]"], "model(ids)", {}),
    ("Retention()", ["ids=int64[B,S]"], "model(ids)", {"S": [64, 128]}),
    ("GraphAttention()", ["x=float32[40*B,16]", "e=int64[2,160*B]", "k=int64[160*B]", "y=int64[40*B]"], "model(x, e, k % 8, y)", {}),
    ("Points()", ["x=float32[B,N,3]", "y=int64[B]"], CE, {"N": [256, 400]}),
    ("Actor()", ["x=float32[B,24]", "a=float32[B,6]", "r=float32[B]", "z=float32[B,24]", "d=float32[B]"], "model(x, a, r, z, d)", {}),
    ("World()", ["x=float32[B,12,32]", "a=float32[B,12,4]"], "model(x, a)", {}),
    ("Copying()", ["ids=int64[B,S]", "t=int64[B,7]"], "model(ids, t)", {"S": [40, 64]}),
    ("Capsules()", ["x=float32[B,1,28,28]", "y=int64[B]"], "model(x, y)", {}),
    ("Margin()", ["x=float32[B,3,S,S]", "y=int64[B]"], "model(x, y)", {"S": [48, 64]}),
    ("Mixed()", ["x=float32[B,3,S,S]", "y=int64[B]"], "model(x, y)", {"S": [64, 96]}),
    ("Pixels()", ["x=float32[B,3,S,S]"], "model(x)", {"S": [24, 32]}),
    ("Styled()", ["z=float32[B,64]", "x=float32[B,3,64,64]"], "model(z, x)", {}),
    ("Memory()", ["ids=int64[B,S]"], "model(ids)", {"S": [48, 96]}),
    ("Reversed()", ["ids=int64[B,S]"], "model(ids)", {"S": [48, 96]}),
    ("Tags()", ["ids=int64[B,20]", "t=int64[B,20]", "m=bool[B,20]"], "model(ids, t, m)", {}),
    ("Domains()", ["a=float32[B,3,S,S]", "y=int64[B]", "b=float32[B,3,S,S]"], "model(a, y, b)", {"S": [32, 48]}),
    ("Windows()", ["ids=int64[B,16*S]"], "model(ids)", {"S": [4, 8]}),
]


def classes():
    """As `later.classes`."""
    for call, inputs, loss, axes in ROWS:
        yield "further_modules:" + call, inputs, loss, axes
