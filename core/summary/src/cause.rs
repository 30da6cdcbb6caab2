//! Why a peak is as high as it is, in a sentence as people say it. The operator's name stands beside it: [`crate::place`].

use plimsoll_estimate::{Category, Estimate, Holding};
use plimsoll_ground::Bytes;
use plimsoll_ledger::PhaseName;
use serde_json::Value;

/// What a part of the peak is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matter {
    Loss,
    Scores,
    Unpacked,
    Step,
    Saved,
    Gradients,
    Copies,
    Cache,
    Passing,
    Batch,
    Workspace,
}

/// How each is called; the loss and the step say more.
const MATTERS: [(Matter, &str); 11] = [
    (Matter::Loss, "the loss"),
    (Matter::Scores, "attention's scores of every token with every other"),
    (Matter::Unpacked, "quantized weights, unpacked"),
    (Matter::Step, "what the optimizer makes while it steps"),
    (Matter::Saved, "what layers keep for backward"),
    (Matter::Gradients, "gradients"),
    (Matter::Copies, "autocast's 16-bit copies of the weights"),
    (Matter::Cache, "keys and values of every token so far"),
    (Matter::Passing, "what is computed at that moment"),
    (Matter::Batch, "the batch"),
    (Matter::Workspace, "what kernel libraries keep"),
];

/// The operators of cross entropy, in the order they run, and what each leaves behind. What else is as large as theirs
/// are the logits.
const LOSS: [(&str, &str); 3] = [
    ("_log_softmax", "their log-softmax"),
    ("nll_loss_backward", "its gradient"),
    ("_log_softmax_backward_data", "their own gradient"),
];

/// The operators of attention that is computed one after the other.
const SCORES: [&str; 9] = [
    "bmm",
    "baddbmm",
    "add",
    "mul",
    "_softmax",
    "_softmax_backward_data",
    "masked_fill",
    "native_dropout",
    "native_dropout_backward",
];

/// Those of them that count heads and batch together.
const PRODUCTS: [&str; 2] = ["bmm", "baddbmm"];

/// The operators that write quantized weights out.
const UNPACK: [&str; 2] = ["dequantize_4bit", "dequantize_blockwise"];

/// Parts that are smaller than one in so many of the peak go unsaid.
const LEAST: u64 = 20;

/// How many parts are named.
const MOST: usize = 3;

/// What makes the peak, beside weights and optimizer states, without a full stop: `holdings` are what is alive at it.
/// `None` where nothing is.
pub fn cause(estimate: &Estimate, holdings: &[Holding]) -> Option<String> {
    let whole: Bytes = holdings.iter().map(|holding| holding.bytes).sum();
    let first = |category| holdings.iter().any(|holding| holding.category == category);
    let standing: Bytes = holdings.iter().filter(|h| stands(h.category)).map(|holding| holding.bytes).sum();
    let stood = match (first(Category::Weights), first(Category::OptimizerStates)) {
        (_, true) => "weights and optimizer states",
        (true, false) => "weights",
        (false, false) => return None,
    };
    let logits = logits(holdings);
    let seq = estimate.scenario.pointer("/input/seq").and_then(Value::as_u64);
    let mut parts: Vec<(Bytes, String)> = Vec::new();
    for (matter, words) in MATTERS {
        let of: Vec<&Holding> =
            holdings.iter().filter(|h| matter_of(h, estimate.peak.phase, logits, seq) == Some(matter)).collect();
        let bytes: Bytes = of.iter().map(|holding| holding.bytes).sum();
        if bytes.get().saturating_mul(LEAST) < whole.get() || bytes.is_zero() {
            continue;
        }
        let more = match matter {
            Matter::Loss => format!(" ({})", loss(&of)),
            Matter::Step if foreach(estimate) => " (foreach takes every parameter at once)".to_owned(),
            _ => String::new(),
        };
        parts.push((bytes, format!("{words}, {bytes}{more}")));
    }
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let named: Vec<String> = parts.into_iter().take(MOST).map(|(_, words)| words).collect();
    Some(match named.as_slice() {
        [] => format!("It is {standing} of {stood}, and of nothing else a twentieth"),
        named => format!("Beside {standing} of {stood}: {}", named.join("; ")),
    })
}

/// Whether it is there before the step begins and when it has ended.
const fn stands(category: Category) -> bool {
    matches!(category, Category::Weights | Category::OptimizerStates)
}

/// How many numbers the logits are: as many as cross entropy's own operators leave behind.
fn logits(holdings: &[Holding]) -> Option<u64> {
    let of_loss = |h: &&Holding| LOSS.iter().any(|(op, _)| *op == op_of(h));
    holdings.iter().filter(of_loss).map(numbers).max()
}

