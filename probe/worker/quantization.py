# ---------------------------------------------------------------------------------------------------------------------
# What the weights are loaded in, and quantized to


def quantized(training):
    return training.get("quantization", "none") != "none"


def prepared(training):
    """Whether a quantized base goes through peft's prepare_model_for_kbit_training."""
    return training["mode"] == "train" and training.get("prepare_kbit", True)


def loaded_dtype(training):
    """What the weights are loaded in: before they are quantized, the dtype the quantized layers compute in."""
    if quantized(training):
        names = {"fp16-amp": torch.float16, "bf16-amp": torch.bfloat16}
    else:
        names = {}
    names.update(fp16=torch.float16, bf16=torch.bfloat16)
    # A frozen base may be loaded in another dtype than goes with the precision.
    said = training.get("base_dtype", "precision")
    return getattr(torch, said) if said != "precision" else names.get(training["precision"], torch.float32)


def quantize(model, training, packages, device):
    """The model on the device as `from_pretrained` with a BitsAndBytesConfig leaves it, ready for adapters."""
    transformers, bitsandbytes = packages["transformers"], packages["bitsandbytes"]
    from transformers.quantizers import AutoHfQuantizer

    word = training["quantization"]
    if word == "int8":
        options = transformers.BitsAndBytesConfig(load_in_8bit=True)
    else:
        options = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=word == "nf4-double",
            bnb_4bit_compute_dtype=loaded_dtype(training),
            bnb_4bit_quant_storage=training.get("quant_storage", "uint8"),
        )
    quantizer = AutoHfQuantizer.from_config(options)
    before = dict(model.named_modules())
    # transformers 5 asks the model itself what is kept in float32 and not quantized; before, from_pretrained said it.
    quantizer.preprocess_model(model=model, device_map=None, keep_in_fp32_modules=model._keep_in_fp32_modules or [])
    for name, module in model.named_modules():
        old = before.get(name)
        if module is old or not isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            continue
        # One after the other, so that the device never holds more than one of them as it was.
        with torch.no_grad():
            weight = old.weight.detach().to(device.name)
            if is_large(weight):
                fill(weight)
            if not isinstance(old, torch.nn.Linear):
                weight = weight.t().contiguous()  # transformers' Conv1D
            module.weight = quantized_parameter(module, weight, options, bitsandbytes)
        module.bias = old.bias
        old.weight = None
    quantizer.postprocess_model(model)
    model.to(device.name)
    if prepared(training):
        # What is not quantized becomes float32, and what that frees is given back. It freezes the base as well, which
        # get_peft_model does all the same.
        model = packages["peft"].prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model


def quantized_parameter(module, weight, options, bitsandbytes):
    if isinstance(module, bitsandbytes.nn.Linear8bitLt):
        numbers, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.to(torch.float16))
        return bitsandbytes.nn.Int8Params(numbers, requires_grad=False, has_fp16_weights=False, CB=numbers, SCB=scales)
    made = bitsandbytes.nn.Params4bit(
        weight,
        requires_grad=False,
        compress_statistics=options.bnb_4bit_use_double_quant,
        quant_type=options.bnb_4bit_quant_type,
        quant_storage=options.bnb_4bit_quant_storage,
        module=module,
    )
    return made.to(weight.device)


def numbers_in(parameter):
    """How many numbers it stands for: a four-bit weight holds two in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else math.prod(state.shape)
