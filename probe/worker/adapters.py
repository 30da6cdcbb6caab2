# ---------------------------------------------------------------------------------------------------------------------
# Adapters

# What peft calls them; without one it adds adapters and nothing else.
PEFT_TASKS = {"causal-lm": "CAUSAL_LM", "seq2seq-lm": "SEQ_2_SEQ_LM"}


def add_adapters(model, scenario, peft):
    lora, task = scenario["training"]["lora"], scenario["model"]["task"]
    targets, rank = lora["targets"], lora["rank"]
    if targets == "all-linear" and "family" in scenario["model"]:
        # peft finds the output head, which stays as it is, in Hugging Face models only.
        linears = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        targets = [name for name in linears if name != "head"]
    try:
        options = peft.LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=lora["dropout"],
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type=None if "family" in scenario["model"] else PEFT_TASKS.get(task),
            use_dora=lora.get("dora", False),
            modules_to_save=lora.get("modules_to_save"),
        )
        if lora.get("autocast_adapter_dtype", True):
            return peft.get_peft_model(model, options)
        return peft.get_peft_model(model, options, autocast_adapter_dtype=False)
    except (ValueError, TypeError) as error:
        message = "peft %s does not add these adapters: %s" % (peft.__version__, clean(error))
        raise Stop("unsupported", message, 'name modules as the model does, or use targets = "all-linear"') from error
