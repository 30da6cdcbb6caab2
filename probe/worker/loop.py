# ---------------------------------------------------------------------------------------------------------------------
# The loop


class Run:
    """One model and its optimizer on one device, through as many attempts as are asked for."""

    def __init__(self, job, config, packages, device, channel):
        self.begin(job, device, channel)
        training = self.training
        self.compute_loss = make_loss(self.scenario, config is None, device, channel)
        with self.phase("load"):
            self.model, dtype = build(self.scenario, config, packages, device)
            self.reference = frozen_copy(self.model) if training.get("reference_model") else None
            self.average = make_average(self.model) if training.get("ema") else None
            self.parameters = [p for p in self.model.parameters() if p.requires_grad]
            # Adagrad makes its state here.
            make = step_in_backward if training.get("optimizer_in_backward") else make_optimizers
            self.optimizers = make(training, self.model, self.parameters, packages, device, channel)
            loop = training.get("trainer", "none")
            if loop in ("torchvision", "nanogpt"):
                message = "%s's own loop is not measured here" % loop
                raise Stop("unsupported", message, "rehearse its script, or leave trainer out")
            if loop == "transformers":
                tiled = training.get("loss_impl") == "fused-lm-head"
                self.trainer = Trainer(device.name, packages["transformers"].__version__, tiled)
                if tiled:
                    add_fused_lm_head(self.model, device, channel, outputs=("log_probs", "entropy", "is_top1"))
            if training.get("compile"):
                compile_in_place(self.model, training)
            if training.get("activation_offloading") == "offload-activations":
                self.offloader = make_offloader(self.model, self.training, device, channel)
        self.scaler = make_scaler(device.kind) if training["precision"] == "fp16-amp" else None
        self.make_batch = make_inputs(self.scenario, config, dtype, device)

    def begin(self, job, device, channel):
        """What training and inference have in common, before there is a model."""
        self.job, self.device, self.channel = job, device, channel
        self.scenario, self.training = job["scenario"], job["scenario"]["training"]
        self.reports_phases = job.get("phases", True)
        self.ranks = getattr(device, "ranks", None)
        self.attempt = 0
        self.peaks = Peaks()
        self.step_peaks = Peaks()
        self.where = {"phase": "load", "step": None, "micro_batch": None}
        # What the loop's names hold between micro-batches.
        self.batch = self.loss = self.outputs = None
        # Where transformers' Trainer runs the loop.
        self.trainer = None
        # Where what backward needs is sent off around all of a micro-batch.
        self.offloader = contextlib.nullcontext()

        if self.training.get("compile") and (self.ranks is not None or self.training["mode"] != "train"):
            message = "torch.compile is measured in training, and on one card"
            raise Stop("unsupported", message, "leave compile out")
        # What is compiled says from time to time that it is.
        self.patience = Patience(channel) if self.training.get("compile") else contextlib.nullcontext()
        self.optimizers, self.scaler = [], None
        self.amp = {"fp16-amp": torch.float16, "bf16-amp": torch.bfloat16}.get(self.training["precision"])

    def counts(self):
        if self.ranks is not None:
            return self.ranks.counts
        total = sum(numbers_in(p) for p in self.model.parameters())
        return {"total": total, "trainable": sum(p.numel() for p in self.parameters)}

    @contextlib.contextmanager
    def phase(self, name, step=None, micro_batch=None):
        """One phase of the loop."""
        self.enter(name, step, micro_batch)
        yield
        self.leave()

    def enter(self, name, step=None, micro_batch=None):
        """A phase begins: its own peaks, and the device waited for before and after."""
        self.where = {"phase": name, "step": step, "micro_batch": micro_batch}
        if self.reports_phases:
            self.device.synchronize()
            self.device.reset_peaks()
            self.entered = time.perf_counter_ns()

    def leave(self):
        """The phase ends, and is told of."""
        device = self.device
        if not self.reports_phases:
            device.check()
            return
        device.synchronize()
        micros = (time.perf_counter_ns() - self.entered) // 1000
        figures = device.figures()
        self.peaks.see(figures)
        self.step_peaks.see(figures)
        peak_allocated, peak_reserved, end_allocated, end_reserved, _ = figures
        self.channel.emit(
            "phase", attempt=self.attempt, name=self.where["phase"], step=self.where["step"],
            micro_batch=self.where["micro_batch"], peak_allocated=peak_allocated, peak_reserved=peak_reserved,
            end_allocated=end_allocated, end_reserved=end_reserved, micros=micros, process=device.process(),
        )
        device.check()

    def autocast(self):
        if self.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.kind, dtype=self.amp)

    def offloading(self):
        """Where what backward needs waits for it in the machine's memory, if the forward alone is run under it."""
        if self.training.get("activation_offloading") != "save-on-cpu":
            return contextlib.nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self.device.kind == "cuda")

    def zero_grad(self, step):
        with self.phase("zero_grad", step):
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=self.training["zero_grad"] == "set-to-none")

    def micro_batch(self, step, number, samples, divide):
        """Input, forward and backward of one micro-batch. Answers its share of the step's loss."""
        with self.phase("input", step, number):
            # The last batch is let go of only when the new one takes its name.
            self.batch = self.make_batch(samples)
        if number == 1 and self.training["zero_grad_at"] == "before-forward":
            self.zero_grad(step)
        with self.phase("forward", step, number), self.patience, self.offloading():
            if self.compute_loss is None:
                with self.autocast():
                    output = self.model(**self.batch)
            else:
                output = self.compute_loss(self.model, self.batch, self.autocast())
            # The last micro-batch's loss and outputs have lived until here.
            if isinstance(output, tuple):
                output, self.loss = output
            else:
                self.loss = output.loss
            self.outputs = output if self.training["keep_outputs"] else None
            del output
            if divide is not None:
                self.loss = divide(self.loss)
            root = self.loss if self.scaler is None else self.scaler.scale(self.loss)
        if number == 1 and self.training["zero_grad_at"] == "before-backward":
            self.zero_grad(step)
        with self.phase("backward", step, number), self.patience:
            root.backward()
            del root
            # Kept for the report with its graph, as loops do, and with the leaves that the forward made for itself (T5's
            # position bias under checkpointing). With adapters the graph is let go of, as in the reference rows.
            if self.training.get("lora") is not None:
                self.loss = self.loss.detach()
        return self.loss.item()

    def trainers_micro_batch(self, step, number, sizes):
        """As the Trainer does it: all micro-batches come first, and its name of the last loss is taken after backward."""
        trainer = self.trainer
        with self.phase("input", step, number):
            if number == 1:
                trainer.fetch(self.make_batch, sizes)
            self.batch = trainer.batches[number - 1]
        # Around `training_step`, as TRL's trainers have it.
        with self.offloader:
            with self.phase("forward", step, number), self.patience:
                loss = trainer.compute_loss(self.model, self.batch, self.autocast())
                # `accelerate` divides by the accumulation that it knows of: none.
                divided = loss / 1
                root = divided if self.scaler is None else self.scaler.scale(divided)
            with self.phase("backward", step, number), self.patience:
                root.backward()
                del root, divided
                self.loss = loss.detach()
                del loss
                trainer.add(self.loss)
        return self.loss.item()

    def update(self, step):
        """Clips, steps, and clears the gradients. Answers whether the scaler let the optimizer step."""
        with self.phase("clip", step):
            if self.scaler is not None:
                for optimizer in self.optimizers:
                    self.scaler.unscale_(optimizer)
            if self.trainer is not None:
                self.trainer.clip(self.parameters, 1.0 if self.training["clip_grad_norm"] else None)
            elif self.training["clip_grad_norm"]:
                if self.ranks is not None and self.ranks.strategy == "fsdp1":
                    self.model.clip_grad_norm_(1.0)
                else:
                    torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        skipped = False
        with self.phase("optimizer", step):
            if self.training.get("optimizer_in_backward"):
                pass
            elif self.scaler is None:
                for optimizer in self.optimizers:
                    optimizer.step()
            else:
                before = self.scaler.get_scale()
                for optimizer in self.optimizers:
                    self.scaler.step(optimizer)
                self.scaler.update()
                # The scale falls when the gradients were not finite, and then only.
                skipped = self.scaler.get_scale() < before
            if self.average is not None:
                self.average.update_parameters(self.model)
        if self.training["zero_grad_at"] == "after-step":
            self.zero_grad(step)
        return skipped

    def one_step(self, step, sizes):
        """One optimizer step. Answers its mean loss and whether it was skipped."""
        whole = sum(sizes)
        even = len(set(sizes)) == 1
        loss = 0.0
        if self.trainer is not None:
            for number in range(1, len(sizes) + 1):
                loss += self.trainers_micro_batch(step, number, sizes)
            return loss, self.update(step)
        for number, samples in enumerate(sizes, 1):
            divide = None
            if len(sizes) > 1:
                # Leftover samples make a smaller last micro-batch: each counts by its share.
                divide = (lambda x: x / len(sizes)) if even else (lambda x, n=samples: x * (n / whole))
            last = number == len(sizes)
            with contextlib.nullcontext() if self.ranks is None else self.ranks.micro_batch(self.model, last):
                with self.offloader:
                    loss += self.micro_batch(step, number, samples, divide)
        return loss, self.update(step)

    def steps(self, sizes, count):
        """The optimizer steps of an attempt, or its runs in inference. Answers how many losses were not finite."""
        infinite = 0
        for step in range(1, count + 1):
            self.step_peaks = Peaks()
            if self.ranks is not None:
                self.ranks.count_anew()
            if not self.reports_phases:
                self.device.reset_peaks()
            start = time.perf_counter_ns()
            loss, skipped = self.one_step(step, sizes)
            self.device.synchronize()
            micros = (time.perf_counter_ns() - start) // 1000
            if not self.reports_phases:
                figures = self.device.figures()
                self.peaks.see(figures)
                self.step_peaks.see(figures)
            self.finished = step
            if loss is not None and not math.isfinite(loss):
                infinite += 1
                if infinite == 1:
                    self.channel.note("the loss of step %d is not finite; memory does not depend on it" % step)
            samples = sum(sizes)
            self.channel.emit(
                "step", attempt=self.attempt, step=step, micros=micros,
                loss=loss if loss is not None and math.isfinite(loss) else None,
                scale=None if self.scaler is None else self.scaler.get_scale(), skipped=skipped, samples=samples,
                tokens=self.tokens(samples), peak_allocated=self.step_peaks.allocated,
                peak_reserved=self.step_peaks.reserved, process=self.device.process(),
            )
            if step == 1:
                self.device.tighten(self.channel)
        return infinite

    def tokens(self, samples):
        """How many tokens that is, where a sample is a sequence of them: of a generation those it makes."""
        if new_tokens(self.scenario) is not None:
            return samples * new_tokens(self.scenario)
        if self.scenario["model"]["task"] in ("causal-lm", "masked-lm", "sequence-classification", "seq2seq-lm"):
            return samples * self.scenario["input"]["seq"]
        return None

    def sizes(self, batch, accumulation, samples):
        """Samples of each micro-batch of a step: the last one is smaller where they do not divide."""
        # Without a number of samples, those the job began with, where the two can keep to it.
        effective = samples or self.scenario["input"]["batch"] * self.training["accumulation"]
        if samples or (batch <= effective and accumulation == -(-effective // batch)):
            full, rest = divmod(effective, batch)
            return [batch] * full + ([rest] if rest else [])
        return [batch] * accumulation

    def run_attempt(self, batch, accumulation, steps, samples):
        """One attempt, with every end an attempt can have: finished, out of memory, over the limit."""
        self.peaks, self.finished = Peaks(), 0
        retries = self.device.figures()[4]
        self.device.reset_peaks()
        sizes, guard = self.sizes(batch, accumulation, samples), None
        try:
            infinite = self.steps(sizes, steps)
            if self.ranks is not None:
                self.channel.emit("buffers", attempt=self.attempt, buffers=self.ranks.buffers(self.model))
            if infinite and infinite == steps:
                self.channel.note("not one loss of this attempt was finite: its speed and memory stand all the same")
            self.record_trace(sizes)
        except Exception as error:
            kind = self.device.out_of_memory(error)
            if kind is None:
                raise
            self.peaks.see(self.device.figures())
            guard = {"kind": kind, "message": clean(error)}
            guard.update(self.where)
        # Only here, where the exception and the frames it holds are gone, can the tensors in them be let go.
        if guard is not None:
            self.clean_up()
            figures = self.device.figures()
            self.channel.emit("guard", attempt=self.attempt, allocated_after=figures[2], reserved_after=figures[3], **guard)
        self.write_snapshot()
        now = self.device.figures()[4]
        self.channel.emit(
            "attempt_end", attempt=self.attempt, outcome="finished" if guard is None else guard["kind"],
            steps=self.finished, peak_allocated=self.peaks.allocated, peak_reserved=self.peaks.reserved,
            retries=None if now is None else now - retries,
        )
        self.attempt += 1

    def clean_up(self):
        """Lets go of the graph, the gradients and the cache; the model and a whole optimizer state stay."""
        self.batch = self.loss = self.outputs = None
        stepping = "backward" if self.training.get("optimizer_in_backward") else "optimizer"
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
            if self.where["phase"] == stepping:
                # It may have been halfway through making its state.
                optimizer.state.clear()
        if self.scaler is not None:
            # The old one may wait for an update that never came.
            self.scaler = make_scaler(self.device.kind, self.scaler.get_scale())
        gc.collect()
        self.device.empty_cache()

    def record_trace(self, sizes):
        """One more step under PyTorch's profiler, which would slow the measured ones."""
        path = self.job.get("trace")
        if not path:
            return
        self.job["trace"] = None
        self.channel.progress("recording one more step for the trace")
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.device.kind == "cuda" else [])
        reports, self.reports_phases = self.reports_phases, False
        try:
            with profile(activities=activities, record_shapes=True, profile_memory=True) as profiler:
                self.one_step(self.finished + 1, sizes)
                self.device.synchronize()
        finally:
            self.reports_phases = reports
        self.channel.progress("writing the trace")
        # The ending tells PyTorch whether to compress.
        write_whole(path, profiler.export_chrome_trace, ".gz" if path.endswith(".gz") else ".json")

    def write_snapshot(self):
        path = self.job.get("snapshot")
        if path:
            self.channel.progress("writing the memory snapshot")
            write_whole(path, torch.cuda.memory._dump_snapshot, ".pickle")


class Peaks:
    """The highest figures of several stretches."""

    allocated = None
    reserved = None

    def see(self, figures):
        if figures[0] is not None:
            self.allocated = max(self.allocated or 0, figures[0])
            self.reserved = max(self.reserved or 0, figures[1])


def write_whole(path, write, ending):
    """Has `write` fill a file beside `path` and then puts it there, so that a half-written one is never seen."""
    path = os.path.abspath(path)
    handle, part = tempfile.mkstemp(suffix=ending, prefix=".plimsoll-", dir=os.path.dirname(path))
    os.close(handle)
    try:
        write(part)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
