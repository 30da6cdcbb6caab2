# ---------------------------------------------------------------------------------------------------------------------
# Losses that are not the model's own


def make_loss(scenario, own, device, channel):
    """What computes a micro-batch's loss outside the model, if anything does: a function of the model, the batch and
    the autocast region to run the model in. It answers the outputs and the loss."""
    training, task = scenario["training"], scenario["model"]["task"]
    implementation, smoothing = training.get("loss_impl", "full"), training.get("label_smoothing", 0.0)
    if implementation != "full":
        if own or task != "causal-lm":
            message = "loss_impl = %s is for the causal language models of Hugging Face" % clean(implementation)
            raise Stop("unsupported", message, 'use loss_impl = "full"')
        if smoothing:
            message = "the Trainer smooths labels on all logits, which loss_impl = %s does not make" % implementation
            raise Stop("unsupported", message, 'use loss_impl = "full", or leave label_smoothing out')
        if computes_fused(training):
            return None
        if implementation == "chunked":
            return chunked_loss
        if implementation == "fused-lm-head":
            return fused_lm_head_loss(device, channel)
        return fused_linear_loss(device, channel)
    if not smoothing or (own and task != "forecasting"):
        return None
    if task in ("forecasting", "contrastive", "seq2seq-lm", "speech-seq2seq"):
        message = "labels are not smoothed for the task %s" % task
        raise Stop("unsupported", message, "leave label_smoothing out")
    return smoothed_loss(smoothing, task)


def body_and_head(model):
    """The model without its output head, the head, and the config."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    body = inner.base_model
    # Llama 4's class says that it is called `language_model`, as in the model with images, and calls it `model`.
    body = inner.model if body is inner else body
    return body, inner.get_output_embeddings(), inner.config


def shifted(labels):
    """Each token's label is the next one; what is padded is ignored."""
    return torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()


def chunked_logits(model, batch, chunks):
    """The logits of each chunk of the sequence, as torchtune's `TransformerDecoder.chunked_output` makes them."""
    body, head, config = body_and_head(model)
    cap = getattr(config, "final_logit_softcapping", None)

    def project(hidden):
        logits = head(hidden)
        if cap is not None:
            logits = logits / cap
            logits = torch.tanh(logits)
            logits = logits * cap
        return logits

    return [project(chunk) for chunk in body(**batch)[0].chunk(chunks, dim=1)]


def chunked_cross_entropy(logits, labels, chunks):
    """torchtune's `CEWithChunkedOutputLoss`: one chunk at a time is made float32."""
    count = (labels != -100).sum()
    labels = [chunk.reshape(-1) for chunk in labels.chunk(chunks, dim=1)]
    logits = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
    total = 0.0
    for chunk, targets in zip(logits, labels):
        total += torch.nn.functional.cross_entropy(chunk.float(), targets, ignore_index=-100, reduction="sum")
    return total / count


def chunked_loss(model, batch, autocast, chunks=8):
    batch = dict(batch)
    labels = batch.pop("labels")
    with autocast:
        logits = chunked_logits(model, batch, chunks)
        # A name of its own, as in torchtune's recipes: they are there until the loss is.
        labels = shifted(labels)
        return logits, chunked_cross_entropy(logits, labels, chunks)


def fused_linear_loss(device, channel):
    import_for_cuda("liger_kernel", "loss_impl = fused-linear", device, channel)
    try:
        from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss
    except Exception as error:
        raise broken("liger_kernel", "missing-package", error)

    def compute(model, batch, autocast):
        batch = dict(batch)
        labels = batch.pop("labels")
        with autocast:
            body, head, config = body_and_head(model)
            options = {"hidden_size": head.weight.shape[1], "lm_head_weight": head.weight, "labels": labels}
            if getattr(head, "bias", None) is not None:
                options["bias"] = head.bias
            if getattr(config, "final_logit_softcapping", None) is not None:
                options["final_logit_softcapping"] = config.final_logit_softcapping
            # `LigerCausalLMOutputWithPast` has the loss and no logits.
            loss = LigerForCausalLMLoss(body(**batch)[0], **options)
            return loss, loss

    return compute


def add_fused_lm_head(model, device, channel, **options):
    """TRL's: the model then takes `fused_lm_head=True`."""
    import_for_cuda("trl", 'loss_impl = "fused-lm-head"', device, channel)
    try:
        from trl.trainer.utils import add_fused_lm_head as add
    except ImportError as error:
        message = "this TRL has no fused output head: %s" % error
        raise Stop("unsupported", message, "python -m pip install --upgrade trl")
    add(model.get_base_model() if hasattr(model, "get_base_model") else model, **options)


def fused_lm_head_loss(device, channel):
    patched = []

    def compute(model, batch, autocast):
        if not patched:
            add_fused_lm_head(model, device, channel)
            patched.append(True)
        with autocast:
            output = model(**batch, fused_lm_head=True)
        return output, output.loss

    return compute


def smoothed_loss(smoothing, task):
    """What the Trainer does with `label_smoothing_factor`: the model is not given its labels, `accelerate` makes its
    logits float32 after autocast, and `LabelSmoother` computes the loss."""
    try:
        from transformers.trainer_pt_utils import LabelSmoother
    except Exception as error:
        raise broken("transformers", "missing-package", error)
    smoother = LabelSmoother(epsilon=smoothing)

    def compute(model, batch, autocast):
        batch = dict(batch)
        labels = batch.pop("labels")
        with autocast:
            logits = model(**batch).logits
        if not isinstance(autocast, contextlib.nullcontext):
            logits = logits.float()
        loss = smoother({"logits": logits}, labels, shift_labels=task == "causal-lm")
        return logits, loss

    return compute
