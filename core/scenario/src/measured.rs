//! Scenarios that are only measured: what the engine does not estimate, PyTorch can run all the same.

use plimsoll_catalog as catalog;
use plimsoll_catalog::families;
use plimsoll_ground::quoted;
use plimsoll_ground::{Error, Result};
use serde_json::{Map, Value};

use super::{Family, ModelSource, Scenario, Task, parallel};

/// What a scenario may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only what the engine estimates.
    Estimated,
    /// Whatever can be measured.
    Measured,
}

impl Scenario {
    /// Reads a scenario that will be measured: like [`Scenario::from_value`], but it may name what the engine does not
    /// estimate: any Hugging Face `model_type` with any task and input. The task of such a model is guessed from its
    /// config's `architectures` when it is not given.
    ///
    /// ```
    /// use plimsoll_scenario::Scenario;
    /// use serde_json::json;
    ///
    /// let value = json!({ "model": { "hf": { "model_type": "perceiver", "architectures": ["PerceiverForMaskedLM"] } } });
    /// assert!(Scenario::from_value(&value).is_err());
    /// let scenario = Scenario::from_value_to_measure(&value)?;
    /// assert_eq!(scenario.model.task.as_str(), "masked-lm");
    /// assert_eq!(scenario.estimated().unwrap_err().key, "model.hf.model_type");
    /// # Ok::<(), plimsoll_ground::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Scenario::from_value`], but for what is named above.
    pub fn from_value_to_measure(value: &Value) -> Result<Self> {
        Self::read(value, Scope::Measured)
    }

    /// The row the engine estimates it by: it knows the model and what is trained on it, and the row takes the recipe.
    ///
    /// # Errors
    /// When it does not: a scenario of [`Scenario::from_value_to_measure`] may be only measured.
    pub fn estimated(&self) -> Result<&'static Family> {
        let family = self.known()?;
        self.within_row(family)?;
        parallel::estimated(self)?;
        Ok(family)
    }

    /// The row of a model that the engine knows, with the task that is trained on it.
    fn known(&self) -> Result<&'static Family> {
        let yet = |key: &str, what: String| {
            Err(Error::new(key, format!("the engine does not estimate {what} yet"), "measure it with plimsoll probe"))
        };
        let source = &self.model.source;
        match source.estimated_family() {
            Some(family) if family.tasks.contains(&self.model.task) => Ok(family),
            Some(family) => yet("model.task", format!("{} for {}", self.model.task, family.name)),
            None => match source {
                // Every hull has the one row.
                ModelSource::Hull(_) => yet("model.hull", "this hull".to_owned()),
                ModelSource::Family { name, .. } => yet("model.family", format!("the family {}", quoted(name))),
                ModelSource::Catalog(id) => yet("model.catalog", quoted(id)),
                ModelSource::HuggingFace(_) => {
                    let name = source.model_type().unwrap_or_default();
                    yet("model.hf.model_type", format!("the model_type {}", quoted(name)))
                }
            },
        }
    }
}

impl ModelSource {
    /// `model_type` of a Hugging Face model.
    pub fn model_type(&self) -> Option<&str> {
        match self {
            Self::HuggingFace(config) => config.get("model_type")?.as_str(),
            Self::Catalog(id) => Some(catalog::model(id)?.model_type),
            Self::Family { .. } | Self::Hull(_) => None,
        }
    }

    /// The row of a model that the engine does not know: what its config leads one to expect.
    pub(super) fn measured_family(&self) -> Option<&'static Family> {
        match self {
            Self::Family { name, .. } => families::own(name),
            Self::Hull(_) => Some(&families::HULL),
            _ => Some(families::unlisted(guessed_task(self.keys()?))),
        }
    }
}

