# ---------------------------------------------------------------------------------------------------------------------
# Models of our own. Their forward returns the outputs and the loss, if there is something to learn; their modules are called as the estimate calls
# them, which matters to the targets of LoRA.


def own_families(smoothing=0.0):
    """The classes, made only now because their bases come from PyTorch. `smoothing` is that of their labels."""
    from torch import nn
    from torch.nn import functional as F

    def cross_entropy(logits, targets, **options):
        """None where nothing is given to learn: inference."""
        return None if targets is None else F.cross_entropy(logits, targets, label_smoothing=smoothing, **options)

    class Mlp(nn.Module):
        def __init__(self, d_in, hidden, layers, d_out):
            super().__init__()
            net = []
            for i in range(layers):
                last = i == layers - 1
                net.append(nn.Linear(d_in if i == 0 else hidden, d_out if last else hidden))
                if not last:
                    net.append(nn.ReLU())
            self.net = nn.Sequential(*net)

        def forward(self, inputs, targets=None):
            logits = self.net(inputs)
            return logits, cross_entropy(logits, targets)

    class GptBlock(nn.Module):
        def __init__(self, n_embd, n_head, dropout, bias):
            super().__init__()
            self.n_head, self.dropout = n_head, dropout
            self.ln1 = nn.LayerNorm(n_embd, bias=bias)
            self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=bias)
            self.proj = nn.Linear(n_embd, n_embd, bias=bias)
            self.ln2 = nn.LayerNorm(n_embd, bias=bias)
            self.fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
            self.out = nn.Linear(4 * n_embd, n_embd, bias=bias)
            self.drop = nn.Dropout(dropout)

        def attention(self, x):
            batch, seq, width = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(width, dim=2)
            q = q.view(batch, seq, self.n_head, width // self.n_head).transpose(1, 2)
            k = k.view(batch, seq, self.n_head, width // self.n_head).transpose(1, 2)
            v = v.view(batch, seq, self.n_head, width // self.n_head).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
            y = y.transpose(1, 2).contiguous().view(batch, seq, width)
            return self.drop(self.proj(y))

        def forward(self, x):
            x = x + self.attention(x)
            return x + self.drop(self.out(F.gelu(self.fc(self.ln2(x)))))

    class NanoGpt(nn.Module):
        def __init__(self, n_layer, n_head, n_embd, vocab_size, block_size, dropout, bias):
            super().__init__()
            self.wte = nn.Embedding(vocab_size, n_embd)
            self.wpe = nn.Embedding(block_size, n_embd)
            for table in (self.wte, self.wpe):
                nn.init.normal_(table.weight, std=0.02)
            self.drop = nn.Dropout(dropout)
            self.h = nn.ModuleList([GptBlock(n_embd, n_head, dropout, bias) for _ in range(n_layer)])
            self.ln_f = nn.LayerNorm(n_embd, bias=bias)
            self.head = nn.Linear(n_embd, vocab_size, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, inputs, targets=None):
            positions = torch.arange(inputs.shape[1], device=inputs.device)
            x = self.drop(self.wte(inputs) + self.wpe(positions))
            for block in self.h:
                x = block(x)
            logits = self.head(self.ln_f(x))
            if targets is None:
                return logits, None
            return logits, cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    class NBeatsBlock(nn.Module):
        def __init__(self, layers, width, theta, backcast, horizon):
            super().__init__()
            fc = []
            for i in range(layers):
                fc += [nn.Linear(backcast if i == 0 else width, width), nn.ReLU()]
            self.fc = nn.Sequential(*fc)
            self.tb = nn.Linear(width, theta, bias=False)
            self.tf = nn.Linear(width, theta, bias=False)
            self.b = nn.Linear(theta, backcast)
            self.f = nn.Linear(theta, horizon)

        def forward(self, x):
            hidden = self.fc(x)
            return self.b(self.tb(hidden)), self.f(self.tf(hidden))

    class NBeats(nn.Module):
        def __init__(self, stacks, layers, width, theta, backcast, horizon):
            super().__init__()
            blocks = [NBeatsBlock(layers, width, theta, backcast, horizon) for _ in range(stacks)]
            self.blocks = nn.ModuleList(blocks)

        def forecast(self, x):
            forecast = None
            for block in self.blocks:
                backcast, part = block(x)
                x = x - backcast
                forecast = part if forecast is None else forecast + part
            return forecast

        def forward(self, inputs, targets=None):
            forecast = self.forecast(inputs)
            return forecast, None if targets is None else F.mse_loss(forecast, targets)

    class GatLayer(nn.Module):
        def __init__(self, n_in, n_out, heads, concat, dropout):
            super().__init__()
            self.concat, self.dropout = concat, nn.Dropout(dropout)
            self.w = nn.Parameter(torch.randn(heads, n_in, n_out) / math.sqrt(n_in))
            self.a1 = nn.Parameter(torch.randn(heads, n_out, 1) / math.sqrt(n_out))
            self.a2 = nn.Parameter(torch.randn(heads, n_out, 1) / math.sqrt(n_out))

        def forward(self, x, adjacency):
            x = self.dropout(x)
            h = torch.matmul(x, self.w)
            e = F.leaky_relu(torch.matmul(h, self.a1) + torch.matmul(h, self.a2).transpose(1, 2), 0.2)
            # Float16 does not reach to -9e15.
            e = e.masked_fill(adjacency == 0, max(-9e15, torch.finfo(e.dtype).min))
            attention = self.dropout(F.softmax(e, dim=-1))
            o = torch.matmul(attention, h)
            if self.concat:
                return F.elu(o.permute(1, 0, 2).reshape(x.shape[0], -1))
            return o.mean(dim=0)

    class Gat(nn.Module):
        def __init__(self, n_feat, n_hid, n_heads, n_class, dropout):
            super().__init__()
            self.l1 = GatLayer(n_feat, n_hid, n_heads, True, dropout)
            self.l2 = GatLayer(n_hid * n_heads, n_class, 1, False, dropout)

        def forward(self, inputs, adjacency, targets=None):
            logits = self.l2(self.l1(inputs, adjacency), adjacency)
            return logits, cross_entropy(logits, targets)

    class Classifier(nn.Module):
        """A torchvision model with its loss."""

        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, inputs, targets=None):
            logits = self.net(inputs)
            if not isinstance(logits, tuple):
                return logits, cross_entropy(logits, targets)
            # Inception in training has a second classifier halfway.
            logits, aux = logits
            loss = cross_entropy(logits, targets)
            return logits, loss + 0.4 * cross_entropy(aux, targets)

    return {"mlp": Mlp, "nanogpt": NanoGpt, "nbeats": NBeats, "gat": Gat, "torchvision": Classifier}


# The keys of each family that the model is made of, with what holds when one is missing.
FAMILIES = {
    "mlp": {"d_in": 1024, "hidden": 4096, "layers": 4, "d_out": 10},
    "nanogpt": {"n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50304, "block_size": 1024, "dropout": 0.0,
                "bias": False},
    "nbeats": {"stacks": 30, "layers": 4, "width": 512, "theta": 32, "backcast": 96, "horizon": 24},
    "gat": {"n_feat": 1433, "n_hid": 8, "n_heads": 8, "n_class": 7, "dropout": 0.6},
    "resnet": {"variant": "resnet50", "num_classes": 1000},
    "convnext": {"variant": "convnext_tiny", "num_classes": 1000},
    "swin": {"variant": "swin_t", "num_classes": 1000},
    "vgg": {"variant": "vgg16", "num_classes": 1000},
    "mobilenetv2": {"variant": "mobilenet_v2", "num_classes": 1000},
    "mobilenetv3": {"variant": "mobilenet_v3_large", "num_classes": 1000},
    "mnasnet": {"variant": "mnasnet1_0", "num_classes": 1000},
    "regnet": {"variant": "regnet_y_400mf", "num_classes": 1000},
    "efficientnet": {"variant": "efficientnet_b0", "num_classes": 1000},
    "densenet": {"variant": "densenet121", "num_classes": 1000},
    "inception": {"variant": "inception_v3", "num_classes": 1000},
}
TORCHVISION = {"resnet": ("resnet", "resnext", "wide_resnet"), "convnext": ("convnext",), "swin": ("swin",),
               "vgg": ("vgg",), "mobilenetv2": ("mobilenet_v2",), "mobilenetv3": ("mobilenet_v3",),
               "mnasnet": ("mnasnet",), "regnet": ("regnet",), "efficientnet": ("efficientnet",),
               "densenet": ("densenet",), "inception": ("inception",)}


def family_keys(model):
    family = model["family"]
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise Stop("unsupported", "the family %s cannot be measured" % clean(family), "use one of %s" % known)
    return {name: model.get(name, default) for name, default in FAMILIES[family].items()}


def build_family(scenario, packages):
    model, training = scenario["model"], scenario["training"]
    family, keys = model["family"], family_keys(model)
    if training["checkpointing"] != "none":
        message = "the family %s has no gradient checkpointing" % family
        raise Stop("unsupported", message, 'use checkpointing = "none", or a Hugging Face model')
    if family == "gat" and scenario["input"]["batch"] != 1:
        raise Stop("unsupported", "gat trains on one whole graph at a time", "use batch = 1, and more nodes with seq")
    classes = own_families(training.get("label_smoothing", 0.0))
    if family not in TORCHVISION:
        return classes[family](**keys)
    variant = keys["variant"]
    if not any(variant.startswith(prefix) for prefix in TORCHVISION[family]):
        message = "%s is no variant of %s" % (clean(variant), family)
        raise Stop("unsupported", message, "name one of torchvision's, such as %s" % FAMILIES[family]["variant"])
    try:
        net = packages["torchvision"].models.get_model(variant, weights=None, num_classes=keys["num_classes"])
    except (ValueError, AttributeError) as error:
        message = "torchvision %s has no %s" % (packages["torchvision"].__version__, clean(variant))
        raise Stop("unsupported", message, "name another variant, or upgrade torchvision") from error
    return classes["torchvision"](net)