fn matter_of(holding: &Holding, phase: PhaseName, logits: Option<u64>, seq: Option<u64>) -> Option<Matter> {
    let op = op_of(holding);
    // Heads may be counted with the batch where matrices are multiplied; elsewhere such a shape is as many channels as tokens.
    let square = || match holding.shape.as_slice() {
        [_, q, k] if PRODUCTS.contains(&op) => q == k && Some(*q) == seq,
        [_, _, q, k] => q == k && Some(*q) == seq,
        _ => false,
    };
    let stepping = matches!(phase, PhaseName::Optimizer | PhaseName::Clip);
    match holding.category {
        Category::Weights | Category::OptimizerStates => None,
        Category::Inputs => Some(Matter::Batch),
        Category::Workspace => Some(Matter::Workspace),
        Category::KvCache => Some(Matter::Cache),
        Category::AutocastCopies => Some(Matter::Copies),
        Category::Gradients => Some(Matter::Gradients),
        Category::SavedActivations | Category::Temporaries if logits == Some(numbers(holding)) => Some(Matter::Loss),
        Category::SavedActivations | Category::Temporaries if SCORES.contains(&op) && square() => Some(Matter::Scores),
        Category::SavedActivations => Some(Matter::Saved),
        Category::Temporaries if UNPACK.contains(&op) => Some(Matter::Unpacked),
        Category::Temporaries if stepping => Some(Matter::Step),
        Category::Temporaries => Some(Matter::Passing),
    }
}

/// `logits, their log-softmax and their own gradient, 3 x 1.96 GiB`: in the order they are made.
fn loss(of: &[&Holding]) -> String {
    let known = |op: &str| LOSS.iter().position(|(known, _)| *known == op);
    let mut made: Vec<&str> = Vec::new();
    if of.iter().any(|holding| known(op_of(holding)).is_none()) {
        made.push("logits");
    }
    for (op, words) in LOSS {
        if of.iter().any(|holding| op_of(holding) == op) {
            // Without the logits themselves, what "their" is of has to be said.
            made.push(if made.is_empty() && op == LOSS[0].0 { "the logits' log-softmax" } else { words });
        }
    }
    let count: u64 = of.iter().map(|holding| holding.count).sum();
    let mut sizes = of.iter().map(|holding| holding.bytes.get() / holding.count.max(1));
    let one = sizes.next().filter(|one| sizes.all(|size| size == *one));
    let last = made.pop().unwrap_or_default();
    let list = if made.is_empty() { last.to_owned() } else { format!("{} and {last}", made.join(", ")) };
    match one {
        Some(one) if count > 1 => format!("{list}, {count} x {}", Bytes::new(one)),
        _ => list,
    }
}

fn foreach(estimate: &Estimate) -> bool {
    estimate.scenario.pointer("/training/optimizer_impl").and_then(Value::as_str) == Some("foreach")
}

/// Without the node of the graph behind it.
fn op_of(holding: &Holding) -> &str {
    let op = holding.op.split_once('@').map_or(holding.op.as_str(), |(op, _)| op);
    op.split_once('.').map_or(op, |(op, _)| op)
}

fn numbers(holding: &Holding) -> u64 {
    holding.shape.iter().fold(1, |product, side| product.saturating_mul(*side))
}

#[cfg(test)]
mod tests {
    use plimsoll_estimate::Run;
    use plimsoll_scenario::Scenario;
    use serde_json::json;

    use super::cause;

    fn said(training: &serde_json::Value, batch: u64) -> String {
        let scenario = json!({
            "model": { "catalog": "llama-3.2-1b" }, "input": { "batch": batch, "seq": 1024 }, "training": training,
            "device": { "gpu": "rtx-4090" },
        });
        let run = Run::new(&Scenario::from_value(&scenario).unwrap()).unwrap();
        cause(run.estimate(), &run.alive_at(run.peak_event())).unwrap()
    }

    #[test]
    fn the_loss_is_told_by_what_it_is_made_of() {
        let said = said(&json!({ "precision": "bf16-amp", "optimizer": "adamw", "optimizer_impl": "fused" }), 8);
        assert!(said.starts_with("Beside 13.81 GiB of weights and optimizer states: "), "{said}");
        assert!(
            said.contains(
                "the loss, 11.74 GiB (the logits' log-softmax, its gradient and their own gradient, 3 x 3.91 GiB)"
            ),
            "{said}"
        );
        assert!(said.contains("what layers keep for backward"), "{said}");
    }

    #[test]
    fn the_optimizer_says_that_it_takes_all_at_once() {
        let said = said(&json!({ "precision": "fp32", "optimizer": "adamw", "optimizer_impl": "foreach" }), 1);
        assert!(
            said.contains("what the optimizer makes while it steps, 4.60 GiB (foreach takes every parameter at once)"),
            "{said}"
        );
        assert!(said.contains("gradients, 4.60 GiB"), "{said}");
    }

    #[test]
    fn attention_without_a_kernel_of_its_own_is_told_by_its_scores() {
        let eager = json!({ "precision": "fp32", "optimizer": "sgd", "attention": "eager" });
        assert!(said(&eager, 8).contains("attention's scores"), "{}", said(&eager, 8));
    }
}
