# ---------------------------------------------------------------------------------------------------------------------
# Liger's kernels


def apply_liger(model, training, device):
    """What `use_liger_kernel` of transformers' Trainer does to a model that is there: norms, rotary positions and gated activations
    become Liger's, and with `loss_impl = "fused-linear"` the forward that computes the loss without logits."""
    import_for_cuda("liger_kernel", "kernels = liger", device)
    try:
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance as apply
    except Exception as error:
        raise broken("liger_kernel", "missing-package", error)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    apply(model=inner, cross_entropy=False, fused_linear_cross_entropy=computes_fused(training))


def computes_fused(training):
    """Whether the model's own forward is Liger's, which computes the fused loss."""
    return training.get("kernels", "default") == "liger" and training.get("loss_impl", "full") == "fused-linear"