/// The task a config was most likely made for. transformers names its classes by it (`BertForMaskedLM`).
fn guessed_task(config: &Map<String, Value>) -> Task {
    const ENDINGS: &[(&str, Task)] = &[
        ("ForCausalLM", Task::CausalLm),
        ("LMHeadModel", Task::CausalLm),
        ("ForMaskedLM", Task::MaskedLm),
        ("ForPreTraining", Task::MaskedLm),
        ("ForSequenceClassification", Task::SequenceClassification),
        ("ForImageClassification", Task::ImageClassification),
        ("ForImageClassificationWithTeacher", Task::ImageClassification),
        ("ForSpeechSeq2Seq", Task::SpeechSeq2Seq),
        ("ForConditionalGeneration", Task::Seq2SeqLm),
    ];
    let name = config.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str).unwrap_or_default();
    // Speech models are "ForConditionalGeneration" like the text models; their configs have a mel spectrogram.
    let speech = config.contains_key("num_mel_bins");
    match ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)) {
        Some((_, Task::Seq2SeqLm)) if speech => Task::SpeechSeq2Seq,
        Some((_, task)) => *task,
        None if config.contains_key("vision_config") && config.contains_key("text_config") => Task::Contrastive,
        None if speech => Task::SpeechSeq2Seq,
        None if config.get("is_encoder_decoder") == Some(&Value::Bool(true)) => Task::Seq2SeqLm,
        None if config.contains_key("num_channels") && !config.contains_key("vocab_size") => Task::ImageClassification,
        None => Task::CausalLm,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Link;

    fn measured(value: Value) -> Scenario {
        let scenario = Scenario::from_value_to_measure(&value).unwrap_or_else(|e| panic!("{e}: {value}"));
        assert_eq!(Scenario::from_value_to_measure(&scenario.to_value()), Ok(scenario.clone()));
        let link = Link::encode(&scenario);
        let table = Link::to_value(&link).unwrap_or_else(|e| panic!("{e}: {link}"));
        assert_eq!(Scenario::from_value_to_measure(&table), Ok(scenario.clone()), "{link}");
        scenario
    }

    fn refused(value: Value) -> String {
        Scenario::from_value_to_measure(&value).unwrap_err().to_string()
    }

    fn hf(config: Value) -> Value {
        json!({ "model": { "hf": config } })
    }

    #[test]
    fn the_engine_says_that_it_does_not_estimate_it() {
        for (value, key) in [
            (hf(json!({ "model_type": "perceiver" })), "model.hf.model_type"),
            (json!({ "model": { "hf": { "model_type": "llama" }, "task": "masked-lm" } }), "model.task"),
            (json!({ "model": { "catalog": "gpt2", "task": "masked-lm" } }), "model.task"),
        ] {
            assert!(Scenario::from_value(&value).is_err(), "{value}");
            let error = measured(value).estimated().unwrap_err();
            assert_eq!(error.key, key);
            assert!(error.problem.contains("the engine does not estimate"), "{error}");
        }
    }

    #[test]
    fn what_is_estimated_reads_the_same() {
        for value in [
            json!({ "model": { "catalog": "gpt2" }, "input": { "batch": 4 } }),
            hf(json!({ "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"] })),
            json!({ "model": { "family": "nbeats", "stacks": 3 } }),
        ] {
            assert_eq!(Ok(measured(value.clone())), Scenario::from_value(&value));
        }
        // And is refused the same.
        assert!(
            refused(json!({ "model": { "catalog": "gpt2" }, "input": { "seq": 1025 } })).contains("1024 positions")
        );
        assert!(refused(json!({ "model": { "family": "gat", "variant": "resnet50" } })).starts_with("model.variant"));
        assert!(refused(json!({ "model": { "family": "gta" } })).contains("did you mean \"gat\""));
        assert!(refused(json!({ "model": { "family": "gat", "task": "causal-lm" } })).starts_with("model.task"));
        assert!(refused(hf(json!({ "hidden_size": 4 }))).contains("model_type: it is missing"));
        assert!(refused(json!({ "model": { "family": "gat" }, "input": { "bacth": 4 } })).contains("\"batch\""));
    }

    #[test]
    fn words_of_a_family() {
        let scenario = measured(json!({ "model": { "family": "resnet", "variant": "resnet18", "num_classes": 10 } }));
        assert_eq!(
            scenario.to_value()["model"].to_string(),
            r#"{"family":"resnet","task":"image-classification","variant":"resnet18","num_classes":10}"#
        );
        assert_eq!((scenario.input.seq, scenario.input.image), (None, Some(224)));
        assert_eq!(Link::encode(&scenario), "?family=resnet&variant=resnet18&num_classes=10");
        assert_eq!(
            refused(json!({ "model": { "family": "resnet", "variant": "resnet51" } })),
            "model.variant: \"resnet51\" is not one of its values; did you mean \"resnet50\"; use one of resnet18, \
             resnet34, resnet50, resnet101, resnet152, resnext50_32x4d, resnext101_32x8d, resnext101_64x4d, \
             wide_resnet50_2, wide_resnet101_2"
        );
        assert!(refused(json!({ "model": { "family": "resnet", "variant": 50 } })).contains("as \"resnet18\""));
    }

    #[test]
    fn tasks_are_guessed() {
        let task = |config: Value| measured(hf(config)).model.task;
        let of = |name: &str| task(json!({ "model_type": "any", "architectures": [name] }));
        assert_eq!(of("BertForMaskedLM"), Task::MaskedLm);
        assert_eq!(of("BertForSequenceClassification"), Task::SequenceClassification);
        assert_eq!(of("T5ForConditionalGeneration"), Task::Seq2SeqLm);
        assert_eq!(of("DeiTForImageClassificationWithTeacher"), Task::ImageClassification);
        assert_eq!(of("OPTForCausalLM"), Task::CausalLm);
        let whisper =
            json!({ "model_type": "any", "architectures": ["WhisperForConditionalGeneration"], "num_mel_bins": 80 });
        assert_eq!(task(whisper), Task::SpeechSeq2Seq);
        assert_eq!(task(json!({ "model_type": "any", "vision_config": {}, "text_config": {} })), Task::Contrastive);
        assert_eq!(task(json!({ "model_type": "any", "is_encoder_decoder": true })), Task::Seq2SeqLm);
        assert_eq!(task(json!({ "model_type": "any", "num_channels": 3 })), Task::ImageClassification);
        assert_eq!(task(json!({ "model_type": "any", "architectures": "none" })), Task::CausalLm);
    }

    #[test]
    fn a_model_nobody_knows_takes_any_input() {
        let all = json!({ "batch": 2, "seq": 64, "target_seq": 32, "image": 96, "attention_mask": "padded" });
        let scenario = measured(json!({ "model": { "hf": { "model_type": "any" } }, "input": all }));
        assert_eq!(scenario.to_value()["input"], all);
        let image =
            measured(json!({ "model": { "hf": { "model_type": "any" }, "task": "image-classification" } })).input;
        assert_eq!((image.seq, image.image), (None, Some(224)));
        let pair = measured(
            json!({ "model": { "hf": { "model_type": "any" }, "task": "seq2seq-lm" }, "input": { "seq": 64 } }),
        );
        assert_eq!((pair.input.seq, pair.input.target_seq), (Some(64), Some(64)));
        let speech =
            json!({ "model": { "hf": { "model_type": "any" }, "task": "speech-seq2seq" }, "input": { "seq": 1024 } });
        assert_eq!(measured(speech).input.seq, Some(1024));
    }
}
