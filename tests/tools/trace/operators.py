"""One operator a model, on what does not lie row by row, with a gradient that does not either: for `lot.py --operators`.

What a kernel copies for itself no trace of operators shows. `ROWS` is as in `modules.py`; each operator comes twice, by the loss.
"""

import torch
import torch.nn.functional as F
from torch import nn

# Of `[B, 24, 16]` that lies as `[B, 16, 24]`; `w` has parameters by their sizes.
LINES = {
    "softmax": lambda h, w: h.softmax(-1),
    "softmax_middle": lambda h, w: h.softmax(1),
    "log_softmax": lambda h, w: h.log_softmax(-1),
    "log_softmax_middle": lambda h, w: h.log_softmax(1),
    "layer_norm": lambda h, w: F.layer_norm(h, (16,), w(16), w(16)),
    "rms_norm": lambda h, w: F.rms_norm(h, (16,), w(16)),
    "group_norm": lambda h, w: F.group_norm(h, 4, w(24), w(24)),
    "batch_norm": lambda h, w: F.batch_norm(h, None, None, w(24), w(24), training=True),
    "instance_norm": lambda h, w: F.instance_norm(h),
    "conv1d": lambda h, w: F.conv1d(h, w(32, 24, 3), w(32), padding=1),
    "conv1d_depthwise": lambda h, w: F.conv1d(h, w(24, 1, 3), w(24), padding=1, groups=24),
    "conv_transpose1d": lambda h, w: F.conv_transpose1d(h, w(24, 32, 4), w(32), stride=2),
    "max_pool1d": lambda h, w: F.max_pool1d(h, 2),
    "avg_pool1d": lambda h, w: F.avg_pool1d(h, 2),
    "adaptive_avg_pool1d": lambda h, w: F.adaptive_avg_pool1d(h, 8),
    "interpolate_linear": lambda h, w: F.interpolate(h, scale_factor=2, mode="linear"),
    "interpolate_nearest": lambda h, w: F.interpolate(h, scale_factor=2),
    "linear": lambda h, w: F.linear(h, w(40, 16), w(40)),
    "linear_one": lambda h, w: F.linear(h, w(1, 16), w(1)).expand(-1, -1, 4),
    "linear_of_one": lambda h, w: F.linear(h[..., :1], w(64, 1), w(64)),
    "matmul": lambda h, w: h @ w(16, 40),
    "matmul_turned": lambda h, w: h @ w(40, 16).t(),
    "matmul_sliced": lambda h, w: h[:, ::2, ::2] @ w(8, 40),
    "bmm": lambda h, w: h.transpose(1, 2).bmm(h),
    "bmm_sliced": lambda h, w: h[:, ::2, ::2].bmm(h[:, ::3, ::2].transpose(1, 2)),
    "bmm_spread": lambda h, w: h.bmm(w(16, 40).expand(h.size(0), 16, 40)),
    "einsum": lambda h, w: torch.einsum("bcl,cd->bdl", h, w(24, 40)),
    "baddbmm": lambda h, w: torch.baddbmm(w(24, 24), h, h.transpose(1, 2)),
    "bilinear": lambda h, w: F.bilinear(h, h, w(8, 16, 16), w(8)).transpose(1, 2),
    "mv": lambda h, w: (h.reshape(-1, 16) @ w(16)).view(h.size(0), 24, 1),
    "outer": lambda h, w: torch.outer(h[:, 0, 0], w(64))[:, None],
    "cumsum": lambda h, w: h.cumsum(1),
    "cumsum_last": lambda h, w: h.cumsum(-1),
    "cumprod": lambda h, w: (h.sigmoid() + 0.5).cumprod(-1),
    "sort": lambda h, w: h.sort(-1)[0],
    "topk": lambda h, w: h.topk(4, dim=1)[0],
    "max": lambda h, w: h.max(1, keepdim=True)[0],
    "amax": lambda h, w: h.amax(1, keepdim=True),
    "logsumexp": lambda h, w: h.logsumexp(1, keepdim=True),
    "var": lambda h, w: h.var(1, keepdim=True),
    "std": lambda h, w: h.std(-1, keepdim=True),
    "norm": lambda h, w: h.norm(dim=1, keepdim=True),
    "prod": lambda h, w: h.prod(1, keepdim=True),
    "normalize": lambda h, w: F.normalize(h, dim=1),
    "cosine_similarity": lambda h, w: F.cosine_similarity(h, w(1, 24, 16), dim=1)[:, None],
    "glu": lambda h, w: F.glu(h, 1),
    "prelu": lambda h, w: F.prelu(h, w(24)),
    "gelu": lambda h, w: F.gelu(h),
    "dropout": lambda h, w: F.dropout(h, 0.2),
    "cdist": lambda h, w: torch.cdist(h, w(1, 20, 16)),
    "roll": lambda h, w: h.roll(3, 1),
    "flip": lambda h, w: h.flip(1),
    "pad": lambda h, w: F.pad(h, (2, 2)),
    "pad_reflect": lambda h, w: F.pad(h, (2, 2), mode="reflect"),
    "pad_replicate": lambda h, w: F.pad(h, (2, 2), mode="replicate"),
    "cat": lambda h, w: torch.cat([h, w(1, 24, 16).expand_as(h)], 1),
    "stack": lambda h, w: torch.stack([h, h * 2], 1).flatten(1, 2),
    "gather": lambda h, w: h.gather(1, torch.zeros(h.size(0), 24, 16, dtype=torch.long, device=h.device)),
    "index_select": lambda h, w: h.index_select(1, torch.arange(0, 24, 2, device=h.device)),
    "index": lambda h, w: h[:, torch.arange(0, 24, 2, device=h.device)],
    "index_rows": lambda h, w: h[torch.arange(h.size(0), device=h.device)],
    "masked_fill": lambda h, w: h.masked_fill(h > 0, 0.0),
    "where": lambda h, w: torch.where(h > 0, h, w(24, 1)),
    "tril": lambda h, w: h.tril(),
    "repeat": lambda h, w: h.repeat(1, 2, 1),
    "repeat_interleave": lambda h, w: h.repeat_interleave(2, dim=1),
    "scatter_add": lambda h, w: torch.zeros_like(h).scatter_add(1, torch.zeros(h.size(0), 24, 16, dtype=torch.long, device=h.device), h),
    "index_add": lambda h, w: torch.zeros_like(h).index_add(1, torch.zeros(24, dtype=torch.long, device=h.device), h),
    "attention": lambda h, w: F.scaled_dot_product_attention(*[h.view(h.size(0), 3, 8, 16)] * 3).flatten(1, 2),
    "attention_causal": lambda h, w: F.scaled_dot_product_attention(*[h.view(h.size(0), 3, 8, 16).contiguous()] * 3, is_causal=True).flatten(1, 2),
    "attention_masked": lambda h, w: F.scaled_dot_product_attention(*[h.view(h.size(0), 3, 8, 16)] * 3, attn_mask=torch.ones(8, 8, dtype=torch.bool, device=h.device)).flatten(1, 2),
    "attention_dropped": lambda h, w: F.scaled_dot_product_attention(*[h.view(h.size(0), 3, 8, 16)] * 3, dropout_p=0.1).flatten(1, 2),
    "embedding": lambda h, w: F.embedding(torch.zeros(16, h.size(0), dtype=torch.long, device=h.device).t(), w(300, 24)).transpose(1, 2) + h,
    "embedding_spread": lambda h, w: F.embedding(torch.arange(16, device=h.device).expand(h.size(0), 16), w(300, 24)).transpose(1, 2) + h,
    "one_hot": lambda h, w: h + F.one_hot(torch.zeros(h.size(0), 24, dtype=torch.long, device=h.device), 16),
    "softplus": lambda h, w: F.softplus(h),
    "clamp": lambda h, w: h.clamp(min=0),
    "addcmul": lambda h, w: torch.addcmul(h, h, w(24, 1)),
    "lerp": lambda h, w: torch.lerp(h, w(24, 1), 0.3),
    "pow": lambda h, w: h.abs() ** 1.5,
    "atan2": lambda h, w: torch.atan2(h, w(24, 1)),
    "cross": lambda h, w: torch.linalg.cross(h[:, :3], h[:, 3:6], dim=1),
    "diag_embed": lambda h, w: h.diag_embed().flatten(1, 2),
    "median": lambda h, w: h.median(1, keepdim=True)[0],
    "unfold_view": lambda h, w: h.unfold(2, 4, 2).flatten(2),
    "put": lambda h, w: torch.zeros_like(h).index_put((torch.arange(h.size(0), device=h.device),), h, accumulate=True),
    "assigned": lambda h, w: assigned(h),
}

