//! What a run on several cards, with a paged optimizer or with offloaded activations, takes of its machine's own memory, in words.

use plimsoll_estimate::{Estimate, Host, Managed, Verdict};
use plimsoll_ground::Bytes;

use super::phase;

/// Lines of what and how much; none where nothing of it is there. The first is the whole of a machine.
pub fn host(estimate: &Estimate) -> Vec<(String, String)> {
    let Some(host) = estimate.host.as_ref() else { return Vec::new() };
    let mut lines = Vec::new();
    if !host.peak.is_zero() || host.capacity.is_some() {
        lines.push(("Each machine's memory".to_owned(), whole(host)));
    }
    lines.extend(
        host.managed.as_ref().map(|managed| ("Paged optimizer states".to_owned(), paged(managed, host.capacity))),
    );
    if host.peak.is_zero() && host.capacity.is_none() {
        return lines;
    }
    if let Some(nvme) = host.nvme {
        let buffers = format!("{} (through {} of buffers in a process)", nvme.per_node, nvme.buffers);
        lines.push(("files on its NVMe".to_owned(), buffers));
    }
    if !host.pinned.is_zero() {
        lines.push(("page-locked by a process".to_owned(), host.pinned.to_string()));
    }
    let there_and_back = estimate.work.traffic.host;
    if !there_and_back.is_zero() {
        lines.push(("there and back in a step".to_owned(), there_and_back.to_string()));
    }
    if host.training < host.peak {
        lines.push(("a process once it trains".to_owned(), host.training.to_string()));
    }
    lines.extend(host.loading.iter().map(|way| (format!("loading: {}", way.way), way.per_node.to_string())));
    lines
}

fn whole(host: &Host) -> String {
    let processes = host.per_node.get().checked_div(host.peak.get()).unwrap_or(1);
    let when = match host.step {
        0 => "while the model is loaded".to_owned(),
        step => format!("in the {} of step {step}", phase(host.phase.as_str())),
    };
    let of = if processes > 1 { format!("{processes} processes of {}", host.peak) } else { "one process".to_owned() };
    let verdict = match (host.verdict, host.capacity) {
        (Some(verdict), Some(capacity)) => format!("; {} {capacity}", verdict_words(verdict)),
        _ => String::new(),
    };
    format!("{} ({of}, most {when}){verdict}", host.per_node)
}

/// Managed memory: on the card or in the machine's memory, as there is room.
fn paged(managed: &Managed, capacity: Option<Bytes>) -> String {
    let place = match managed.evicted_per_node {
        Bytes::ZERO => "with room on the card beside its peak".to_owned(),
        evicted => format!("of which {evicted} have no room on the card at its peak and lie in the machine's memory"),
    };
    let verdict = match (managed.verdict, capacity) {
        (Some(verdict), Some(capacity)) => format!("; all of it {} {capacity}", verdict_words(verdict)),
        _ => String::new(),
    };
    format!("{} in managed memory, {place}{verdict}", managed.per_node)
}

const fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::Tight => "nearly fills",
        Verdict::DoesNotFit => "does not fit",
    }
}
