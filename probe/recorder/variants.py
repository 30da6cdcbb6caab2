# ---------------------------------------------------------------------------------------------------------------------
# The model with other attention, or with adapters


def varied(model, variant, built, precision):
    """The model with other attention, with quantized layers, or with adapters beside its frozen layers, and what its modules are named
    by."""
    import torch

    if variant.get("attention") is not None:
        attend(model, variant["attention"])
    if variant.get("base_dtype") is not None:
        model = model.to(getattr(torch, variant["base_dtype"]))
    if variant.get("quantization") is not None:
        quantize(model, variant["quantization"], precision, not variant.get("unprepared"))
    if variant.get("lora") is None:
        return model, model
    try:
        import peft
    except ImportError as error:
        raise Refusal("LoRA is added by peft, which this Python does not have (%s)" % error,
                      "install it (pip install peft), or leave --also lora out")
    lora = variant["lora"]
    options = peft.LoraConfig(r=lora["rank"], lora_alpha=2 * lora["rank"], lora_dropout=float(lora.get("dropout") or 0),
                              target_modules=lora.get("targets") or "all-linear")
    try:
        with torch.device("meta") if built == "meta" else contextlib.nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return peft.get_peft_model(model, options), model
    except (ValueError, TypeError, RuntimeError) as error:
        layers = sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules()
                         if isinstance(module, torch.nn.Linear)})
        raise Refusal("peft %s does not add these adapters: %s" % (peft.__version__, str(error).split("\n")[0][:300]),
                      "name layers that it adapts, as lora=16:q_proj,v_proj; linear ones are called here %s"
                      % (", ".join(layers[:20]) or "nothing at all"))


def attend(module, word):
    """Has the outermost models of transformers in it compute attention so."""
    import torch

    def put(module):
        turn = getattr(module, "set_attn_implementation", None)
        if callable(turn):
            try:
                turn(word)
            except (ValueError, TypeError) as error:
                raise Refusal("the model does not take %s attention: %s" % (word, str(error).split("\n")[0][:300]),
                              "leave --also attention out")
            return 1
        return sum([put(child) for child in module.children()])

    if not put(module):
        raise Refusal("nothing in it is a model of transformers (4.48 or later) whose attention could be chosen",
                      "choose it where the model is made, in MODULE:CALLABLE, and record that into a file of its own")
