# ---------------------------------------------------------------------------------------------------------------------
# ZeRO, by DeepSpeed


class Zero(Run):
    """DeepSpeed's own loop: its engine clips, accumulates, steps and lets gradients go."""

    def __init__(self, job, config, packages, device, channel):
        self.begin(job, device, channel)
        training = self.training
        os.environ.update(DS_ACCELERATOR=device.kind, DS_SKIP_CUDA_CHECK="1")
        deepspeed = import_package("deepspeed", "the strategy %s" % self.ranks.strategy)
        channel.note("deepspeed %s" % deepspeed.__version__)
        if device.kind == "cuda" and self.ranks.hollow:
            without_overflows()
            # It prints tensors, and the host would ask the card for numbers that are not there.
            torch._tensor_str._str = lambda *_, **__: "tensor(...)"
        with self.phase("load"):
            # The engine casts a model itself, but what a quantized one computes in is said when it is loaded.
            loaded = training if quantized(training) else dict(training, precision="fp32")
            model, _ = build(dict(self.scenario, training=loaded), config, packages, device)
            trained = [p for p in model.parameters() if p.requires_grad]
            optimizer = make_optimizers(training, model, trained, packages, device, channel)[0]
            self.model = deepspeed.initialize(model=model, optimizer=optimizer, config=zero_config(self.scenario),
                                              dist_init_required=False)[0]
        self.parameters = trained
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(training["precision"], torch.float32)
        self.make_batch = make_inputs(self.scenario, config, dtype, device)

    def one_step(self, step, sizes):
        loss = 0.0
        for number, samples in enumerate(sizes, 1):
            with self.phase("input", step, number):
                self.batch = self.make_batch(samples)
            with self.phase("forward", step, number):
                output = self.model(**self.batch)
                self.loss = output[1] if isinstance(output, tuple) else output.loss
                self.outputs = output if self.training["keep_outputs"] else None
                del output
            with self.phase("backward", step, number):
                self.model.backward(self.loss)
                if self.training.get("lora") is not None:
                    self.loss = self.loss.detach()
                if number < len(sizes):
                    self.model.step()
            loss += self.loss.item() / len(sizes)
        with self.phase("optimizer", step):
            self.model.step()
        return loss, False


def without_overflows():
    """On a card that computes nothing every truth that the host reads is the same: DeepSpeed would find that gradients overflow and
    skip every step. What it looks at is looked at all the same."""
    import deepspeed.runtime.utils
    from deepspeed.runtime import bf16_optimizer
    from deepspeed.runtime.fp16 import unfused_optimizer
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    asked = deepspeed.runtime.utils.is_invalid_grad_norm

    def never(norm):
        asked(norm)
        return False

    def real(norm):
        """What nobody computed may be the root of something negative."""
        return lambda *args, **kwargs: abs(norm(*args, **kwargs))

    looked = deepspeed.runtime.utils.CheckOverflow._has_inf_or_nan

    def found(gradient, index):
        looked(gradient, index)
        return False

    serial = deepspeed.runtime.utils.CheckOverflow.has_overflow

    def never_found(self, *args, **kwargs):
        serial(self, *args, **kwargs)
        return False

    deepspeed.runtime.utils.CheckOverflow._has_inf_or_nan = staticmethod(found)
    deepspeed.runtime.utils.CheckOverflow.has_overflow = never_found
    for module in (deepspeed.runtime.utils, stage_1_and_2, stage3, bf16_optimizer, unfused_optimizer):
        if hasattr(module, "is_invalid_grad_norm"):
            module.is_invalid_grad_norm = never
        if hasattr(module, "get_weight_norm"):
            module.get_weight_norm = real(module.get_weight_norm)
    for kind in (stage_1_and_2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):
        for name in ("_check_overflow", "has_overflow"):
            checks = getattr(kind, name, None)
            if checks is None:
                continue

            def check(self, *args, checks=checks, **kwargs):
                checks(self, *args, **kwargs)
                self.overflow = False
                return False

            setattr(kind, name, check)


def zero_config(scenario):
    """What DeepSpeed is told, in its own keys."""
    training, parallel = scenario["training"], scenario["parallel"]
    later = ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters", "max_reuse_distance")
    zero = {"stage": int(parallel["strategy"][-1])}
    keys = dict(parallel.get("zero") or {})
    pinned = keys.pop("offload_pin_memory", True)
    swapped = {
        "offload_buffer_count": ("offload_optimizer", "buffer_count"), "offload_param_buffer_count": ("offload_param", "buffer_count"),
        "offload_param_buffer_size": ("offload_param", "buffer_size"), "offload_param_max_in_cpu": ("offload_param", "max_in_cpu"),
    }
    swap = {swapped[key]: keys.pop(key) for key in list(keys) if key in swapped}
    aio = {key[len("aio_"):]: keys.pop(key) for key in list(keys) if key.startswith("aio_")}
    for key, value in keys.items():
        offload = {"device": value, "pin_memory": pinned}
        if value == "nvme":
            # Files of the run: they go with the folder.
            offload["nvme_path"] = tempfile.mkdtemp(prefix="plimsoll-nvme-")
            offload.update({name: said for (of, name), said in swap.items() if of == key})
        zero["stage3_" + key if key in later else key] = offload if key.startswith("offload") else value
    config = {
        "train_micro_batch_size_per_gpu": scenario["input"]["batch"], "gradient_accumulation_steps": training["accumulation"],
        "zero_optimization": zero, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    }
    if aio:
        config["aio"] = aio
    if training["clip_grad_norm"]:
        config["gradient_clipping"] = 1.0
    if training["precision"] in ("bf16", "fp16"):
        config[training["precision"]] = {"enabled": True}
    return config
