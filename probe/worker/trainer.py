# ---------------------------------------------------------------------------------------------------------------------
# What transformers' Trainer adds to the loop


class Trainer:
    """What the loop of transformers' Trainer holds and does beside one written by hand: `_run_epoch`, `get_batch_samples` and
    `training_step` of `transformers/trainer.py`, `backward` of `accelerate/accelerator.py`."""

    def __init__(self, device, transformers, tiled):
        """`tiled`: with TRL's fused output head, as its SFTTrainer."""
        version = tuple(int(part) for part in re.findall(r"\d+", transformers)[:2])
        self.averages, self.takes_norms, self.shifts = version >= (4, 57), version >= (5, 8), version >= (5, 17)
        self.losses = torch.tensor(0.0, device=device)
        self.batches = self.items = self.norm = None
        if tiled:
            self.compute_loss = self.tiled_loss

    def fetch(self, make_batch, sizes):
        """All micro-batches of a step; the last step's are there until these are counted."""
        batches = [make_batch(samples) for samples in sizes]
        labels = (batch["labels"][..., 1:] if self.shifts else batch["labels"] for batch in batches)
        items = sum(given.ne(-100).sum() for given in labels)
        self.batches, self.items = batches, items

    def compute_loss(self, model, batch, autocast):
        """The loss, beside outputs that `accelerate` makes float32."""
        with autocast:
            output = model(**batch, num_items_in_batch=self.items)
        if not isinstance(autocast, contextlib.nullcontext):
            half = (torch.float16, torch.bfloat16)
            output = {k: v.float() if getattr(v, "dtype", None) in half else v for k, v in output.items()}
        loss = output["loss"]
        if self.averages:
            loss *= 1
        return loss

    def tiled_loss(self, model, batch, autocast):
        """As TRL's SFTTrainer computes it with its fused output head, and what it logs."""
        with autocast:
            outputs = model(**batch, fused_lm_head=True)
        per_token_loss = -outputs.log_probs
        loss = per_token_loss.sum() / torch.as_tensor(self.items).clamp(min=1)
        if self.averages:
            loss = loss * 1
        valid = outputs.label_mask.sum().sum()
        entropy, right = outputs.entropy.detach().sum().sum(), outputs.is_top1.sum().sum()
        for total in (entropy, right):
            if valid > 0:
                (total / valid).item()
        if "attention_mask" in batch:
            batch["attention_mask"].sum().sum().item()
        return loss

    def add(self, loss):
        # On a hollow card a number is what lay there before, and says nothing.
        hollow = is_hollow()
        if not ((torch.isnan(loss) and not hollow) or (torch.isinf(loss) and not hollow)):
            self.losses += loss

    def clip(self, parameters, largest):
        if self.takes_norms:
            self.norm = None
            largest = math.inf if largest is None else largest
        if largest is not None:
            self.norm = torch.nn.utils.clip_grad_norm_(parameters, largest)
