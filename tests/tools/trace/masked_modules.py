"""As `modules.py`: models of people's own whose tensors are as long as a mask says, or are written over, which
`lot.py --own masked_modules` takes. A recording takes every element that only data could leave out, and so does a hollow card."""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=2000, width=192, layers=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.words(ids))


class Tagger(nn.Module):
    """Loss where there is a label."""

    def __init__(self, tags=17):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(192, tags)

    def forward(self, ids, labels):
        logits, there = self.head(self.encoder(ids)), labels != -100
        return F.cross_entropy(logits[there], labels[there])


class MaskedWords(nn.Module):
    """The vocabulary's projection of masked words alone."""

    def __init__(self, words=2000):
        super().__init__()
        self.encoder = Encoder(words)
        self.head = nn.Sequential(nn.Linear(192, 192), nn.GELU(), nn.LayerNorm(192), nn.Linear(192, words))

    def forward(self, ids, labels):
        hidden = self.encoder(ids).flatten(0, 1)
        places = (labels.flatten() >= 0).nonzero().squeeze(1)
        return F.cross_entropy(self.head(hidden[places]), labels.flatten()[places])


class Switch(nn.Module):
    """Experts one after the other, each given its own tokens."""

    def __init__(self, width=128, experts=4):
        super().__init__()
        self.words, self.gate = nn.Embedding(1000, width), nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(experts))
        self.head = nn.Linear(width, 1000)

    def forward(self, ids):
        x = self.words(ids).flatten(0, 1)
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, (weights[rows, place, None] * expert(x[rows])).to(out.dtype))
        return F.cross_entropy(self.head(x + out), ids.flatten())


class Erased(nn.Module):
    """Frames that a learned one stands in for, predicted from the others."""

    def __init__(self, width=128):
        super().__init__()
        self.into, self.erased = nn.Linear(40, width), nn.Parameter(torch.zeros(width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 40)

    def forward(self, x, mask):
        h = self.into(x)
        h[mask] = self.erased.to(h.dtype)
        return F.l1_loss(self.head(self.layers(h))[mask], x[mask])


class Triplets(nn.Module):
    """All triplets of a batch that break the margin."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))

    def forward(self, x, y):
        e = F.normalize(self.net(x), dim=-1)
        far = 1 - e @ e.t()
        same = y[:, None] == y[None]
        loss = far[:, :, None] - far[:, None, :] + 0.2
        valid = same[:, :, None] & ~same[:, None, :]
        return loss[valid].clamp_min(0).mean()


class Pairs(Triplets):
    """Similarities of all pairs, each once."""

    def forward(self, x, y):
        e = F.normalize(self.net(x), dim=-1)
        above = torch.triu(torch.ones(x.size(0), x.size(0), dtype=torch.bool, device=x.device), diagonal=1)
        near, same = (e @ e.t())[above], (y[:, None] == y[None])[above]
        return F.binary_cross_entropy_with_logits(near * 10, same.to(near.dtype))


class Graph(nn.Module):
    """Messages along edges, some of which are dropped."""

    def __init__(self, width=96):
        super().__init__()
        self.into, self.message = nn.Linear(16, width), nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.head = nn.Linear(width, 7)

    def forward(self, x, edges, y):
        keep = torch.rand(edges.size(1), device=x.device) > 0.2
        source, target = edges[:, keep]
        h = self.into(x).relu()
        for layer in self.message:
            sent = layer(torch.cat([h[source], h[target]], -1)).relu()
            h = h + torch.zeros_like(h).index_add_(0, target, sent.to(h.dtype))
        return F.cross_entropy(self.head(h), y)


class Boxes(nn.Module):
    """A detector's losses: boxes where something is, classes everywhere."""

    def __init__(self, classes=20):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU())
        self.classes, self.boxes = nn.Conv2d(128, classes, 1), nn.Conv2d(128, 4, 1)

    def forward(self, x, kind, box):
        h = self.net(x)
        classes, boxes = (head(h).flatten(2).transpose(1, 2) for head in (self.classes, self.boxes))
        there = kind > 0
        hot = F.one_hot(kind, classes.size(-1)).to(classes.dtype)
        return F.binary_cross_entropy_with_logits(classes, hot) + F.smooth_l1_loss(boxes[there], box[there])


class Captioned(nn.Module):
    """An image's features in the places that the text keeps for them."""

    def __init__(self, width=192):
        super().__init__()
        self.image, self.encoder, self.head = nn.Conv2d(3, width, 16, 16), Encoder(width=width), nn.Linear(width, 2000)

    def forward(self, x, ids):
        seen = self.image(x).flatten(2).transpose(1, 2)
        said = self.encoder.words(ids)
        place = (ids == 1).unsqueeze(-1).expand_as(said)
        said = said.masked_scatter(place, seen.to(said.dtype))
        return F.cross_entropy(self.head(self.encoder.layers(said)).transpose(1, 2), ids)


