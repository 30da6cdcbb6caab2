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


# As core/exchange/src/write/offloaded_checkpoint.py has it, line for line, after `UnslothGradientCheckpointing` of
# llamafactory/model/model_utils/checkpointing.py and `CPU_Offloaded_Gradient_Checkpointer` of
# axolotl/monkeypatch/gradient_checkpointing/offload_cpu.py: what is alive and for how long is as there.
def offloaded_checkpoint():
    """A checkpoint that keeps the first thing it is given in the machine's memory."""
    amp = torch.amp if hasattr(torch.amp, "custom_fwd") else torch.cuda.amp
    keywords = {"device_type": "cuda"} if amp is torch.amp else {}

    class Offloaded(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(**keywords)
        def forward(ctx, layer, hidden, *args):
            away = hidden.to("cpu", non_blocking=True)
            with torch.no_grad():
                output = layer(hidden, *args)
            ctx.save_for_backward(away)
            ctx.layer, ctx.args, ctx.place = layer, args, hidden.device
            return output

        @staticmethod
        @amp.custom_bwd(**keywords)
        def backward(ctx, grad):
            (hidden,) = ctx.saved_tensors
            hidden = hidden.to(ctx.place, non_blocking=True).detach()
            hidden.requires_grad_()
            with torch.enable_grad():
                output = ctx.layer(hidden, *ctx.args)
                if isinstance(output, (tuple, list)):
                    (output,) = output
            torch.autograd.backward(output, grad)
            return (None, hidden.grad) + (None,) * len(ctx.args)

    return lambda layer, *args, **_: Offloaded.apply(layer, *args)


def set_checkpoints(model, training, keywords):
    if training.get("activation_offloading") != "checkpoint-inputs":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
        return
    import transformers.modeling_utils as modeling

    torchs, modeling.checkpoint = modeling.checkpoint, offloaded_checkpoint()
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
    finally:
        modeling.checkpoint = torchs


def enable_checkpointing(model, training):
    keywords = {"use_reentrant": training["checkpointing"] == "reentrant", "preserve_rng_state": False}
    if training["checkpointing"] == "selective":
        keywords["context_fn"] = keep_selected
    try:
        set_checkpoints(model, training, keywords)
    except (ValueError, TypeError) as error:
        message = "this model has no gradient checkpointing: %s" % clean(error)
        raise Stop("unsupported", message, 'use checkpointing = "none"') from error
    if training.get("checkpoint_every", 1) > 1:
        spare_layers(model, training["checkpoint_every"])
    if training.get("lora") is not None:
        # The frozen layers before the first adapter would otherwise have no gradient to recompute for.
        model.enable_input_require_grads()
