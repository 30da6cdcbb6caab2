"""QLoRA of a model that is not of transformers, as people write it by hand, phase by phase: the truth of `quantized/timm-vit.hull`.

    plimsoll rehearse --gpu h200 -- PYTHON tests/tools/hulls/by_hand.py nf4-double

It is the real PyTorch, bitsandbytes and peft, on a hollow card; each line is a phase, the most that was allocated in it and what was left.
The recording is made by

    plimsoll trace "timm:create_model('vit_tiny_patch16_224',img_size=64,depth=2,num_classes=10)" --input 'x=float32[B,3,64,64]' \\
        --input 'y=int64[B]' --precision bf16-amp --gpu h200 --detach-loss --also lora=8+quantization=nf4-double --also lora=8+quantization=int8
"""

import gc
import sys

import bitsandbytes
import peft
import timm
import torch

BATCH, STEPS = 7, 2


def layer(old, word):
    shape = old.in_features, old.out_features, old.bias is not None
    if word == "int8":
        new = bitsandbytes.nn.Linear8bitLt(*shape, has_fp16_weights=False, threshold=6.0)
        new.weight = bitsandbytes.nn.Int8Params(old.weight.data, requires_grad=False, has_fp16_weights=False)
    else:
        new = bitsandbytes.nn.Linear4bit(*shape, torch.bfloat16, compress_statistics=word == "nf4-double", quant_type="nf4")
        new.weight = bitsandbytes.nn.Params4bit(old.weight.data, requires_grad=False, compress_statistics=word == "nf4-double",
                                                quant_type="nf4", module=new)
    new.bias = old.bias
    return new


def build(word):
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=10).to(torch.bfloat16)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is torch.nn.Linear and name != "head":
                setattr(module, name, layer(child, word))
    model = model.to("cuda")
    setattr(model, "is_loaded_in_8bit" if word == "int8" else "is_loaded_in_4bit", True)
    peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    options = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    return peft.get_peft_model(model, options).to("cuda").train()


def tell(phase):
    print(phase, torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated(), flush=True)
    torch.cuda.reset_peak_memory_stats()


def main():
    model = build(sys.argv[1])
    gc.collect()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], foreach=True)
    tell("load")
    for _ in range(STEPS):
        batch = {"x": torch.empty(BATCH, 3, 64, 64, device="cuda"), "y": torch.empty(BATCH, dtype=torch.int64, device="cuda")}
        tell("input")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
        tell("forward")
        loss.backward()
        loss = loss.detach()
        tell("backward")
        optimizer.step()
        tell("optimizer")
        optimizer.zero_grad()
        tell("zero_grad")


main()
