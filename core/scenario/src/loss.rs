//! Which models take which loss.

use super::{ModelSource, Scenario, Task};

impl Scenario {
    /// Whether the model takes a `loss_impl` other than `full`: the causal language models of Hugging Face do.
    pub fn takes_loss_impl(&self) -> bool {
        self.model.task == Task::CausalLm && !matches!(self.model.source, ModelSource::Family { .. })
    }

    /// Whether the model takes `label_smoothing`. An encoder-decoder does not: the Trainer needs decoder inputs in the
    /// data then, which is not modelled.
    pub fn takes_label_smoothing(&self) -> bool {
        use Task::{Contrastive, Forecasting, Seq2SeqLm, SpeechSeq2Seq};
        !matches!(self.model.task, Forecasting | Contrastive | Seq2SeqLm | SpeechSeq2Seq)
    }
}
