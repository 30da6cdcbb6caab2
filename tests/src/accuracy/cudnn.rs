//! What cuDNN answered of the convolutions of runs on real cards: `corpus/cudnn.csv`.

use std::rc::Rc;

use anyhow::{Context as _, bail};
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Answers, Product, Question, Run, Shape};
use plimsoll_core::ledger::DType;

const LINES: &str = include_str!("../../corpus/cudnn.csv");
const PRODUCTS: [(&str, Product); 3] =
    [("forward", Product::Forward), ("input", Product::Input), ("weight", Product::Weight)];
const DTYPES: [(&str, DType); 3] = [("fp32", DType::Float32), ("fp16", DType::Float16), ("bf16", DType::BFloat16)];

/// What cuDNN 9.19 answers for cards of compute capability 9.0.
///
/// # Errors
/// A line that is none, by number.
pub fn answers() -> anyhow::Result<Rc<Answers>> {
    let answers = Answers::default();
    for (i, line) in LINES.lines().enumerate().skip(1) {
        let (question, bytes) = answer(line).with_context(|| format!("tests/corpus/cudnn.csv, line {}", i + 1))?;
        answers.tell(question, Some(bytes));
    }
    answers.name("9.19.0".to_owned());
    Ok(Rc::new(answers))
}

fn answer(line: &str) -> anyhow::Result<(Question, u64)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [product, input, weight, output, stride, padding, last, dtype, bytes] = fields[..] else {
        bail!("it has {} fields", fields.len())
    };
    let sizes = |text: &str| text.split('x').map(str::parse).collect::<Result<Vec<u64>, _>>();
    let tensors = [sizes(input)?, sizes(weight)?, sizes(output)?];
    let shape = Shape::told(tensors.each_ref().map(Vec::as_slice), &sizes(stride)?, &sizes(padding)?);
    let (_, product) = PRODUCTS.into_iter().find(|(name, _)| *name == product).context("an unknown product")?;
    let (_, dtype) = DTYPES.into_iter().find(|(name, _)| *name == dtype).context("an unknown dtype")?;
    let question =
        Question { product, shape: shape.context("sizes that are no convolution's")?, last: last == "1", dtype };
    Ok((question, bytes.parse()?))
}

/// A question as a line of the file, without its answer.
fn line(question: &Question) -> String {
    let name = |of: &[(&str, Product)]| {
        of.iter().find(|(_, product)| *product == question.product).map_or("", |(name, _)| name).to_owned()
    };
    let sizes = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let shape = &question.shape;
    let [input, weight, output] = shape.tensors().map(sizes);
    let dtype = DTYPES.iter().find(|(_, dtype)| *dtype == question.dtype).map_or("", |(name, _)| name);
    let product = name(&PRODUCTS);
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
