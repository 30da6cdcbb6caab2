//! An estimate as a note in Markdown: for an issue, a pull request, a page of one's own.

use std::fmt::Write as _;

use plimsoll_estimate::{Estimate, Phase, PhaseName};
use plimsoll_ground::{Bytes, grouped};
use plimsoll_scenario::{Link, Scenario};

use crate::{card_name, model_name, parts, phase, place, recipe, verdict};

/// The whole note: the verdict, what the peak is made of, phase by phase, what is worth knowing, and the command that asks
/// the same again.
pub fn markdown(scenario: &Scenario, estimate: &Estimate) -> String {
    let mut note = format!(
        "**{} on {}: {}**, {}\n\n{}\n\n",
        plain(&model_name(scenario)),
        plain(&card_name(scenario)),
        estimate.verdict.label(),
        plain(&verdict(estimate)),
        plain(&recipe(scenario)),
    );
    figures(&mut note, estimate);
    stacked(&mut note, estimate);
    phases(&mut note, estimate);
    if !estimate.warnings.is_empty() {
        note.push('\n');
        for warning in &estimate.warnings {
            let _ = writeln!(note, "- {}", plain(warning));
        }
    }
    let command = Link::command(scenario);
    // A fence is longer than any run of the same within it.
    let fence = "`".repeat(command.split(|c| c != '`').map(str::len).max().unwrap_or(0).max(2) + 1);
    let _ = write!(note, "\n{fence}\n{command}\n{fence}\n");
    note
}

/// The figures that stand first.
fn figures(note: &mut String, estimate: &Estimate) {
    let peak = &estimate.peak;
    let parameters = estimate.parameters;
    let trained = if parameters.trainable == parameters.total {
        String::new()
    } else {
        format!(" ({} trained)", grouped(parameters.trainable))
    };
    let mut line = |what: &str, figure: String| {
        let _ = writeln!(note, "| {what} | {figure} |");
    };
    line("peak of the process", peak.process.to_string());
    line("---", "---:".to_owned());
    line("load line", estimate.device.load_line.to_string());
    line("`max_memory_allocated`", peak.allocated.to_string());
    line("`max_memory_reserved`", peak.reserved.to_string());
    if let Some(falling) = estimate.falling.filter(|falling| falling.reserved != peak.reserved) {
        line("reserved where segments lie each below the last", falling.reserved.to_string());
    }
    if let Some(lag) = &estimate.lag {
        line("reserved on a card that lags", format!("up to {}", lag.reserved_high));
    }
    if let Some(convolutions) = estimate.convolutions {
        line("with what cuDNN may take", format!("{} to {}", convolutions.process_low, convolutions.process_high));
    }
    if let Some(compiled) = estimate.compiled {
        line(
            "with what torch.compile may make of it",
            format!("{} to {}", compiled.process_low, compiled.process_high),
        );
    }
    for communicator in &estimate.communicators {
        let figure = format!("{} to {}", communicator.low, communicator.high);
        line(&format!("NCCL, {}, beside it", plain(&communicator.group)), figure);
    }
    for (what, figure) in super::roles(estimate).into_iter().chain(super::host(estimate)) {
        line(&plain(&what), plain(&figure));
    }
    if let Some(most) = estimate.max_batch {
        line("largest batch that fits", if most == 0 { "none".to_owned() } else { grouped(most) });
    }
    line("parameters", format!("{}{trained}", grouped(parameters.total)));
}

/// What the peak is stacked of.
fn stacked(note: &mut String, estimate: &Estimate) {
    let _ = write!(
        note,
        "\nAt the peak ({}):\n\n| what for | size | share |\n| --- | ---: | ---: |\n",
        plain(&place(estimate))
    );
    let whole = estimate.peak.process.get().max(1);
    for part in parts(estimate).iter().filter(|part| !part.bytes.is_zero()) {
        let tenths = (u128::from(part.bytes.get()) * 1000 + u128::from(whole) / 2) / u128::from(whole);
        let _ = writeln!(note, "| {} | {} | {}.{} % |", part.kind.label(), part.bytes, tenths / 10, tenths % 10);
    }
}

/// How high each phase goes, micro-batches together.
fn phases(note: &mut String, estimate: &Estimate) {
    let steps = if estimate.phases.iter().any(|phase| phase.step == Some(2)) { 2 } else { 1 };
    let mut names: Vec<PhaseName> = Vec::new();
    for phase in &estimate.phases {
        if !names.contains(&phase.name) {
            names.push(phase.name);
        }
    }
    note.push_str("\n| live tensors, highest |");
    note.push_str(if steps == 2 { " step 1 | step 2 |\n| --- | ---: | ---: |\n" } else { "  |\n| --- | ---: |\n" });
    for name in names {
        let _ = write!(note, "| {} |", phase(name.as_str()));
        for step in 1..=steps {
            // Loading belongs to no step and stands in the first column.
            let of_step = |p: &&Phase| p.name == name && p.step.unwrap_or(1) == step;
            let peak: Option<Bytes> = estimate.phases.iter().filter(of_step).map(|p| p.peak_requested).max();
            let _ = write!(note, " {} |", peak.map_or_else(String::new, |peak| peak.to_string()));
        }
        note.push('\n');
    }
}

/// Text that Markdown takes as it is: names come from files and links of strangers.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '#' | '!' => out.extend(['\\', c]),
            // Within a word an underscore stays one.
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A run small enough for a test, with its answer.
    pub(crate) fn estimated() -> (Scenario, Estimate) {
        let scenario = Scenario::from_value(&json!({
            "model": { "hf": { "model_type": "llama", "_name_or_path": "me/<b>ship</b>", "hidden_size": 64, "intermediate_size": 128,
                "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300 } },
            "input": { "batch": 2, "seq": 32 },
            "device": { "gpu": "rtx-4090" },
        }))
        .unwrap();
        let estimate = plimsoll_estimate::estimate(&scenario).unwrap();
        (scenario, estimate)
    }

    #[test]
    fn the_note_says_verdict_parts_phases_and_command() {
        let (scenario, estimate) = estimated();
        let note = markdown(&scenario, &estimate);
        assert!(note.starts_with(r"**me/\<b\>ship\</b\> on GeForce RTX 4090: fits**, "), "{note}");
        for part in [
            format!("| peak of the process | {} |", estimate.peak.process),
            format!("| weights | {} |", estimate.at_peak.weights),
            "| zero grad |".to_owned(),
            "plimsoll estimate ".to_owned(),
        ] {
            assert!(note.contains(&part), "{part} is not in\n{note}");
        }
        // Every table has as many cells in each line as in its head.
        for table in note.split("\n\n").filter(|block| block.starts_with('|')) {
            let cells: Vec<usize> = table.lines().map(|line| line.matches(" |").count()).collect();
            assert!(cells.iter().all(|n| *n == cells[0]), "{table}");
        }
    }

    #[test]
    fn what_a_stranger_named_stays_text() {
        assert_eq!(plain("a|b\n# `c` <i>[x](y)"), r"a\|b \# \`c\` \<i\>\[x\](y)");
    }
}
