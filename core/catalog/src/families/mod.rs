//! What every architecture can do: one row each. The forward behind a row stands in the crate of the models, which has
//! one function for each [`Architecture`].
//!
//! A scenario may say what its model's row takes, and nothing else: what a row does not take is refused by it, never
//! ignored. Above the models nobody asks for a name; they ask the row.

mod architecture;
mod batch_norms;
mod came;
mod experts;
mod hull;
mod inputs;
mod key;
mod liger;
mod near;
mod own;
mod sizes;
mod task;
mod transformers;
mod unlisted;
mod wide_tables;

use crate::software::{Rule, Rules, rules};

pub use architecture::Architecture;
pub use batch_norms::BatchNorms;
pub use came::Came;
pub use experts::{ExpertNames, ExpertPart, Experts, Once, Rescales};
pub use hull::HULL;
pub use inputs::Inputs;
pub use key::{FamilyKey, FamilyKeyKind};
pub use liger::{Liger, LigerGate};
pub use near::near;
pub use own::OWN;
pub use sizes::Size;
pub use task::Task;
pub use transformers::TRANSFORMERS;
pub use unlisted::unlisted;
pub use wide_tables::WideTables;

/// The longest sequence a family of our own may be made for, and the longest a scenario may have: far above anything
/// trained, in tokens or nodes.
pub const LONGEST: u64 = 1 << 24;

/// One architecture: what the rest of a scenario may say of it, and what anybody above the models must know of it.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The `model_type` of a `config.json`, or what stands in `model.family`.
    pub name: &'static str,
    /// Whose forward runs; `None` for a model that nobody listed, which can be measured but not estimated.
    pub architecture: Option<Architecture>,
    /// Whose class it is.
    pub origin: Origin,
    /// Which release of transformers had it first.
    pub came: Came,
    /// What can be trained on it; the first is the default.
    pub tasks: &'static [Task],
    /// What one sample of its input is.
    pub inputs: Inputs,
    /// Whether it takes an attention mask.
    pub has_mask: bool,
    /// How long a sequence may be.
    pub positions: Positions,
    /// How many layers one forward runs through: a sum, each part under the first of its keys that the config has. A list
    /// counts as the sum of its numbers. Empty where nothing says.
    pub layers: &'static [&'static [&'static str]],
    /// Whether its class has gradient checkpointing.
    pub checkpointing: Checkpoints,
    /// Whether a layer takes one tensor with a gradient and returns one value: a checkpoint that keeps its input in the machine's memory
    /// fails on more.
    pub one_to_one: OneToOne,
    /// Whether its attention can be eager; else it calls `scaled_dot_product_attention` itself, or has none.
    pub eager: bool,
    /// Whether no class of it calls `scaled_dot_product_attention` (`_supports_sdpa` is false), or none did before [`Family::sdpa`]: its
    /// attention is eager whatever a scenario says.
    pub only_eager: bool,
    /// Since when it calls `scaled_dot_product_attention`; before, its attention was eager alone. `None`: as far back as is known.
    pub sdpa: Option<&'static Rule>,
    /// Since when it no longer does. `None`: it still does.
    pub sdpa_until: Option<&'static Rule>,
    /// Whether its forward returns keys and values in training where `use_cache` is on (`past_key_values`), and those are followed.
    pub caches: bool,
    /// Whether torchtune's and Liger's losses can stand in the place of its own, which then takes logits as the head makes them.
    pub loss_in_parts: bool,
    /// Whether TRL's fused output head can, which asks `base_model` for the last hidden state and does itself what the model does to its logits.
    pub loss_in_tiles: bool,
    /// What Liger's kernels take the place of; `None` where it has none for the model, or where they are not followed.
    pub liger: Option<&'static Liger>,
    /// When its layers are given tables of positions in float32, whatever they compute in: what casts a module's inputs casts those.
    pub wide_tables: WideTables,
    /// Whether it has a tower for images on the card that does not run: of what it takes the text alone is estimated.
    pub tower: bool,
    /// Whether it has linear layers that adapters can sit on.
    pub adapters: bool,
    /// What bitsandbytes leaves as it is beside the output head, by the end of its path (`get_modules_to_not_convert` in
    /// transformers' `quantizers/base.py`); `None` where transformers does not load the model, so that nothing quantizes it, or where it
    /// makes another model of it first (`MODULES_TO_PATCH_FOR_QUANTIZATION`).
    pub unquantized: Option<&'static [&'static str]>,
    /// Whether it normalises over the batch.
    pub batch_norms: BatchNorms,
    /// Whether its linears are given four dimensions, where bitsandbytes' eight-bit product takes two or three.
    pub wide_linears: bool,
    /// A parameter of it that has no dimensions: neither FSDP nor DeepSpeed takes one.
    pub scalar: Option<&'static str>,
    /// Of a mixture of experts.
    pub experts: Option<Experts>,
    /// The sizes of its config that can be edited by hand.
    pub sizes: &'static [Size],
}