# Of `[B, 8, 12, 16]` that lies as `[B, 12, 8, 16]`, or channels last.
IMAGES = {
    "conv2d": lambda h, w: F.conv2d(h, w(16, 8, 3, 3), w(16), padding=1),
    "conv2d_point": lambda h, w: F.conv2d(h, w(16, 8, 1, 1)),
    "conv2d_grouped": lambda h, w: F.conv2d(h, w(16, 4, 3, 3), padding=1, groups=2),
    "conv2d_depthwise": lambda h, w: F.conv2d(h, w(8, 1, 3, 3), w(8), padding=1, groups=8),
    "conv2d_dilated": lambda h, w: F.conv2d(h, w(16, 8, 3, 3), padding=2, dilation=2),
    "conv_transpose2d": lambda h, w: F.conv_transpose2d(h, w(8, 12, 2, 2), w(12), stride=2),
    "conv3d": lambda h, w: F.conv3d(h[:, :, None], w(16, 8, 1, 3, 3), padding=(0, 1, 1))[:, :, 0],
    "max_pool2d": lambda h, w: F.max_pool2d(h, 2),
    "avg_pool2d": lambda h, w: F.avg_pool2d(h, 2),
    "adaptive_avg_pool2d": lambda h, w: F.adaptive_avg_pool2d(h, 4),
    "adaptive_max_pool2d": lambda h, w: F.adaptive_max_pool2d(h, 4),
    "mean": lambda h, w: h.mean((2, 3), keepdim=True),
    "interpolate": lambda h, w: F.interpolate(h, scale_factor=2),
    "interpolate_bilinear": lambda h, w: F.interpolate(h, scale_factor=2, mode="bilinear"),
    "interpolate_bicubic": lambda h, w: F.interpolate(h, scale_factor=2, mode="bicubic"),
    "interpolate_area": lambda h, w: F.interpolate(h, scale_factor=0.5, mode="area"),
    "batch_norm2d": lambda h, w: F.batch_norm(h, None, None, w(8), w(8), training=True),
    "group_norm2d": lambda h, w: F.group_norm(h, 2, w(8), w(8)),
    "instance_norm2d": lambda h, w: F.instance_norm(h, weight=w(8), bias=w(8)),
    "local_response_norm": lambda h, w: F.local_response_norm(h, 2),
    "unfold": lambda h, w: F.unfold(h, 2, stride=2),
    "fold": lambda h, w: F.fold(F.unfold(h, 2, stride=2), (12, 16), 2, stride=2),
    "grid_sample": lambda h, w: F.grid_sample(h, torch.zeros(h.size(0), 6, 6, 2, device=h.device, dtype=h.dtype)),
    "affine_grid": lambda h, w: F.grid_sample(h, F.affine_grid(w(2, 3).to(h.dtype).expand(h.size(0), 2, 3), h.shape)),
    "pixel_shuffle": lambda h, w: F.pixel_shuffle(h, 2),
    "pixel_unshuffle": lambda h, w: F.pixel_unshuffle(h, 2),
    "pad2d_reflect": lambda h, w: F.pad(h, (1, 1, 1, 1), mode="reflect"),
    "pad2d_replicate": lambda h, w: F.pad(h, (1, 1, 1, 1), mode="replicate"),
    "pad2d_circular": lambda h, w: F.pad(h, (1, 1, 1, 1), mode="circular"),
    "dropout2d": lambda h, w: F.dropout2d(h, 0.2),
    "softmax2d": lambda h, w: h.softmax(1),
    "channels_norm": lambda h, w: F.layer_norm(h.permute(0, 2, 3, 1), (8,), w(8), w(8)).permute(0, 3, 1, 2),
    "roll2d": lambda h, w: h.roll((2, 2), (2, 3)),
}

