# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints


# As core/exchange/src/write/keep_selected.py has it, line for line: `compute_intensive_ops` of torch/_functorch/partitioners.py,
# and what torchtitan adds to them (`SelectiveAC` in torchtitan/distributed/activation_checkpoint.py).
def keep_selected():
    """Layers are computed again in backward, but for what takes time; of products of two matrices every other one is kept."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    names = "mm addmm bmm convolution convolution_backward _scaled_mm max topk".split()
    names += [f"_scaled_dot_product_{kernel}_attention" for kernel in ("flash", "efficient", "cudnn")]
    names += ["_flash_attention_forward", "_efficient_attention_forward"]
    kept = {getattr(torch.ops.aten, name).default for name in names if hasattr(torch.ops.aten, name)}
    products = {False: 0, True: 0}

    def policy(context, op, *args, **kwargs):
        if op is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            if products[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def spare_layers(model, every):
    """Leaves the checkpoint of every `every`-th layer of each stack on, and of the others off."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    stacks = [stack for stack in model.modules() if isinstance(stack, torch.nn.ModuleList)]
    layers = [(place, layer) for stack in stacks for place, layer in enumerate(stack, 1)
              if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise Stop("unsupported", "the layers of this model cannot be checkpointed one by one",
                   "leave checkpoint_every out")
    for place, layer in layers:
        layer.gradient_checkpointing = place % every == 0


def enable_checkpointing(model, training):
    keywords = {"use_reentrant": training["checkpointing"] == "reentrant", "preserve_rng_state": False}
    if training["checkpointing"] == "selective":
        keywords["context_fn"] = keep_selected
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
    except (ValueError, TypeError) as error:
        message = "this model has no gradient checkpointing: %s" % clean(error)
        raise Stop("unsupported", message, 'use checkpointing = "none"') from error
    if training.get("checkpoint_every", 1) > 1:
        spare_layers(model, training["checkpoint_every"])
    if training.get("lora") is not None:
        # The frozen layers before the first adapter would otherwise have no gradient to recompute for.
        model.enable_input_require_grads()
