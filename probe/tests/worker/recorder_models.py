import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        return x + self.b(torch.nn.functional.gelu(self.a(x)))

class Net(nn.Module):
    def __init__(self, checkpointed=()):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(64, 10)
        for index in checkpointed:
            block = self.blocks[index]
            block.forward = self.within(block.forward)
    def within(self, forward):
        return lambda x: checkpoint(forward, x, use_reentrant=False, preserve_rng_state=False)
    def forward(self, x):
        return self.head(self.blocks(x))

class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, cudnn=True):
        super().__init__()
        torch.backends.cudnn.enabled = cudnn
        self.rnn = kind(32, 10, batch_first=True)
    def forward(self, x):
        return self.rnn(x.view(x.size(0), 2, 32))[0][:, -1]

class Masked(nn.Module):
    def __init__(self, how='input'):
        super().__init__()
        self.how, self.into, self.own, self.head = how, nn.Linear(8, 256), nn.Parameter(torch.zeros(256)), nn.Linear(256, 8)
        self.register_buffer('upper', torch.triu(torch.ones(16, 16, dtype=torch.bool), 1))
    def forward(self, x, there):
        h = self.into(x)
        if self.how == 'input':
            return self.head(h[there]).square().mean()
        if self.how == 'written':
            h[there] = self.own.to(h.dtype)
            return self.head(h[there]).square().mean()
        seen = torch.ones(16, 16, dtype=torch.bool, device=x.device).triu(1) if self.how == 'made' else self.upper
        if self.how == 'rows':
            first, second = torch.triu_indices(16, 16, 1, device=x.device)
            return self.head(h[:, first] * h[:, second]).square().mean()
        first, second = seen.nonzero(as_tuple=True)
        return self.head(h[:, first] * h[:, second]).square().mean()

class Inside(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.into, self.head = how, nn.Linear(64, 512), nn.Linear(512, 10)
        if how == 'clusters':
            self.out = nn.AdaptiveLogSoftmaxWithLoss(512, 100, [20, 50])
        self.masked = nn.Parameter(torch.ones(64))
    def forward(self, x):
        if self.how == 'contents':
            self.masked.data *= 0.5
            x = x * self.masked
        h = self.into(x)
        if self.how == 'logsumexp':
            with torch.no_grad():
                h.logsumexp(1)
        elif self.how == 'multinomial':
            with torch.no_grad():
                torch.multinomial(h, 1)
        elif self.how == 'clusters':
            return self.out(h, torch.zeros(x.size(0), dtype=torch.long, device=x.device)).loss.expand(x.size(0), 10)
        return self.head(h)

class Windows(Net):
    def forward(self, x):
        x = self.blocks(x)
        rows = x.new_zeros(x.size(0), 4, 16)
        rows[:, :2] = x.view(-1, 4, 16)[:, 2:]
        rows[:, 2:, :8].copy_(x.view(-1, 4, 16)[:, :2, 8:])
        return self.head(rows.transpose(1, 2).reshape(-1, 64)).abs()

class Deep(nn.Module):
    def __init__(self, by_index):
        super().__init__()
        self.by_index = by_index
        self.blocks = nn.ModuleList([Block() for _ in range(9)])
        self.head = nn.Linear(64, 10)
    def forward(self, x):
        for index in range(9) if self.by_index else range(len(self.blocks)):
            x = self.blocks[index](x)
        return self.head(x)

def adapted():
    from peft import LoraConfig, get_peft_model
    return get_peft_model(Net(), LoraConfig(r=4, target_modules=['a', 'head']))

class Broken(Net):
    def forward(self, x):
        x = self.blocks(x)
        torch._dynamo.graph_break()
        return self.head(x)

class Placed(Net):
    def __init__(self, rows):
        super().__init__()
        self.register_buffer('table', torch.zeros(rows, 64))
    def forward(self, x):
        if self.table.shape[0] > 1:
            self.table = x.new_zeros(1, 64)
        return self.head(self.blocks(x + self.table))

class Careful(Net):
    def forward(self, x):
        out = super().forward(x)
        assert out.isnan().sum() == 0 and torch.isnan(out).sum().item() < 1
        if torch.isinf(out).any() or not torch.isfinite(out).all() or torch.count_nonzero(out != out) > 0:
            raise ValueError('the loss will be no number')
        odd = out.long() % 2
        return out + (odd & 1) * 0

class Penalised(Net):
    def __init__(self, penalised):
        super().__init__()
        self.penalised = penalised
    def forward(self, x):
        x = x.detach().requires_grad_()
        out = super().forward(x)
        if not self.penalised:
            return out
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out + slope.float().norm(dim=1, keepdim=True).to(out.dtype)

class Heard(nn.Module):
    def __init__(self):
        super().__init__()
        self.signs = nn.Linear(64, 30)
    def forward(self, x, y):
        return self.signs(x).log_softmax(-1), y

class Dropping(Net):
    def __init__(self, p):
        super().__init__()
        self.p = p
    def forward(self, x):
        for block in self.blocks:
            if torch.rand([]) >= self.p:
                x = block(x)
        return self.head(x)
