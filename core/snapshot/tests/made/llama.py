import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.cuda.memory._record_memory_history(stacks="python")
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, vocab_size=1000, use_cache=False)
model = LlamaForCausalLM(config).cuda()
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(0, 1000, (2, 64))


def step():
    batch = {"input_ids": ids.cuda(), "labels": ids.cuda()}
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(2):
    step()
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
torch.cuda.memory._dump_snapshot(sys.argv[1])
