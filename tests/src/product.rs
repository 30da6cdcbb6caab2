//! Every row times every lever: what a scenario may ask of every architecture, one lever at a time.

use plimsoll_core::Result;
use plimsoll_core::catalog::families::{Family, Inputs, families};
use plimsoll_core::scenario::{Change, Kind, Lever, Mode, ParallelStrategy, Scenario, at, levers};
use serde_json::{Value, json};

use super::small;

/// One question: a scenario, and a value for one of its levers.
#[derive(Clone, Debug)]
pub struct Question {
    /// The row.
    pub family: &'static Family,
    /// What the lever is changed in.
    pub start: Scenario,
    /// The lever.
    pub lever: &'static Lever,
    /// What is asked of it.
    pub value: Value,
}

/// Every question.
///
/// # Errors
/// A row without a small model.
pub fn questions() -> anyhow::Result<Vec<Question>> {
    let mut questions = Vec::new();
    for family in families() {
        for start in starts(family)? {
            for lever in levers().filter(|lever| lever.section() != "model") {
                let ask = |value| Question { family, start: start.clone(), lever, value };
                questions.extend(values(lever).into_iter().map(ask));
            }
        }
    }
    Ok(questions)
}

/// A small model of the row as it comes, under adapters, quantized, and in inference, as far as it takes these.
fn starts(family: &Family) -> anyhow::Result<Vec<Scenario>> {
    let refused = |error| anyhow::anyhow!("{}: {error}", family.name);
    let model = small::model(family).ok_or_else(|| anyhow::anyhow!("no small model of {}", family.name))?;
    let input = match family.inputs {
        inputs if inputs.has_sequence() => json!({ "seq": 8 }),
        Inputs::Image { fixed: false, .. } => json!({ "image": small::side(family) }),
        _ => json!({}),
    };
    let scenario = json!({ "model": model, "input": input, "device": { "gpu": "rtx-4090" } });
    let plain = Scenario::from_value(&scenario).map_err(refused)?;
    let mut starts = vec![plain.clone()];
    for change in [Change::Adapters(plimsoll_core::scenario::ADAPTERS), Change::Qlora, Change::Mode(Mode::Inference)] {
        starts.extend(change.apply(&plain).ok());
    }
    use ParallelStrategy as S;
    for strategy in [S::Ddp, S::Fsdp2, S::Fsdp1, S::Zero2, S::Zero3] {
        let parallel = json!({ "gpus": 2, "strategy": strategy.as_str() });
        let scenario = json!({
            "model": model, "input": input, "device": { "gpu": "rtx-4090" }, "parallel": parallel,
            "training": { "precision": "fp32", "optimizer": if strategy == S::Ddp { "sgd-momentum" } else { "adamw" } },
            // Without a share, nothing is ever collected.
            "allocator": { "per_process_memory_fraction": 0.9 },
        });
        starts.extend(Scenario::from_value(&scenario).ok());
    }
    Ok(starts)
}

/// Every word, both values of a flag, two of whatever there are many of.
fn values(lever: &Lever) -> Vec<Value> {
    match (lever.path, lever.row.kind) {
        // Sides that patches and stages of small models can be cut into.
        (at::input::image, _) => vec![json!(64), json!(96)],
        (_, Kind::Id) => vec![json!("h200"), json!("t4")],
        (_, kind) => kind.samples(),
    }
}

impl Question {
    /// The scenario with that value; what was left at its default follows.
    ///
    /// # Errors
    /// When it is refused.
    pub fn asked(&self) -> Result<Scenario> {
        Change::Set(self.lever, self.value.clone()).apply(&self.start)
    }
}
