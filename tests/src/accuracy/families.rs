//! Every hand-written family against a recording of the real code (`corpus/families.jsonl`), at sizes that were not recorded.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Estimate, Phase, Run};
use plimsoll_core::scenario::HullModel;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::report::Page;

const FAMILIES: &str = include_str!("../../corpus/families.jsonl");

/// A small model of a family, and how it was recorded.
#[derive(Clone, Debug, Deserialize)]
pub struct FamilyRow {
    /// The family, and behind `@` which of two of this name.
    pub name: String,
    /// What is trained.
    pub task: String,
    /// `[model]` without the task.
    pub model: Map<String, Value>,
    /// Axes as `plimsoll trace` was given them.
    pub axes: Vec<String>,
    /// How many tokens a sample has, where that is no axis: its program is another one for other lengths.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Recipes in which the two are known to differ, and why.
    #[serde(default)]
    pub differs: Map<String, Value>,
}

/// A recipe both are asked in.
#[derive(Clone, Copy, Debug)]
pub struct FamilyRecipe {
    /// What the table calls it.
    pub name: &'static str,
    /// `[training]`.
    pub training: &'static str,
    /// `[parallel]`, where there are several cards.
    pub parallel: Option<&'static str>,
    /// Samples.
    pub batch: u64,
    /// Tokens or nodes, and what a decoder is to say.
    pub lengths: (u64, u64),
}

