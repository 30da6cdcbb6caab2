//! What ran where, and how it ended.

use std::fmt::Write as _;

use plimsoll_core::estimate::Estimate;
use plimsoll_core::measurement::{DeviceKind, Outcome};

use super::{Report, prose};
use plimsoll_core::summary::{model_name, recipe};

use crate::view::{Paint, WIDTH, fit, wrapped};

/// The first lines.
pub fn header(report: &Report<'_>, paint: Paint) -> String {
    let device = &report.record.device;
    let place = match (report.record.ranks.len(), device.hollow, device.kind) {
        (0, true, _) => "on a hollow ".to_owned(),
        (0, false, _) => "on ".to_owned(),
        (count, _, DeviceKind::Cpu) => format!("in {count} processes on "),
        (count, true, _) => format!("on {count} hollow "),
        (count, false, _) => format!("on {count} x "),
    };
    let title = fit(&format!("{} {place}{}", model_name(report.scenario), device.name), WIDTH - 2);
    let mut out = format!("  {}\n", paint.strong(&title));
    for line in wrapped(&recipe(report.scenario), WIDTH - 2).iter().chain(&wrapped(&software(report), WIDTH - 2)) {
        let _ = writeln!(out, "  {}", paint.quiet(line));
    }
    let (label, comment) = outcome(report);
    if report.record.device.hollow {
        let why = "Rehearsed: there was no such card. What PyTorch's allocator did is told; speed, losses and what convolutions \
            would ask for mean nothing.";
        for line in wrapped(why, WIDTH - 2) {
            let _ = writeln!(out, "  {}", paint.quiet(&line));
        }
    }
    let good = report.subject.is_some_and(|(_, a)| a.outcome == Outcome::Finished);
    let label = if good { paint.strong(label) } else { paint.signal(label) };
    let _ = writeln!(out, "\n  {label}   {comment}");
    out
}

/// Card, driver, torch.
fn software(report: &Report<'_>) -> String {
    let (software, device) = (&report.record.software, &report.record.device);
    let mut parts = vec![format!("torch {}", software.torch)];
    let versions = [
        ("CUDA", &software.cuda),
        ("ROCm", &software.hip),
        ("transformers", &software.transformers),
        ("peft", &software.peft),
        ("torchvision", &software.torchvision),
        ("bitsandbytes", &software.bitsandbytes),
    ];
    for (name, version) in versions {
        // A build for CUDA says so on the processor too, where it does not matter.
        if let Some(version) = version
            && (device.kind == DeviceKind::Cuda || !matches!(name, "CUDA" | "ROCm"))
        {
            parts.push(format!("{name} {version}"));
        }
    }
    parts.push(format!("Python {}", software.python));
    if let Some(driver) = &device.driver {
        parts.push(format!("driver {driver}"));
    }
    parts.push(software.os.clone());
    if software.wsl {
        parts.push("WSL".to_owned());
    }
    if software.container {
        parts.push("container".to_owned());
    }
    let memory = match device.reserved {
        Some(reserved) => format!("{} ({reserved} of it the driver's)", device.total),
        None => device.total.to_string(),
    };
    parts.push(format!("memory {memory}"));
    if let Some(used) = device.used_before {
        parts.push(format!("{used} in use before"));
    }
    if let Some(limit) = report.record.allocator.limit {
        parts.push(format!("limit {limit}"));
    }
    if let Some(conf) = &report.record.allocator.conf {
        parts.push(format!("allocator set to {conf}"));
    }
    parts.join(", ")
}

fn outcome(report: &Report<'_>) -> (&'static str, String) {
    let record = report.record;
    let last = record.attempts.last().map(|a| a.outcome);
    let Some((_, attempt)) = report.subject else { return ("FAILED", "before anything ran".to_owned()) };
    let shape = if attempt.accumulation > 1 {
        format!("micro-batch {}, accumulated {} times", attempt.batch, attempt.accumulation)
    } else {
        format!("batch {}", attempt.batch)
    };
    let steps = |n: u64| report.work().count(n);
    match (attempt.outcome, last) {
        (Outcome::Finished, Some(Outcome::Interrupted)) => {
            ("MEASURED", format!("{} of {shape}, then stopped", steps(attempt.steps)))
        }
        (Outcome::Finished, Some(Outcome::Failed)) => {
            ("MEASURED", format!("{} of {shape}, then it failed", steps(attempt.steps)))
        }
        (Outcome::Finished, _) => ("MEASURED", format!("{} of {shape}", steps(attempt.steps))),
        (Outcome::OutOfMemory | Outcome::Limit, _) if attempt.batch > 1 => {
            ("DID NOT FIT", format!("{shape}: {}", why(attempt.outcome)))
        }
        (Outcome::OutOfMemory | Outcome::Limit, _) => {
            ("DID NOT FIT", format!("not even one sample at a time: {}", why(attempt.outcome)))
        }
        (Outcome::Interrupted, _) => ("STOPPED", format!("after {} of {shape}", steps(attempt.steps))),
        (Outcome::Failed, _) => ("FAILED", format!("after {} of {shape}", steps(attempt.steps))),
    }
}

const fn why(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Limit => "the limit was hit",
        _ => "out of memory",
    }
}

/// Notes about what is compared with what.
pub fn notes(report: &Report<'_>) -> String {
    let (record, mut notes) = (report.record, Vec::new());
    let device = &record.device;
    if let Err(error) = &report.predicted {
        return prose(&format!("No prediction: {}; {}.", error.problem, error.hint));
    }
    if device.kind == DeviceKind::Cuda {
        match &device.gpu {
            None => notes.push(format!(
                "This card is not in the catalog: the prediction is that of {}, whose context may differ.",
                report.scenario.device.gpu
            )),
            Some(gpu) if report.names_gpu && *gpu != report.scenario.device.gpu => notes.push(format!(
                "The scenario names {}; measured and predicted on {gpu}, the card that is here.",
                report.scenario.device.gpu
            )),
            Some(_) => {}
        }
        if record.allocator.conf.is_some() {
            notes.push("The allocator's settings were changed; the prediction is for the default ones.".to_owned());
        }
        let first_alone = |estimate: &Estimate| estimate.phases.iter().all(|phase| phase.step != Some(2));
        if !report.work().trains() && report.comparable().is_some_and(first_alone) {
            notes.push(format!(
                "The prediction is of one {}, the first, and of a very long one not of every token; what the allocator keeps of it \
                 for later ones is not in it.",
                report.work().noun()
            ));
        }
        if let Some(compiled) = report.comparable().and_then(|estimate| estimate.compiled) {
            notes.push(format!(
                "The prediction is of the run without torch.compile; such runs, compiled, would put the process between {} and {}.",
                compiled.process_low, compiled.process_high
            ));
        }
        let used = as_used(report);
        notes.extend(used.iter().map(|rule| format!("Note that {rule}.")));
    }
    notes.iter().map(|note| prose(note)).collect()
}

/// What the engine says about the versions that ran.
fn as_used(report: &Report<'_>) -> Vec<String> {
    let measured = super::as_measured(
        report.scenario,
        &report.record.software,
        &report.record.device,
        report.record.allocator.limit,
    );
    let mut rules = measured.software.other_rules();
    if report.record.software.transformers.is_none() {
        rules.retain(|rule| !rule.contains("transformers"));
    }
    if report.record.software.bitsandbytes.is_none() {
        rules.retain(|rule| !rule.contains("bitsandbytes"));
    }
    rules
}
