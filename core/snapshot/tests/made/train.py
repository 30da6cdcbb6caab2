import sys
import torch
from torch import nn

torch.cuda.memory._record_memory_history(stacks=sys.argv[2], max_entries=int(sys.argv[3]))
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def step():
    x = torch.randn(64, 512, device="cuda")
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(3):
    step()
if sys.argv[4] == "oom":
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        print(error)
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
torch.cuda.memory._dump_snapshot(sys.argv[1])