class Unpadded(nn.Module):
    """Feed-forward layers of what is no padding, put back between them."""

    def __init__(self, width=192):
        super().__init__()
        self.words = nn.Embedding(2000, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(3))
        self.head = nn.Linear(width, 2000)

    def forward(self, ids):
        there = (ids != 0).flatten().nonzero(as_tuple=False).flatten()
        x = self.words(ids).flatten(0, 1)
        for layer in self.layers:
            rows = layer(x.index_select(0, there))
            x = x + torch.zeros_like(x).index_copy(0, there, rows.to(x.dtype))
        return F.cross_entropy(self.head(x), ids.flatten())


class Halting(nn.Module):
    """Samples that have halted are not computed on."""

    def __init__(self, width=256):
        super().__init__()
        self.step, self.halt, self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh()), nn.Linear(width, 1), nn.Linear(width, 10)

    def forward(self, x, y):
        out = torch.zeros_like(x)
        rows = torch.arange(x.size(0), device=x.device)
        for _ in range(4):
            x = self.step(x)
            done = torch.sigmoid(self.halt(x)).squeeze(-1) > 0.5
            out = out.index_put((rows,), x.to(out.dtype))
            x, rows = x[~done], rows[~done]
        return F.cross_entropy(self.head(out), y)


class Regression(nn.Module):
    """Depth where it was measured, by `masked_select`."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 3, padding=1))

    def forward(self, x, depth):
        guess, there = self.net(x).squeeze(1), depth > 0
        return (torch.masked_select(guess, there) - torch.masked_select(depth, there)).abs().mean()


class Clean(nn.Module):
    """Samples without a number are left out; of a row of them the mean is taken of what is there."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x, y):
        good = ~torch.isnan(y)
        return F.huber_loss(self.net(x[good]).squeeze(-1), y[good])


class Written(nn.Module):
    """What a layer gave is written over, through what shows all of it or a part."""

    def __init__(self, how, width=256):
        super().__init__()
        self.how = how
        self.into, self.own, self.head = nn.Linear(40, width), nn.Parameter(torch.zeros(width)), nn.Linear(width, 8)

    def forward(self, x):
        h = self.into(x)
        if self.how == "add":
            h += self.own
        elif self.how == "first":
            h[:, 0] = self.own.to(h.dtype)
        elif self.how == "half":
            h[..., :128] = torch.tanh(h[..., 128:])
        elif self.how == "across":
            h.transpose(1, 2).tanh_()
        elif self.how == "heads":
            heads = h.view(*h.shape[:2], 8, 32).transpose(1, 2)
            heads *= 0.5
            h = heads.transpose(1, 2).reshape(h.shape)
        else:
            h = F.relu(h, inplace=True)
        return self.head(h).square().mean()


# Call, inputs, loss, sizes.
ROWS = [
    ("Tagger()", ["ids=int64[B,S]", "y=int64[B,S]"], "model(ids, y)", {"S": [48, 96]}),
    ("MaskedWords()", ["ids=int64[B,S]", "y=int64[B,S]"], "model(ids, y)", {"S": [64, 128]}),
    ("Switch()", ["ids=int64[B,S]"], "model(ids)", {"S": [48, 96]}),
    ("Erased()", ["x=float32[B,S,40]", "m=bool[B,S]"], "model(x, m)", {"S": [64, 100]}),
    ("Triplets()", ["x=float32[B,64]", "y=int64[B]"], "model(x, y)", {}),
    ("Pairs()", ["x=float32[B,64]", "y=int64[B]"], "model(x, y)", {}),
    ("Graph()", ["x=float32[40*B,16]", "e=int64[2,160*B]", "y=int64[40*B]"], "model(x, e, y)", {}),
    ("Boxes()", ["x=float32[B,3,S,S]", "k=int64[B,(S//4)**2]", "b=float32[B,(S//4)**2,4]"], "model(x, k, b)", {"S": [64, 96]}),
    ("Captioned()", ["x=float32[B,3,64,64]", "ids=int64[B,S]"], "model(x, ids)", {"S": [48, 96]}),
    ("Unpadded()", ["ids=int64[B,S]"], "model(ids)", {"S": [48, 96]}),
    ("Halting()", ["x=float32[B,256]", "y=int64[B]"], "model(x, y)", {}),
    ("Regression()", ["x=float32[B,3,S,S]", "d=float32[B,S,S]"], "model(x, d)", {"S": [48, 64]}),
    ("Clean()", ["x=float32[B,48]", "y=float32[B]"], "model(x, y)", {}),
    *(("Written(%r)" % how, ["x=float32[B,S,40]"], "model(x)", {"S": [1024, 1500]}) for how in ("add", "first", "half", "across", "heads", "relu")),
]


def classes():
    """As `later.classes`."""
    for call, inputs, loss, axes in ROWS:
        yield "masked_modules:" + call, inputs, loss, axes
