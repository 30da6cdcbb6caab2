# ---------------------------------------------------------------------------------------------------------------------
# Inference

# A generation is told of from time to time: who hears nothing for long takes the worker for dead. In seconds.
STILL_THERE = 5.0


class Inference(Run):
    """One model on one device, in evaluation and without gradients: a greedy generation where it makes text, else one
    forward. What training calls a step is one of these here, from fresh inputs to what comes out, and begins with nothing
    left of the last."""

    def __init__(self, job, config, packages, device, channel):
        self.begin(job, device, channel)
        with self.phase("load"):
            self.model, dtype = build(self.scenario, config, packages, device)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.make_batch = make_inputs(self.scenario, config, dtype, device)
        self.asked, self.begun = new_tokens(self.scenario), 0
        if self.asked is not None:
            self.settings = plain_generation(self.model, self.asked, packages["transformers"])
            watch_tokens(self.model, self.token)

    def one_step(self, step, sizes):
        for number, samples in enumerate(sizes, 1):
            with self.phase("input", step, number):
                self.batch = self.make_batch(samples)
            if self.asked is None:
                self.forward(step, number)
            else:
                self.generate(step)
            self.batch = None
        return None, False

    def forward(self, step, number):
        with self.phase("forward", step, number):
            with torch.no_grad(), self.autocast():
                output = self.model(**self.batch)
        del output

    def generate(self, step):
        """Prefill and decode. One autocast region around all of it: the weights' copies are made once."""
        self.begun, self.told = 0, time.monotonic()
        self.enter("prefill", step)
        with torch.no_grad(), self.autocast():
            output = self.model.generate(**self.batch, generation_config=self.settings)
        self.leave()
        del output
        if self.begun != self.asked:
            message = "this model's generate made %d of %d tokens" % (self.begun, self.asked)
            raise Stop("unsupported", message, "report it with the config: a generation of all of them was expected")

    def token(self):
        """The forward of another token is about to begin; of the second, what followed the first one's is over: that is
        where the prompt is done with."""
        self.begun += 1
        if self.begun > self.asked:
            # Its test for the end is answered by the card: one that computes nothing would never end.
            message = "this model's generate goes on after the %d tokens that were asked for" % self.asked
            raise Stop("unsupported", message, "see whether the card computes at all, and report it with the config")
        if self.begun == 2:
            step = self.where["step"]
            self.leave()
            self.enter("decode", step)
        self.device.check()
        now = time.monotonic()
        if now - self.told > STILL_THERE:
            self.told = now
            self.channel.progress("token %d of %d" % (self.begun, self.asked))


def plain_generation(model, tokens, transformers):
    """Settings for a greedy generation of exactly so many tokens: nothing the config says ends it earlier, and nothing is
    sampled, searched or suppressed."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not inner.can_generate():
        message = "transformers %s cannot generate with a %s" % (transformers.__version__, type(inner).__name__)
        raise Stop("unsupported", message, "check model_type and task")
    settings = transformers.GenerationConfig(max_new_tokens=tokens, do_sample=False, use_cache=True)
    # What `generate` falls back to must say nothing either.
    inner.generation_config = transformers.GenerationConfig()
    if getattr(inner.config, "is_encoder_decoder", False):
        settings.decoder_start_token_id = inner.config.decoder_start_token_id
    if getattr(inner.config, "forced_decoder_ids", None) is not None:
        # What Whisper would begin with besides: language and task.
        inner.config.forced_decoder_ids = None
    return settings


def watch_tokens(model, about_to_begin):
    """Has `about_to_begin` called before what every token's forward needs is made. Every version of `generate` asks the
    model for that once a token; a wrapper around it holds nothing that its caller does not hold anyway."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    prepare = inner.prepare_inputs_for_generation

    # Its signature is looked at.
    @functools.wraps(prepare)
    def watched(*args, **kwargs):
        about_to_begin()
        return prepare(*args, **kwargs)

    inner.prepare_inputs_for_generation = watched
