//! The rows of `corpus/card.jsonl`: real PyTorch on real cards.

use std::path::Path;
use std::rc::Rc;

use anyhow::Context as _;
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Answers, Run};
use plimsoll_core::scenario::{HullModel, Mode};
use serde::Deserialize;
use serde_json::Value;

use super::cudnn;
use super::percent::percent;
use super::report::Page;
use super::statistics::Spread;

/// The compute capability of every card here.
const HOPPER: (u8, u8) = (9, 0);

const ROWS: &str = include_str!("../../corpus/card.jsonl");

/// One run, as it stands in the file.
#[derive(Clone, Debug, Deserialize)]
pub struct CardRun {
    /// Stable id.
    pub id: String,
    /// The model in words.
    pub name: String,
    /// What was run, in the scenario's own format.
    pub scenario: Value,
    /// What PyTorch counted.
    pub expected: OnCard,
    /// Why it is no run that the estimate speaks of.
    #[serde(default)]
    pub why: Option<Apart>,
}

/// What was read, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct OnCard {
    /// `max_memory_allocated`.
    pub allocated: u64,
    /// `max_memory_reserved`.
    pub reserved: u64,
    /// What the process held of the card at the end beside what PyTorch had reserved, as NVML tells of a process.
    #[serde(default)]
    pub beside: Option<u64>,
}

/// What a run's own data decided.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Apart {
    /// Gradients overflowed in fp16: the scaler skipped the first step or all of them, and optimizer states were made later or not.
    Scaler,
    /// Columns of activations were outliers for an eight-bit product, which took them in fp16.
    Outliers,
}

/// A kind of run, as the table has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// It trains, and cuDNN convolves no more than a stem.
    Training,
    /// A network of convolutions that trains.
    Convolutions,
    /// It generates, or runs forward.
    Inference,
    /// A recording of a model that no family was written for trains, and cuDNN convolves no more than a stem.
    Recorded,
    /// A recording of a network of convolutions trains.
    RecordedConvolutions,
    /// The second, as cuDNN itself plans its convolutions.
    Asked,
    /// The same of a recording.
    RecordedAsked,
    /// Its own data decided.
    Apart,
}

/// A run beside its estimate: the estimate's figures less what was read, as shares of that.
#[derive(Clone, Copy, Debug)]
pub struct OnCardError {
    /// Of which kind.
    pub group: Group,
    /// Of what is allocated.
    pub allocated: f64,
    /// Of what is reserved.
    pub reserved: f64,
    /// Of what the process holds, as far as it was read.
    pub process: Option<f64>,
    /// The first two where the driver lays every segment below the last.
    pub falling: [f64; 2],
}

/// Every row, in the order of the file.
///
/// # Errors
/// A line that is not a row, by number.
pub fn on_card() -> anyhow::Result<Vec<CardRun>> {
    let read =
        |(i, line)| serde_json::from_str(line).with_context(|| format!("tests/corpus/card.jsonl, line {}", i + 1));
    ROWS.lines().enumerate().map(read).collect()
}

impl CardRun {
    fn card(&self) -> &str {
        self.scenario["device"]["gpu"].as_str().unwrap_or_default()
    }

    /// The recording it is of, a file in `corpus/hulls/card`.
    fn hull(&self) -> Option<&str> {
        self.scenario["model"]["hull"].as_str()
    }

    /// The scenario, with the recording that it names.
    fn asked(&self) -> anyhow::Result<Scenario> {
        let mut value = self.scenario.clone();
        if let Some(name) = self.hull() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/hulls/card").join(name);
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            value["model"]["hull"] = HullModel::content(&bytes).into();
        }
        Scenario::from_value(&value).with_context(|| self.id.clone())
    }

    /// Beside today's estimate.
    ///
    /// # Errors
    /// When the scenario is not estimated.
    pub fn error(&self) -> anyhow::Result<OnCardError> {
        let scenario = self.asked()?;
        let run = Run::new(&scenario).with_context(|| self.id.clone())?.with_falling();
        let group = if self.why.is_some() {
            Group::Apart
        } else if scenario.training.mode == Mode::Inference {
            Group::Inference
        } else {
            match (self.hull().is_some(), run.estimate().convolutions.is_some()) {
                (false, false) => Group::Training,
                (false, true) => Group::Convolutions,
                (true, false) => Group::Recorded,
                (true, true) => Group::RecordedConvolutions,
            }
        };
        Ok(self.beside(&run, group))
    }

    /// The same of a network of convolutions, beside the estimate that has what cuDNN answers in it.
    ///
    /// # Errors
    /// As [`CardRun::error`], and a convolution that the answers do not have.
    pub fn error_asked(&self, answers: &Rc<Answers>) -> anyhow::Result<OnCardError> {
        let run = cudnn::asked(&self.asked()?, answers).with_context(|| self.id.clone())?.with_falling();
        Ok(self.beside(&run, if self.hull().is_some() { Group::RecordedAsked } else { Group::Asked }))
    }

    fn beside(&self, run: &Run, group: Group) -> OnCardError {
        let estimate = run.estimate();
        let share = |ours: u64, theirs: u64| (ours as f64 - theirs as f64) / theirs as f64;
        let OnCard { allocated, reserved, beside } = self.expected;
        let told = (estimate.peak.allocated, estimate.peak.reserved);
        let below = estimate.falling.as_ref().map_or(told, |falling| (falling.allocated, falling.reserved));
        OnCardError {
            group,
            allocated: share(estimate.peak.allocated.get(), allocated),
            reserved: share(estimate.peak.reserved.get(), reserved),
            process: beside.map(|beside| share(estimate.peak.process.get(), reserved + beside)),
            falling: [share(below.0.get(), allocated), share(below.1.get(), reserved)],
        }
    }
}

