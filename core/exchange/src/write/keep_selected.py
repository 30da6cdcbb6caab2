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
