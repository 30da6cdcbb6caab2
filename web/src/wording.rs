//! The sentences of the page.

use plimsoll_core::scenario::{Checkpointing, Levers, Mode, Quantization, at};
use plimsoll_core::{Bytes, Scenario};

use crate::number;
use crate::reading::{Held, PhaseRow, Point, Reading};
use plimsoll_core::summary::Kind;

/// The verdict as it is spoken: one sentence for the live region.
pub fn verdict(reading: &Reading) -> String {
    let depth = number::bytes(reading.process);
    format!("{}. {depth} at its deepest, {}.", reading.standing.label(), distance(reading.headroom))
}

/// Headroom as people say it: `1.23 GiB to spare`, `over by 3.00 GiB`.
pub fn distance(headroom: i64) -> String {
    let bytes = number::bytes(Bytes::new(headroom.unsigned_abs()));
    if headroom < 0 { format!("over by {bytes}") } else { format!("{bytes} to spare") }
}

/// Which side of the load line headroom is on: `Over by`, `To spare`.
pub const fn side(headroom: i64) -> &'static str {
    if headroom < 0 { "Over by" } else { "To spare" }
}

/// `step 1, backward, micro-batch 2`.
pub fn phase(row: &PhaseRow) -> String {
    let mut text = row.step.map_or_else(String::new, |n| format!("step {n}, "));
    text.push_str(&row.name);
    if let Some(n) = row.micro_batch {
        text.push_str(&format!(", micro-batch {n}"));
    }
    text
}

/// What is alive at a point, as it is spoken while the cursor moves.
pub fn point(reading: &Reading, point: &Point) -> String {
    let place = reading.phases.get(point.phase as usize).map(phase).unwrap_or_default();
    let mut parts: Vec<(u64, Kind)> =
        point.live.iter().copied().zip(Kind::ALL).filter(|(bytes, _)| *bytes > 0).collect();
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let parts: Vec<String> = parts
        .iter()
        .take(4)
        .map(|(bytes, kind)| format!("{} {}", kind.label(), number::bytes(Bytes::new(*bytes))))
        .collect();
    format!("{place}: {} alive, of it {}.", number::bytes(point.total()), parts.join(", "))
}

/// The ledger's `mul.Tensor@MulBackward0` as people read it: `mul in MulBackward0`.
pub fn op(name: &str) -> String {
    let (op, node) = name.split_once('@').unwrap_or((name, ""));
    let op = op.strip_suffix(".Tensor").unwrap_or(op);
    if node.is_empty() { op.to_owned() } else { format!("{op} in {node}") }
}

/// Where a holding comes from, and by what.
pub fn origin(held: &Held) -> (String, Option<String>) {
    match (held.module.is_empty(), held.kind) {
        (false, _) => (held.module.clone(), Some(op(&held.op))),
        (true, Kind::OptimizerStates) => ("optimizer".to_owned(), Some(op(&held.op))),
        (true, _) => (op(&held.op), None),
    }
}

/// Why the peak is as high as it is, and where it is.
pub fn peak(reading: &Reading) -> String {
    let cause = if reading.cause.is_empty() { String::new() } else { format!("{}. ", reading.cause) };
    format!("{cause}Peaks in {}.", place(reading))
}

fn place(reading: &Reading) -> String {
    let Some(point) = reading.points.get(reading.peak) else {
        return String::new();
    };
    let place = reading.phases.get(point.phase as usize).map(phase).unwrap_or_default();
    match (point.op.is_empty(), point.module.is_empty()) {
        (true, _) => place,
        (false, true) => format!("{place}, at {}", op(&point.op)),
        (false, false) => format!("{place}, at {} of {}", op(&point.op), point.module),
    }
}

/// The load in short: `4 × 1,024 tokens, bf16-amp, AdamW`.
pub fn load(scenario: &Scenario) -> String {
    let input = &scenario.input;
    let batch = match input.seq {
        Some(seq) => format!("{} × {} tokens", number::grouped(input.batch), number::grouped(seq)),
        None if input.image.is_some() => format!("{} images", number::grouped(input.batch)),
        None => format!("{} samples", number::grouped(input.batch)),
    };
    let training = &scenario.training;
    if training.mode == Mode::Inference {
        let new = input.max_new_tokens.map(|n| format!(", {} new tokens", number::grouped(n))).unwrap_or_default();
        return format!("{batch}, {}, inference{new}", training.precision);
    }
    let mut text = format!("{batch}, {}, {}", training.precision, training.optimizer.in_words().label);
    if let Some(lora) = &training.lora {
        let adapters = if lora.dora { "DoRA" } else { "LoRA" };
        text.push_str(&match training.quantization {
            Quantization::None => format!(", {adapters}"),
            quantization => format!(", {adapters} on {quantization}"),
        });
        if !training.prepare_kbit {
            text.push_str(" as loaded");
        }
    }
    text.push_str(match training.checkpointing {
        Checkpointing::None => "",
        Checkpointing::Full => ", checkpointing",
        Checkpointing::Reentrant => ", reentrant checkpointing",
        Checkpointing::Selective => ", selective checkpointing",
    });
    if training.accumulation > 1 {
        text.push_str(&format!(", {} micro-batches", number::grouped(training.accumulation)));
    }
    for clause in Levers::of(scenario).told(&TOLD) {
        text.push_str(&format!(", {clause}"));
    }
    text
}

/// What a line about a load has words of its own for, or has no room for.
const TOLD: [&str; 17] = [
    at::input::batch,
    at::input::seq,
    at::input::target_seq,
    at::input::image,
    at::input::max_new_tokens,
    at::training::precision,
    at::training::optimizer,
    at::training::optimizer_impl,
    at::training::accumulation,
    at::training::checkpointing,
    at::training::quantization,
    at::training::prepare_kbit,
    at::lora::rank,
    at::lora::targets,
    at::lora::dropout,
    at::lora::dora,
    at::device::gpu,
];

/// A clause as a sentence: capital first, full stop last.
pub fn sentence(clause: &str) -> String {
    let mut letters = clause.trim().chars();
    let Some(first) = letters.next() else {
        return String::new();
    };
    let mut text: String = first.to_uppercase().chain(letters).collect();
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use plimsoll_core::scenario::LossImpl;

    use super::{load, op, sentence};
    use crate::engine::opening;

    #[test]
    fn the_load_is_one_line() {
        assert_eq!(load(&opening()), "4 × 1,024 tokens, bf16-amp, AdamW");
        let mut other = opening();
        (other.training.ema, other.training.loss_impl) = (true, LossImpl::FusedLinear);
        assert_eq!(
            load(&other),
            "4 × 1,024 tokens, bf16-amp, AdamW, head and loss: fused, moving average of the weights"
        );
    }

    #[test]
    fn ops_lose_their_machinery() {
        assert_eq!(op("mul.Tensor@MulBackward0"), "mul in MulBackward0");
        assert_eq!(op("silu"), "silu");
        assert_eq!(op(""), "");
    }

    #[test]
    fn clauses_become_sentences() {
        assert_eq!(sentence("use one of a, b"), "Use one of a, b.");
        assert_eq!(sentence(""), "");
        assert_eq!(sentence("Éclair."), "Éclair.");
    }
}