# What is lost, of what comes out: one number from what lies in any way, a gradient of one number that is spread, and one that is turned.
LOSSES = ["model(x).float().pow(2).mean()", "model(x).sum()", "model(x).transpose(1, 2).contiguous().float().pow(2).mean()"]

# Losses themselves, of what lies in another order than the targets do.
TARGETS = {
    "cross_entropy": (["y=int64[B,16]"], "F.cross_entropy(model(x), y)"),
    "cross_entropy_smoothed": (["y=int64[B,16]"], "F.cross_entropy(model(x), y, label_smoothing=0.1)"),
    "cross_entropy_none": (["y=int64[B,16]"], "F.cross_entropy(model(x), y, reduction='none').mean()"),
    "nll": (["y=int64[B]"], "F.nll_loss(F.log_softmax(model(x)[:, :, 0], 1), y)"),
    "bce": (["y=float32[B,24,16]"], "F.binary_cross_entropy_with_logits(model(x), y.to(model(x).dtype))"),
    "kl": (["y=float32[B,24,16]"], "F.kl_div(F.log_softmax(model(x).float(), -1), F.softmax(y.float(), -1), reduction='batchmean')"),
    "mse": (["y=float32[B,24,16]"], "F.mse_loss(model(x).float(), y.float())"),
    "smooth": (["y=float32[B,24,16]"], "F.smooth_l1_loss(model(x).float(), y.float())"),
    "l1": (["y=float32[B,24,16]"], "F.l1_loss(model(x).float(), y.float())"),
    "huber": (["y=float32[B,24,16]"], "F.huber_loss(model(x).float(), y.float())"),
    "gaussian": (["y=float32[B,24,16]"], "F.gaussian_nll_loss(model(x).float(), y.float(), torch.ones_like(y).float())"),
    "poisson": (["y=float32[B,24,16]"], "F.poisson_nll_loss(model(x).float(), y.float())"),
    "soft": (["y=float32[B,24,16]"], "F.cross_entropy(model(x).float(), y.float().softmax(1))"),
    "margin": (["y=float32[B,16]"], "F.cosine_embedding_loss(model(x)[:, :16, 0].float(), model(x)[:, 8:, 1].float(), y[:, 0].float().sign())"),
    "focal": (["y=int64[B,16]"], "((1 - torch.exp(-F.cross_entropy(model(x), y, reduction='none'))) ** 2 * F.cross_entropy(model(x), y, reduction='none')).mean()"),
}