/// Whose class a model is.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// Hugging Face's transformers, described by a `config.json`.
    Transformers,
    /// One of the families of our own, described by keys beside `family`.
    Own {
        /// One line for people.
        about: &'static str,
        /// Its keys, in the order they are written.
        keys: &'static [FamilyKey],
    },
}

/// How long a sequence may be.
#[derive(Clone, Copy, Debug)]
pub struct Positions {
    /// The config's keys that hold the longest sequence, in the order transformers looks at them; a key of a nested
    /// config is written with a dot, `text_config.max_position_embeddings`. Empty where a sample has no sequence.
    pub keys: &'static [&'static str],
    /// The longest sequence of a config that does not say, as its class has it; `None` where there is no such number.
    pub default: Option<u64>,
    /// Whether positions are a table of parameters, so that a longer sequence cannot run at all.
    pub learned: bool,
    /// Whether they begin behind the padding token's id: that many and one more stand for no token.
    pub behind_padding: bool,
}

/// Whether a model's layers can be checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoints {
    /// They can.
    Always,
    /// They can, but not under adapters: `enable_input_require_grads()`, which a frozen base needs, fails on the class.
    WithoutAdapters,
    /// Its class has no gradient checkpointing.
    Never,
}

/// Whether a layer takes one tensor with a gradient and returns one value.
#[derive(Clone, Copy, Debug)]
pub enum OneToOne {
    /// As far as any release is known.
    Always,
    /// As of a release.
    Since(&'static Rule),
    /// As of a release; before, where its attention was eager.
    SinceUnderSdpa(&'static Rule),
    /// Where the config has this size as 0; where it says nothing there is one.
    Without(&'static str),
    /// In none that is known.
    Never,
}

impl Positions {
    /// Where a sample has no sequence, or nothing says how long it may be.
    pub const NONE: Self = Self { keys: &[], default: None, learned: false, behind_padding: false };

    /// Positions that are computed: `default` is what the model was trained with.
    const fn computed(keys: &'static [&'static str], default: u64) -> Self {
        Self { keys, default: Some(default), ..Self::NONE }
    }

    /// Positions that are looked up in a table.
    const fn learned(keys: &'static [&'static str], default: u64) -> Self {
        Self { learned: true, ..Self::computed(keys, default) }
    }
}

impl Family {
    /// Whether it is one of the families of our own.
    pub const fn is_own(&self) -> bool {
        matches!(self.origin, Origin::Own { .. })
    }

    /// Whether it is a model nobody listed, of which only the task is guessed: it may take any input.
    pub const fn is_unlisted(&self) -> bool {
        self.architecture.is_none()
    }

    /// Whether it has a class that calls `scaled_dot_product_attention`.
    pub fn calls_sdpa(&self, software: Rules) -> bool {
        let until = self.sdpa_until.is_some_and(|until| software.has(until));
        self.sdpa.map_or(!self.only_eager, |since| software.has(since)) && !until
    }

    /// Whether its forward makes no cache in training whatever `use_cache` says ([`rules::NO_CACHE_IN_TRAINING`],
    /// [`rules::GEMMA_CACHES_IN_TRAINING`]).
    pub fn forgets_in_training(&self, software: Rules) -> bool {
        const THOSE: &[&str] = &[
            "llama",
            "mistral",
            "mixtral",
            "qwen2",
            "qwen2_moe",
            "gemma",
            "olmo",
            "phi",
            "phi3",
            "stablelm",
            "starcoder2",
            "bloom",
        ];
        let holds = software.has(&rules::NO_CACHE_IN_TRAINING) && !software.has(&rules::CACHE_IN_TRAINING);
        let hybrid = || ["gemma2", "gemma3_text"].contains(&self.name);
        holds && THOSE.contains(&self.name) || !software.has(&rules::GEMMA_CACHES_IN_TRAINING) && hybrid()
    }

