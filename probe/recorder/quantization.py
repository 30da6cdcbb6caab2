# ---------------------------------------------------------------------------------------------------------------------
# The model with quantized layers


def quantize(model, word, precision, prepares):
    """The layers of a model as `from_pretrained` with a `BitsAndBytesConfig` leaves them, ready for adapters. bitsandbytes' own Python makes
    what a weight holds, of tensors that have no contents."""
    import torch

    try:
        import bitsandbytes
        import peft
    except ImportError as error:
        raise Refusal("layers are quantized by bitsandbytes and adapted by peft, of which this Python lacks one (%s)" % error,
                      "install both (pip install bitsandbytes peft), or leave quantization out")
    if not hasattr(torch.ops.bitsandbytes, "gemm_4bit"):
        raise Refusal("quantized layers are recorded with bitsandbytes 0.50 or later, and this is %s" % bitsandbytes.__version__,
                      "pip install -U bitsandbytes, or leave quantization out")
    # What the weights are loaded in, which four-bit layers compute in as well.
    loaded = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision.split("-")[0], torch.float32)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(loaded)
    if not replace_linears(model, word, loaded, bitsandbytes):
        raise Refusal("bitsandbytes quantizes nn.Linear, and nothing else of this model: there is none that it would",
                      "leave quantization out")
    # By which peft knows how its adapters stand beside such layers.
    setattr(model, "is_loaded_in_8bit" if word == "int8" else "is_loaded_in_4bit", True)
    if prepares:
        # Checkpointing is the estimate's to say.
        peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def replace_linears(model, word, loaded, bitsandbytes):
    """bitsandbytes' layers in the place of linear ones; how many."""
    import torch

    double = word == "nf4-double"
    transformers = sys.modules.get("transformers")
    known, before = transformers is not None and isinstance(model, transformers.PreTrainedModel), dict(model.named_modules())
    if known:
        # transformers says itself which ones.
        from transformers.quantizers import AutoHfQuantizer

        options = transformers.BitsAndBytesConfig(load_in_8bit=True) if word == "int8" else transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=loaded)
        # transformers 5 asks the model itself what is kept in float32 and not quantized; before, from_pretrained said it.
        AutoHfQuantizer.from_config(options).preprocess_model(
            model=model, device_map=None, keep_in_fp32_modules=model._keep_in_fp32_modules or [])
        replaced = [(before[name], module) for name, module in model.named_modules() if module is not before.get(name)]
    else:
        replaced = [(before[name], replaced_by(before[name], word, loaded, bitsandbytes)) for name in plain_linears(model)]
        for name, module in before.items():
            for child, old in module._modules.items():
                module._modules[child] = next((new for other, new in replaced if other is old), old)
    kinds = bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt
    replaced = [(old, module) for old, module in replaced if isinstance(module, kinds)]
    for old, module in replaced:
        with torch.no_grad():
            weight = old.weight.detach().to("meta")
            # transformers' Conv1D has its weight the other way around.
            weight = weight if isinstance(old, torch.nn.Linear) else weight.t().contiguous()
            module.weight = packed(module, weight, double, bitsandbytes)
        module.bias = old.bias
        module.requires_grad_(False)
    return len(replaced)


def plain_linears(model):
    """Names of the linear layers that are quantized in a model that is not of transformers: as diffusers has it of its own, all but what
    it keeps in float32; else all but the one that has the last parameters, which transformers leaves of its models too."""
    import torch

    diffusers = sys.modules.get("diffusers")
    whole = ()
    if diffusers is not None and isinstance(model, diffusers.ModelMixin):
        whole = tuple(model._keep_in_fp32_modules or ())
    else:
        whole = (next((name for name, _ in reversed(list(model.named_parameters()))), "").rpartition(".")[0],)
    return [name for name, module in model.named_modules() if type(module) is torch.nn.Linear
            and not any(part == name or part in name.split(".") for part in whole)]


def replaced_by(old, word, loaded, bitsandbytes):
    """bitsandbytes' layer in the place of this one, as transformers and diffusers make it."""
    import torch

    with torch.device("meta"):
        if word == "int8":
            # LLM.int8's own threshold (`llm_int8_threshold`).
            return bitsandbytes.nn.Linear8bitLt(old.in_features, old.out_features, old.bias is not None, has_fp16_weights=False, threshold=6.0)
        return bitsandbytes.nn.Linear4bit(old.in_features, old.out_features, old.bias is not None, loaded,
                                          compress_statistics=word == "nf4-double", quant_type="nf4")


def packed(module, weight, double, bitsandbytes):
    """The parameter that `Params4bit.to` and `Int8Params.to` make of a weight as they bring it to a card."""
    import torch

    if isinstance(module, bitsandbytes.nn.Linear8bitLt):
        numbers, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.to(torch.float16))
        return bitsandbytes.nn.Int8Params(numbers, requires_grad=False, has_fp16_weights=False, CB=numbers, SCB=scales)
    numbers, module.quant_state = bitsandbytes.functional.quantize_4bit(weight, blocksize=64, compress_statistics=double, quant_type="nf4")
    return bitsandbytes.nn.Params4bit(numbers, requires_grad=False, quant_state=module.quant_state, blocksize=64, compress_statistics=double,
                                      quant_type="nf4", module=module, bnb_quantized=True)


# What stands beside a quantized weight, and is no buffer of its module.
STATE = "quant_state"


def beside(parameter, made, module, fresh):
    """Gives what stands on the card for a quantized weight what its layer asks of one, the scales among it: a fake tensor can be of no
    other class."""
    import copy

    def moved(state):
        state = copy.copy(state)
        for name in ("absmax", "code", "offset"):
            if getattr(state, name, None) is not None:
                setattr(state, name, fresh(getattr(state, name), STATE))
        if state.state2 is not None:
            state.state2 = moved(state.state2)
        return state

    for name, value in vars(parameter).items():
        if name == "quant_state" and value is not None:
            value = module.quant_state = moved(value)
        elif name == "SCB" and value is not None:
            value = fresh(value, STATE)
        elif name == "CB" and value is not None:
            value = made.detach()
        setattr(made, name, value)