def assigned(h):
    out = torch.zeros_like(h)
    out[:, ::2] = h[:, 1::2]
    out[:, 1::2, 0] = 1.0
    return out


class Of(nn.Module):
    """An operator behind a linear layer, or behind a product for each channel."""

    def __init__(self, name=None, last=False):
        super().__init__()
        self.name, self.last = name, last
        self.lin = nn.Linear(24, 24)
        self.scale = nn.Parameter(torch.ones(8, 1))
        self.made, self.sizes = nn.ParameterList(), []
        if name is not None:
            # Run once for the sizes of its parameters.
            with torch.no_grad():
                self.run(torch.zeros(2, 16, 24) if name in LINES else torch.zeros(2, 12, 8, 16), self.new)

    def new(self, *sizes):
        self.made.append(nn.Parameter(torch.randn(*sizes) * 0.1))
        return self.made[-1]

    def run(self, x, w):
        if self.name is None:
            return self.lin(x).transpose(1, 2)
        if self.name in LINES:
            return LINES[self.name](self.lin(x).transpose(1, 2), w)
        h = x * self.scale
        h = h.transpose(1, 2)
        if self.last:
            h = h.contiguous(memory_format=torch.channels_last)
        return IMAGES[self.name](h, w)

    def forward(self, x):
        parameters = iter(self.made)
        return self.run(x, lambda *_: next(parameters))


def classes():
    """As `later.classes`, with a name."""
    for n, name in enumerate(LINES):
        for loss in (LOSSES[n % 3], LOSSES[(n + 1) % 3]):
            yield "operators:Of('%s')" % name, ["x=float32[B,16,24]"], loss, {}
    for n, name in enumerate(IMAGES):
        for last, loss in ((False, LOSSES[n % 3]), (True, LOSSES[(n + 1) % 3])):
            yield "operators:Of('%s'%s)" % (name, ", last=True" * last), ["x=float32[B,12,8,16]"], loss, {}
    for name, (inputs, loss) in TARGETS.items():
        yield "operators:Of()", ["x=float32[B,16,24]", *inputs], loss, {}
