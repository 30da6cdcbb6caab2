# ---------------------------------------------------------------------------------------------------------------------
# What the host asks of the card, and who asks

# Of several masks that are asked for between two calls of modules the first selects all, and the others nothing.
FIRST = "first"

# What the host sees when it asks the card for a number, by who asks. Anything else is seen as it is below, and every
# question is reported.
ANSWERS = {
    # Is anything in a mask padded? Nothing is.
    "fast_all": True,
    "_ignore_causal_mask_sdpa": True,
    "_ignore_bidirectional_mask_sdpa": True,
    "_preprocess_mask_arguments": True,
    # No sample is made of several.
    "find_packed_sequence_indices": True,
    "PreTrainedModel.warn_if_padding_and_no_attention_mask": False,
    # No sequence is longer than the positions were made for.
    "dynamic_rope_update": False,
    # Where an expert's rows end: the first has them all.
    "_grouped_mm_fallback_backward": 1 << 30,
    # All words are among the frequent ones, and none in another cluster.
    "AdaptiveLogSoftmaxWithLoss.forward": FIRST,
}

# What chance says: the largest that `torch.rand` draws.
NOTHING_LEFT_OUT = 1 - 2**-24


def asking():
    """The function outside PyTorch's plumbing that the innermost call comes from. Only names are looked at: a frame's
    variables, once asked for, would keep its tensors alive."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        plumbing = ("/torch/_", "/torch/utils/", "/torch/library", "<frozen", __file__)
        if not any(part in code.co_filename for part in plumbing):
            return getattr(code, "co_qualname", code.co_name).split(".<locals>")[0]
        frame = frame.f_back
    return "nobody"


def leaves_function():
    """Whether the innermost call is of `torch.autograd.Function.apply` itself, behind its forward."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "apply" and code.co_filename.endswith("torch/autograd/function.py"):
            return True
        if not any(part in code.co_filename for part in ("/torch/_", "/torch/utils/", __file__)):
            return False
        frame = frame.f_back
    return False


# Comparisons with a number, of what is known without one.
COMPARES = {
    "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le,
}


def instruction():
    """The instruction of Python, but for what stands here, that an operator is called from: the next one is called from another."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame and (id(frame), frame.f_lasti)
