//! The highest points: measured, predicted, the difference in bytes and percent.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::measurement::{DeviceKind, ProcessSource};

use super::{Report, header, off, percent, prose};
use crate::view::{Paint, grouped};

/// The table, and what is compared with what.
pub fn peaks(report: &Report<'_>, paint: Paint) -> String {
    let peak = &report.record.peak;
    let estimate = report.comparable().map(|e| &e.peak);
    let rows = [
        ("allocated", peak.allocated, estimate.map(|e| e.allocated)),
        ("reserved", peak.reserved, estimate.map(|e| e.reserved)),
        ("process", peak.process, estimate.map(|e| e.process)),
    ];
    let mut out = String::new();
    let titles = match estimate {
        Some(_) => format!("{:>13}{:>14}{:>25}", "measured", "predicted", "difference"),
        None => format!("{:>13}", "measured"),
    };
    if rows.iter().any(|(_, measured, _)| measured.is_some()) {
        let _ = writeln!(out, "  {}{}", paint.strong("Highest   "), paint.quiet(&titles));
    }
    for (name, measured, predicted) in rows {
        let Some(measured) = measured else { continue };
        let mut line = format!("  {name:<10}{:>13}", measured.to_string());
        if let Some(predicted) = predicted {
            let difference = off(measured, predicted);
            let sign = if difference < 0 { '-' } else { '+' };
            let bytes = grouped(u64::try_from(difference.unsigned_abs()).unwrap_or(u64::MAX));
            let _ = write!(
                line,
                "{:>14}{:>25}{:>10}",
                predicted.to_string(),
                format!("{sign}{bytes} B"),
                percent(difference, predicted)
            );
        }
        let _ = writeln!(out, "{line}");
    }
    if let Some(source) = peak.process_source {
        out.push_str(&paint.quiet(&prose(&format!("Process: {}.", words(source)))));
    }
    if report.record.device.kind != DeviceKind::Cuda {
        out.push_str(&elsewhere(report));
    }
    out.push_str(&header::notes(report));
    out
}

const fn words(source: ProcessSource) -> &'static str {
    match source {
        ProcessSource::NvmlProcess => "the driver's figure of the worker",
        ProcessSource::NvmlDifference => {
            "what the card held more than before; the driver does not tell of single processes here"
        }
        ProcessSource::AmdgpuProcess => "the kernel's figure of the worker",
        ProcessSource::AmdgpuDifference => "what the card held more than before",
        ProcessSource::Worker => "Metal's figure of the worker",
        ProcessSource::Resident => "resident memory of the worker, as the system counts it",
    }
}

/// Where there is no card to compare with.
fn elsewhere(report: &Report<'_>) -> String {
    let Ok(estimate) = &report.predicted else { return String::new() };
    let place = match report.record.device.kind {
        DeviceKind::Mps => "Metal",
        _ => "the processor",
    };
    let peak = &estimate.peak;
    let sizes = |name: &str, bytes: Bytes| format!("{name} {bytes}");
    prose(&format!(
        "On {place} only the memory of the process is known, with Python and PyTorch in it: no estimate of a card can be \
         held to it. {} the same run would take {}, {}, {}.",
        if report.names_gpu {
            format!("On the card of the scenario, {},", estimate.device.gpu)
        } else {
            format!("No card was named (--gpu); on one such as {}", estimate.device.gpu)
        },
        sizes("allocated", peak.allocated),
        sizes("reserved", peak.reserved),
        sizes("process", peak.process)
    ))
}