    /// One line for people; empty but for families of our own.
    pub const fn about(&self) -> &'static str {
        match self.origin {
            Origin::Transformers => "",
            Origin::Own { about, .. } => about,
        }
    }

    /// The keys beside `family`; none but for families of our own.
    pub const fn keys(&self) -> &'static [FamilyKey] {
        match self.origin {
            Origin::Transformers => &[],
            Origin::Own { keys, .. } => keys,
        }
    }

    /// Whether head and loss can be computed part by part: torchtune's and Liger's losses are for transformers' decoders.
    pub fn computes_loss_in_parts(&self, task: Task) -> bool {
        task == Task::CausalLm && self.loss_in_parts
    }

    /// The same of tiles: TRL's fused output head.
    pub fn computes_loss_in_tiles(&self, task: Task) -> bool {
        task == Task::CausalLm && self.loss_in_tiles
    }

    /// Whether a text comes out of it in inference: then it is `generate`, else one forward.
    pub fn generates(&self, task: Task) -> bool {
        matches!(task, Task::CausalLm | Task::Seq2SeqLm | Task::SpeechSeq2Seq) && !self.is_own()
    }

    /// Modules that stay unquantized for this task, by the end of their path. A decoder's classifier has no bias: its weight
    /// is the last parameter, which `get_modules_to_not_convert` leaves alone. Before [`rules::BIASES_ARE_NO_MODULES`] that of other
    /// classifiers was left alone too, and the linear beside a masked model's tied bias.
    pub fn unquantized(&self, task: Task, software: Rules) -> Vec<&'static str> {
        let own: &[_] =
            if task == Task::SequenceClassification { &["score"] } else { self.unquantized.unwrap_or_default() };
        let biased: &[_] = if software.has(&rules::BIASES_ARE_NO_MODULES) {
            &[]
        } else {
            &["classifier", "classifier.out_proj", "classifier.1", "predictions.transform.dense", "lm_head.dense"]
        };
        [own, biased].concat()
    }
}

/// Every row that is estimated: Hugging Face's, then our own.
pub fn families() -> impl Iterator<Item = &'static Family> {
    TRANSFORMERS.iter().chain(OWN)
}

/// The row of this `model_type`.
pub fn of_type(model_type: &str) -> Option<&'static Family> {
    TRANSFORMERS.iter().find(|family| family.name == model_type)
}

/// The family of our own of this name.
pub fn own(name: &str) -> Option<&'static Family> {
    OWN.iter().find(|family| family.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::software::{Software, Version};

    #[test]
    fn every_row_has_a_forward_tasks_and_a_name_of_its_own() {
        for rows in [TRANSFORMERS, OWN] {
            let names: BTreeSet<&str> = rows.iter().map(|family| family.name).collect();
            assert_eq!(names.len(), rows.len());
        }
        for family in families() {
            assert!(family.architecture.is_some() && !family.tasks.is_empty(), "{}", family.name);
            assert_eq!(family.about().is_empty(), !family.is_own(), "{}", family.name);
            // What of a recorded model is quantized stands in the recording.
            let changed = family.is_own() && family.name != "hull" || family.name == "llama4_text";
            assert_eq!(family.unquantized.is_none(), changed, "{}", family.name);
        }
    }

    #[test]
    fn a_model_nobody_listed_takes_what_its_task_takes() {
        for task in Task::ALL {
            let family = unlisted(*task);
            assert!(family.is_unlisted() && family.tasks.first() == Some(task));
            assert_eq!(family.inputs, Inputs::of(*task));
        }
    }

    /// `get_keys_to_not_convert` of 4.57.1 and 5.17.0: a bias stood for its module once.
    #[test]
    fn a_classifier_is_quantized_since_biases_are_no_modules() {
        let left = |minor: (u16, u16), task| {
            let software = Software { transformers: Version::new(minor.0, minor.1), ..Software::default() };
            of_type("bert").map(|family| family.unquantized(task, Rules::of(&software)).contains(&"classifier"))
        };
        assert_eq!(left((4, 57), Task::SequenceClassification), Some(true));
        assert_eq!(left((5, 17), Task::SequenceClassification), Some(false));
    }
}