/// Recipes over optimizers, accumulation, where gradients go, checkpointing, and several cards.
pub const RECIPES: [FamilyRecipe; 13] = [
    FamilyRecipe { name: "AdamW", training: r#"{"optimizer":"adamw"}"#, parallel: None, batch: 3, lengths: (56, 72) },
    FamilyRecipe {
        name: "SGD, 2 micro-batches",
        training: r#"{"optimizer":"sgd-momentum","accumulation":2,"clip_grad_norm":false}"#,
        parallel: None,
        batch: 5,
        lengths: (80, 48),
    },
    FamilyRecipe {
        name: "fused Adam, gradients zeroed",
        training: r#"{"optimizer":"adam","optimizer_impl":"fused","zero_grad":"zero","accumulation":3}"#,
        parallel: None,
        batch: 2,
        lengths: (40, 64),
    },
    FamilyRecipe {
        name: "Adafactor, gradients until the next forward",
        training: r#"{"optimizer":"adafactor","zero_grad_at":"before-forward"}"#,
        parallel: None,
        batch: 7,
        lengths: (72, 56),
    },
    FamilyRecipe {
        name: "checkpointing",
        training: r#"{"optimizer":"adamw","checkpointing":"full","accumulation":2}"#,
        parallel: None,
        batch: 4,
        lengths: (64, 40),
    },
    FamilyRecipe {
        name: "DDP, 2 micro-batches",
        training: r#"{"optimizer":"adamw","accumulation":2}"#,
        parallel: Some(r#"{"gpus":4,"strategy":"ddp","ddp":{"broadcast_buffers":false}}"#),
        batch: 4,
        lengths: (88, 56),
    },
    FamilyRecipe {
        name: "FSDP2",
        training: r#"{"optimizer":"adamw","accumulation":2}"#,
        parallel: Some(r#"{"gpus":4,"strategy":"fsdp2"}"#),
        batch: 5,
        lengths: (56, 80),
    },
    FamilyRecipe {
        name: "FSDP2, checkpointing",
        training: r#"{"optimizer":"sgd-momentum","checkpointing":"full"}"#,
        parallel: Some(r#"{"gpus":8,"strategy":"fsdp2","fsdp":{"sync_every_micro_batch":false}}"#),
        batch: 3,
        lengths: (72, 48),
    },
    FamilyRecipe {
        name: "FSDP1",
        training: r#"{"optimizer":"adamw","accumulation":2}"#,
        parallel: Some(r#"{"gpus":4,"strategy":"fsdp1"}"#),
        batch: 5,
        lengths: (56, 80),
    },
    FamilyRecipe {
        name: "FSDP1, original parameters",
        training: r#"{"optimizer":"adam","accumulation":2}"#,
        parallel: Some(
            r#"{"gpus":4,"strategy":"fsdp1","fsdp":{"use_orig_params":true,"backward_prefetch":"post","sync_every_micro_batch":false}}"#,
        ),
        batch: 3,
        lengths: (88, 48),
    },
    FamilyRecipe {
        name: "FSDP1, SHARD_GRAD_OP",
        training: r#"{"optimizer":"sgd-momentum","clip_grad_norm":false}"#,
        parallel: Some(r#"{"gpus":8,"strategy":"fsdp1","fsdp":{"sharding_strategy":"shard-grad-op","wrap":"root"}}"#),
        batch: 6,
        lengths: (64, 72),
    },
    FamilyRecipe {
        name: "FSDP1, NO_SHARD",
        training: r#"{"optimizer":"adamw","accumulation":2}"#,
        parallel: Some(r#"{"gpus":2,"strategy":"fsdp1","fsdp":{"sharding_strategy":"no-shard"}}"#),
        batch: 4,
        lengths: (80, 56),
    },
    FamilyRecipe {
        name: "FSDP1, checkpointing",
        training: r#"{"optimizer":"adamw","checkpointing":"full"}"#,
        parallel: Some(r#"{"gpus":8,"strategy":"fsdp1","fsdp":{"backward_prefetch":"none"}}"#),
        batch: 3,
        lengths: (72, 48),
    },
];

/// What came of one question to both.
#[derive(Clone, Debug)]
pub enum FamilyOutcome {
    /// Every phase is the same.
    Same,
    /// The first phase that differs, ours and the recording's, and the peaks.
    Differs(String),
    /// One of the two refuses.
    Refused(String),
}

/// Every row.
///
/// # Errors
/// A line that is none.
pub fn families() -> anyhow::Result<Vec<FamilyRow>> {
    let read =
        |(i, line)| serde_json::from_str(line).with_context(|| format!("tests/corpus/families.jsonl, line {}", i + 1));
    FAMILIES.lines().enumerate().map(read).collect()
}

impl FamilyRow {
    /// Where its recording lies.
    pub fn path(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/hulls/families");
        folder.join(format!("{}.hull", self.name))
    }

    /// The recording; `None` where there is none.
    pub fn recording(&self) -> Option<Vec<u8>> {
        std::fs::read(self.path()).ok()
    }

    /// Asks the family and the recording.
    pub fn compared(&self, recording: &[u8], recipe: &FamilyRecipe) -> FamilyOutcome {
        let training: Value = serde_json::from_str(recipe.training).unwrap_or_default();
        let mut training = training;
        training["precision"] = "bf16-amp".into();
        let asked = |model: Value, input: Value, caches: bool| {
            let mut training = training.clone();
            if caches {
                training["use_cache"] = true.into();
            }
            let mut scenario = json!({
                "model": model, "input": input, "training": training,
                "device": { "gpu": "h200", "workspaces": false },
            });
            if let Some(parallel) = recipe.parallel {
                scenario["parallel"] = serde_json::from_str(parallel).unwrap_or_default();
            }
            Run::new(&Scenario::from_value(&scenario)?).map(|run| Came::of(run.estimate()))
        };
        let axes: Vec<&str> = self.axes.iter().filter_map(|axis| axis.split('=').next()).collect();
        // A graph is one sample of as many nodes.
        let graph = axes.first() == Some(&"S");
        let (seq, target) = recipe.lengths;
        let mut input = json!({ "batch": if graph { 1 } else { recipe.batch } });
        let mut hull = Map::new();
        hull.insert("hull".to_owned(), HullModel::content(recording).into());
        if axes.contains(&"S") {
            input["seq"] = seq.into();
            if !graph {
                hull.insert("S".to_owned(), seq.into());
            }
        }
        if let Some(seq) = self.seq {
            input["seq"] = seq.into();
        }
        if axes.contains(&"T") {
            input["target_seq"] = target.into();
            hull.insert("T".to_owned(), target.into());
        }
        let mut native = self.model.clone();
        native.insert("task".to_owned(), self.task.clone().into());
        if self.task == "image-classification"
            && let Some(side) = self.image()
        {
            input["image"] = side.into();
        }
        let of_hull = asked(Value::Object(hull), json!({ "batch": if graph { seq } else { recipe.batch } }), false);
        // A language model was recorded as its configuration has it, keys and values returned; a family that returns none says so.
        let native = Value::Object(native);
        let caches = self.task.ends_with("lm") && training.get("checkpointing").is_none();
        let of_family = match asked(native.clone(), input.clone(), caches) {
            Err(error) if error.key == "training.use_cache" => asked(native, input, false),
            other => other,
        };
        match (of_family, of_hull) {
            (Err(error), _) => FamilyOutcome::Refused(format!("the family: {error}")),
            (_, Err(error)) => FamilyOutcome::Refused(format!("the recording: {error}")),
            (Ok(ours), Ok(theirs)) => difference(&ours, &theirs).map_or(FamilyOutcome::Same, FamilyOutcome::Differs),
        }
    }

    /// The side of the images it was recorded with.
    fn image(&self) -> Option<u64> {
        if self.model.contains_key("family") {
            return Some(224);
        }
        self.model.get("hf")?.get("image_size").and_then(Value::as_u64).or(Some(64))
    }
}

/// Name, peak and end of every phase, and the highest of all, in bytes.
struct Came {
    phases: Vec<(String, u64, u64)>,
    peak: u64,
}

impl Came {
    fn of(estimate: &Estimate) -> Self {
        let phase = |p: &Phase| (p.name.as_str().to_owned(), p.peak_requested.get(), p.end_requested.get());
        Self { phases: estimate.phases.iter().map(phase).collect(), peak: estimate.peak.requested.get() }
    }
}

/// The first phase in which the two differ.
fn difference(ours: &Came, theirs: &Came) -> Option<String> {
    let (a, b) = (&ours.phases, &theirs.phases);
    let at = (0..a.len().max(b.len())).find(|at| a.get(*at) != b.get(*at))?;
    let (mine, their) = (a.get(at), b.get(at));
    Some(format!("phase {at}: {mine:?}, recorded {their:?}; peak {}, recorded {}", ours.peak, theirs.peak))
}

/// Writes the section.
///
/// # Errors
/// As [`families`].
pub fn section(page: &mut Page) -> anyhow::Result<()> {
    page.line("\n## Every family against a recording of the real code\n");
    page.line(
        "A small model of each hand-written family that was recorded, from the library's own code by `plimsoll trace` ([hull.md](hull.md)), and the family's\n\
         own estimate, at batches and lengths that were not recorded, in bf16-amp: how many of these recipes are the same to the byte in every\n\
         phase. `tests/tools/hulls/families.py` records them; the test `families` holds each to what stands here.\n",
    );
    let titles = ["family", "task", "recipes", "exact", "what differs"];
    page.head(&titles, &["family", "task", "what differs"]);
    for row in families()? {
        let Some(recording) = row.recording() else { continue };
        let (mut exact, mut asked, mut words) = (0, 0, Vec::new());
        for recipe in &RECIPES {
            match row.compared(&recording, recipe) {
                FamilyOutcome::Same => (exact, asked) = (exact + 1, asked + 1),
                FamilyOutcome::Differs(_) => {
                    asked += 1;
                    let why = row.differs.get(recipe.name).and_then(Value::as_str).unwrap_or("not explained");
                    words.push(format!("{}: {why}", recipe.name));
                }
                // What neither has, as checkpointing of a family without layers, is no comparison.
                FamilyOutcome::Refused(_) => {}
            }
        }
        let cells = [row.name.clone(), row.task.clone(), asked.to_string(), exact.to_string(), words.join("; ")];
        page.row(&cells);
    }
    Ok(())
}
