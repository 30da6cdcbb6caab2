//! What cuDNN answered of the convolutions of runs on real and on hollow cards: `corpus/cudnn.csv`.

use std::rc::Rc;

use anyhow::{Context as _, bail};
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Answers, Question, Run, Shape, card};
use serde::Deserialize;
use serde_json::Value;

use super::on_card::OnCard;

const LINES: &str = include_str!("../../corpus/cudnn.csv");

/// What cuDNN 9.19 answers for cards of one compute capability.
///
/// # Errors
/// A line that is none, by number.
pub fn answers(capability: (u8, u8)) -> anyhow::Result<Rc<Answers>> {
    let (answers, capability) = (Answers::default(), format!("{}.{},", capability.0, capability.1));
    for (i, line) in LINES.lines().enumerate().skip(1) {
        let Some(line) = line.strip_prefix(&capability) else { continue };
        let (question, bytes) = answer(line).with_context(|| format!("tests/corpus/cudnn.csv, line {}", i + 1))?;
        answers.tell(question, Some(bytes));
    }
    answers.name("9.19.0".to_owned());
    Ok(Rc::new(answers))
}

/// A run of PyTorch on a hollow card whose convolutions took what cuDNN answers.
#[derive(Clone, Debug, Deserialize)]
pub struct AskedRun {
    /// Stable id.
    pub id: String,
    /// What was run, in the scenario's own format.
    pub scenario: Value,
    /// What PyTorch counted.
    pub expected: OnCard,
}

/// Every row of `corpus/cudnn-hollow.jsonl`.
///
/// # Errors
/// A line that is not a row, by number.
pub fn asked_on_hollow_cards() -> anyhow::Result<Vec<AskedRun>> {
    let read = |(i, line)| {
        serde_json::from_str(line).with_context(|| format!("tests/corpus/cudnn-hollow.jsonl, line {}", i + 1))
    };
    include_str!("../../corpus/cudnn-hollow.jsonl").lines().enumerate().map(read).collect()
}

impl AskedRun {
    /// By how much the estimate differs in what is allocated and reserved, in bytes.
    ///
    /// # Errors
    /// A scenario that is not estimated, and a question whose answer the file does not have.
    pub fn differs(&self) -> anyhow::Result<[i64; 2]> {
        let scenario = Scenario::from_value(&self.scenario).with_context(|| self.id.clone())?;
        let capability = card(&scenario)?.compute_capability.with_context(|| self.id.clone())?;
        let peak = asked(&scenario, &answers(capability)?).with_context(|| self.id.clone())?.into_estimate().peak;
        let less = |ours: u64, theirs: u64| ours as i64 - theirs as i64;
        let OnCard { allocated, reserved, .. } = self.expected;
        Ok([less(peak.allocated.get(), allocated), less(peak.reserved.get(), reserved)])
    }
}

fn answer(line: &str) -> anyhow::Result<(Question, u64)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [product, input, weight, output, stride, padding, last, dtype, bytes] = fields[..] else {
        bail!("it has {} fields", fields.len())
    };
    let sizes = |text: &str| text.split('x').map(str::parse).collect::<Result<Vec<u64>, _>>();
    let tensors = [sizes(input)?, sizes(weight)?, sizes(output)?];
    let shape = Shape::told(tensors.each_ref().map(Vec::as_slice), &sizes(stride)?, &sizes(padding)?);
    let (_, product) =
        Question::PRODUCTS.into_iter().find(|(name, _)| *name == product).context("an unknown product")?;
    let (_, dtype) = Question::DTYPES.into_iter().find(|(name, _)| *name == dtype).context("an unknown dtype")?;
    let question =
        Question { product, shape: shape.context("sizes that are no convolution's")?, last: last == "1", dtype };
    Ok((question, bytes.parse()?))
}

/// A question as a line of the file, without its card and its answer.
fn line(question: &Question) -> String {
    let sizes = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let shape = &question.shape;
    let [input, weight, output] = shape.tensors().map(sizes);
    let [product, dtype] = question.names();
    let (stride, padding, last) = (sizes(shape.stride()), sizes(shape.padding()), u8::from(question.last));
    format!("{product},{input},{weight},{output},{stride},{padding},{last},{dtype}")
}

/// The run, with what cuDNN answers.
///
/// # Errors
/// A question whose answer the file does not have.
pub fn asked(scenario: &Scenario, answers: &Rc<Answers>) -> anyhow::Result<Run> {
    let run = Run::asking(scenario, answers)?;
    let open = answers.take_open();
    if !open.is_empty() {
        let lines: Vec<String> = open.iter().map(line).collect();
        bail!(
            "tests/corpus/cudnn.csv does not have these; tests/tools/cudnn.py --add answers them:\n{}",
            lines.join("\n")
        );
    }
    Ok(run)
}