/// Writes the section.
///
/// # Errors
/// As [`on_card`] and [`CardRun::error`].
pub fn section(page: &mut Page) -> anyhow::Result<()> {
    let rows = on_card()?;
    let errors = errors(&rows)?;
    let of_cards = |asked: bool| {
        errors.iter().filter(move |(_, error)| matches!(error.group, Group::Asked | Group::RecordedAsked) == asked)
    };
    page.line("\n## Real PyTorch on real cards\n");
    page.line(
        "The worker's loop on an H100 80GB HBM3 and an H200 (PyTorch 2.11.0+cu130, transformers 5.17.0, driver 580.159, 2026-11-26 and -27; 156 of the\n\
         H100 with transformers 5.24, 4.57 and 4.51), several runs at a time, each in a process of its own: rows of the hollow corpus, and catalog models\n\
         and networks drawn by lot, as the cards took them (`tests/corpus/README.md`); *recorded* are models of transformers, timm, torchvision and diffusers\n\
         that no family was written for, run as their own code has them, beside what `plimsoll trace` recorded of them. The first 230 rows of the H200 and the last 50 of the H100 were looked at after everything was mended that the first\n\
         had shown, and what the first 60 of the other 171 of the H200 showed was mended before the rest were. Where a segment lies is the driver's choice, and among equal blocks the allocator takes the lowest: of two runs with the same requests\n\
         one may be given blocks of other sizes, and need a segment more. The estimate takes each to lie above the last, as on a hollow card; *falling*\n\
         is what it says where each lies below (`falling` in its JSON), and *between* how many reserved what lies between the two, both included.\n\
         *process* is NVML's figure of the process. *cuDNN asked*: the same runs, whose convolutions take what cuDNN 9.19 plans for such a card\n\
         without one (`--ask-cudnn`; `tests/corpus/cudnn.csv`), where the others follow the rule that was read off an H100.\n",
    );
    let titles = [
        "which",
        "rows",
        "allocated exact",
        "falling",
        "median",
        "95th percentile",
        "worst",
        "reserved exact",
        "falling",
        "between",
        "95th percentile",
        "worst",
        "falling, 95th percentile",
        "process, median",
    ];
    page.head(&titles, &["which"]);
    let groups = [
        ("training", Group::Training),
        ("training, networks of convolutions", Group::Convolutions),
        ("the same, cuDNN asked", Group::Asked),
        ("inference", Group::Inference),
        ("training, recorded models", Group::Recorded),
        ("training, recorded networks of convolutions", Group::RecordedConvolutions),
        ("the same, cuDNN asked", Group::RecordedAsked),
        ("its own data decided (fp16 that overflowed, outliers of eight bits)", Group::Apart),
    ];
    for card in ["h100-sxm", "h200"] {
        for (title, group) in groups {
            let of = errors.iter().filter(|(on, error)| *on == card && error.group == group);
            if of.clone().next().is_some() {
                line(page, &format!("`{card}`, {title}"), of.map(|(_, error)| error));
            }
        }
    }
    line(page, "all, cuDNN not asked", of_cards(false).map(|(_, error)| error));
    Ok(())
}

/// Of every row, by its card; of a network of convolutions once more, with cuDNN asked.
fn errors(rows: &[CardRun]) -> anyhow::Result<Vec<(&str, OnCardError)>> {
    let answers = cudnn::answers(HOPPER)?;
    let mut errors = Vec::new();
    for row in rows {
        let error = row.error()?;
        errors.push((row.card(), error));
        if matches!(error.group, Group::Convolutions | Group::RecordedConvolutions) {
            errors.push((row.card(), row.error_asked(&answers)?));
        }
    }
    Ok(errors)
}

fn line<'a>(page: &mut Page, title: &str, errors: impl Iterator<Item = &'a OnCardError> + Clone) {
    let allocated = Spread::of(errors.clone().map(|error| error.allocated));
    let reserved = Spread::of(errors.clone().map(|error| error.reserved));
    let falling = [0, 1].map(|figure| Spread::of(errors.clone().map(|error| error.falling[figure])));
    let within = |error: &&OnCardError| {
        error.reserved.min(error.falling[1]) <= 0.0 && error.reserved.max(error.falling[1]) >= 0.0
    };
    let between = errors.clone().filter(within).count();
    let process = Spread::of(errors.filter_map(|error| error.process));
    page.row(&[
        title.to_owned(),
        allocated.count.to_string(),
        format!("{} of {}", allocated.exact, allocated.count),
        falling[0].exact.to_string(),
        percent(allocated.median),
        percent(allocated.p95),
        percent(allocated.worst),
        format!("{} of {}", reserved.exact, reserved.count),
        falling[1].exact.to_string(),
        between.to_string(),
        percent(reserved.p95),
        percent(reserved.worst),
        percent(falling[1].p95),
        percent(process.median),
    ]);
}
