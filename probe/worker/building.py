# ---------------------------------------------------------------------------------------------------------------------
# Building


def build(scenario, config, packages, device):
    """The model on the device, in the scenario's mode. Nothing but its parameters and buffers is ever made there."""
    training = scenario["training"]
    dtype = loaded_dtype(training)
    if quantized(training) and config is None:
        message = "the family %s is no model that transformers quantizes" % clean(scenario["model"]["family"])
        raise Stop("unsupported", message, "leave quantization out, or use a Hugging Face model")
    # Of several ranks, where the model is made before it is spread: whole on the device, but for FSDP.
    place = "device" if device.ranks is None else device.ranks.place(config)
    with without_large_randomness(), torch.device("meta") if place == "meta" else contextlib.nullcontext():
        if config is None:
            torch.set_default_dtype(dtype)
            try:
                model = build_family(scenario, packages)
            finally:
                torch.set_default_dtype(torch.float32)
        else:
            model = build_hugging_face(scenario, config, dtype, packages["transformers"])
        if quantized(training):
            model = quantize(model, training, packages, device)
            if prepared(training):
                dtype = torch.float32
        if training.get("lora") is not None:
            model = add_adapters(model, scenario, packages["peft"])
    if training.get("kernels", "default") == "liger":
        apply_liger(model, training, device)
    if training["checkpointing"] != "none":
        enable_checkpointing(model, training)
    model.train(training["mode"] == "train")
    if place == "device":
        model.to(device.name)
    if place != "meta":
        fill_large(model)
    if device.ranks is not None:
        model = device.ranks.spread(model)
    if place == "meta":
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                fill_shard(name, parameter.to_local())
    return model, dtype
