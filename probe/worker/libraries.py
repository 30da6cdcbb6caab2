# ---------------------------------------------------------------------------------------------------------------------
# What the CUDA libraries take is loaded when a kernel is first called for: each of these calls for some that those before it
# did not. Names are told as they stand here.


def first_kernel():
    torch.ones(4096, device="cuda").add_(1)


def matrix_product(dtype):
    left = torch.zeros(512, 512, device="cuda", dtype=dtype, requires_grad=True)
    (left @ left).sum().backward()


def biased_linear():
    layer = torch.nn.Linear(512, 512, device="cuda", dtype=torch.bfloat16)
    torch.nn.functional.gelu(layer(torch.zeros(64, 512, device="cuda", dtype=torch.bfloat16))).sum().backward()


def attention():
    heads = torch.zeros(1, 8, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()


def convolution():
    layer = torch.nn.Conv2d(16, 16, 3, padding=1, device="cuda")
    layer(torch.zeros(2, 16, 32, 32, device="cuda")).sum().backward()


def optimizer_step():
    weight = torch.zeros(4096, device="cuda", requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    torch.optim.AdamW([weight]).step()


LIBRARIES = (
    ("context", lambda: None),
    ("first kernel", first_kernel),
    ("matrix product, fp32", lambda: matrix_product(torch.float32)),
    ("matrix product, bf16", lambda: matrix_product(torch.bfloat16)),
    ("linear with bias, bf16", biased_linear),
    ("attention, bf16", attention),
    ("convolution, fp32", convolution),
    ("AdamW step", optimizer_step),
)


def libraries():
    """What this process holds of a card beside PyTorch's own memory, after each of a few first calls: one line of JSON each."""
    global torch
    torch = import_torch()
    device = Cuda(0)
    for name, call in LIBRARIES:
        told = {"step": name}
        try:
            call()
            device.synchronize()
        except Exception as error:
            told["error"] = "%s: %s" % (type(error).__name__, clean(error))
        gc.collect()
        told.update(beside=device.beside_pytorch(), reserved=torch.cuda.memory_reserved(0))
        print(json.dumps(told), flush=True)
