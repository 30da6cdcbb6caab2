//! One micro-batch: forward, what the loop does with the loss, backward.

use plimsoll_families::{Output, in_full, smoothed};
use plimsoll_scenario::{ActivationOffloading, Trainer as Whose};
use plimsoll_torch::tensor::{HeadLoss, ModuleId, Offloading, Past, Smoothing, backward};
use plimsoll_torch::{Batch, ops};

use super::{Loop, Repeats, Runs};

impl Loop<'_> {
    /// Forward and backward of a recording.
    pub(super) fn play(&mut self, before_backward: impl Fn(&Self)) {
        let cx = self.cx;
        let cut = self.spread.cut.clone();
        let engine = cut.as_ref().and_then(|cut| cut.engine());
        if let Some(cut) = &cut {
            cut.prepare(cx);
        }
        let (ddp, reduces) = (self.spread.ddp.clone(), self.reduces);
        let called = || {
            if let Some(ddp) = &ddp {
                ddp.before_forward(cx, reduces);
            }
            drop(cut.as_ref().and_then(|cut| cut.before_forward(cx, None, reduces)));
        };
        let (divided, scaled) = (self.training.accumulation > 1, self.scaler.is_some());
        let Runs::Hull(player) = &mut self.runs else { return };
        let root = player.forward(cx, divided && engine.is_none(), self.scaler.as_mut(), called);
        before_backward(self);
        let Runs::Hull(player) = &mut self.runs else { return };
        match (engine, player.loss()) {
            // `engine.backward(loss)`: divided by the accumulation, and scaled.
            (Some(engine), Some(loss)) => {
                let divided = ops::div_scalar(&loss);
                let scaled = engine.scales().then(|| ops::mul_scalar(&divided));
                drop(loss);
                player.backward(cx, 1 + usize::from(engine.scales()));
                engine.after_backward(cx);
                drop(scaled);
                drop(divided);
            }
            (_, loss) => {
                drop(loss);
                player.backward(cx, usize::from(divided) + usize::from(scaled));
                drop(root);
            }
        }
    }

    /// Forward and backward of a model, op by op.
    pub(super) fn execute(&mut self, accumulates: bool, before_backward: impl Fn(&Self)) {
        let (cx, training) = (self.cx, self.training);
        if let Some(cut) = &self.spread.cut {
            cut.prepare(cx);
        }
        let first_storage = cx.next_storage();
        let begin = cx.position();
        let autocast = self.autocast();
        let Runs::Model(model, task) = self.runs else { return };
        self.locals.kept.clear();
        let batch = &*self.locals.batch.get_or_insert_with(|| model.batch());
        if training.use_cache {
            drop(cx.replace_past(Some(Past::default())));
        }
        let ddp = self.spread.ddp.as_deref();
        let together = self.spread.together.as_deref();
        let replica = self.spread.replica.clone();
        let cast = self.spread.cut.as_ref().and_then(|cut| cut.before_forward(cx, Some(batch), self.reduces));
        let whole = self.spread.whole;
        let mut past = Vec::new();
        let offloading = match training.activation_offloading {
            ActivationOffloading::None => Offloading::None,
            ActivationOffloading::SaveOnCpu => Offloading::SaveOnCpu,
            ActivationOffloading::OffloadActivations => Offloading::Stashed,
            ActivationOffloading::CheckpointInputs => Offloading::Checkpoints,
        };
        let run = || {
            if let Some(together) = together {
                together.before_forward(cx);
            }
            if let Some(replica) = &replica {
                replica.before_forward(cx);
            }
            let forward = || model.forward(cast.as_ref().unwrap_or(batch));
            let output = if whole { cx.within(ModuleId::ROOT, forward) } else { forward() };
            let mut output = match ddp {
                Some(ddp) => {
                    let (loss, held) = ddp.outputs(output.loss, output.held);
                    Output { loss, held }
                }
                None => output,
            };
            if let Some(together) = together {
                let (loss, held) = together.outputs(cx, output.loss, output.held);
                output = Output { loss, held };
            }
            if let Some(replica) = &replica {
                drop((output.held, cx.replace_past(None)));
                output = Output { loss: replica.outputs(output.loss), held: Vec::new() };
            }
            // `past_key_values` of the model's output; DDP looks for tensors in tuples, lists and dicts only.
            past.extend(cx.replace_past(None).into_iter().flat_map(Past::into_tensors));
            match cx.loss_rules().smoothing {
                Smoothing::Outside => smoothed(output, batch.labels(), task),
                Smoothing::None | Smoothing::InLoss => output,
            }
        };
        let Output { mut loss, held } = cx.offloading(offloading, || cx.with_autocast(autocast, run));
        self.locals.kept = model.kept();
        drop(cast);
        if replica.is_some() {
            self.locals.batch = None;
        }
        // Of what is a cache, and no tuple, list or dict, `recursively_apply` of `accelerate/utils/operations.py` casts nothing.
        let mut held = if self.trainer.is_some() && autocast.is_some() { in_full(held) } else { held };
        held.extend(past);
        let forward = begin..cx.position();
        self.locals.graph.clear();
        if let Some(trainer) = &self.trainer {
            // The Trainer's name of the last loss is taken by the new one after backward.
            loss = match cx.loss_rules().head {
                HeadLoss::FusedLmHead { .. } => {
                    let mask = self.locals.batch.as_ref().and_then(Batch::mask);
                    trainer.tiled_loss(&held, mask).unwrap_or(loss)
                }
                _ => trainer.loss(loss),
            };
        } else {
            self.locals.loss = None;
        }
        self.locals.outputs = held;
        if !training.keep_outputs {
            self.locals.outputs.clear();
        }
        let cut = self.spread.cut.clone();
        let engine = cut.as_ref().and_then(|cut| cut.engine());
        let whole_loss = self.trainer.as_ref().map(|_| loss.clone());
        // `accelerate` divides whatever the number is.
        let ahead = training.trainer == Whose::NanoGpt && replica.is_none();
        if (training.accumulation > 1 || whole_loss.is_some() || ahead) && engine.is_none() && replica.is_none() {
            loss = ops::div_scalar(&loss);
        }
        if ahead {
            // `X, Y = get_batch('train')`
            self.locals.batch = Some(model.batch());
        }
        let root = self.scaler.as_mut().map_or_else(|| loss.clone(), |scaler| scaler.scale(&loss));
        // The name holds the loss and with it the graph's nodes: a leaf that the forward made for itself lives on with
        // its gradient. With adapters the reference rows let go of the graph.
        let named = whole_loss.as_ref().unwrap_or(&loss);
        let kept_loss = (named.storage_id(), named.dtype());
        // The name of the divided loss of `accelerate`, until its backward returns.
        let divided = if whole_loss.is_some() {
            Some(loss)
        } else {
            self.locals.loss = Some(if training.lora.is_some() { loss.detach() } else { loss.clone() });
            drop(loss);
            None
        };
        let settled = forward.end..cx.position();

        before_backward(self);
        let begin = cx.position();
        match engine {
            // `engine.backward(loss)`: divided by the accumulation, and scaled.
            Some(engine) => {
                let divided = ops::div_scalar(&root);
                let scaled = if engine.scales() { ops::mul_scalar(&divided) } else { divided.clone() };
                drop(root);
                backward(&scaled);
                engine.after_backward(cx);
                drop(scaled);
                drop(divided);
            }
            None => {
                if let Some(together) = together {
                    together.before_backward();
                }
                backward(&root);
                if let Some(together) = together {
                    together.after_backward(cx);
                }
                if let Some(replica) = &replica {
                    replica.after_backward(cx);
                }
                drop(root);
            }
        }
        drop(divided);
        if offloading == Offloading::Stashed {
            cx.leave_stash();
        }
        let backward = begin..cx.position();
        let mut left = backward.end..backward.end;
        if let Some(loss) = whole_loss {
            self.locals.loss = Some(loss.detach());
            left.start = cx.position();
            // With it goes the graph, and a leaf that the forward made for itself.
            drop(loss);
            left.end = cx.position();
        }

        // Kept outputs hold the graph, and whatever else it holds: no plain list of handles stands for that. A forward
        // that changed the model will not be repeated.
        let changed = cx.take_changed();
        if self.repeats == Repeats::Copied && !training.keep_outputs && !changed {
            let stretches = [forward, settled, backward, left];
            self.record(accumulates, first_storage, stretches, kept_loss);
        }
    }
}
