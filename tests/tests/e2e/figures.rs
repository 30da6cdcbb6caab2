//! The figures on the page, and the engine's own for the same scenario.

use std::cell::RefCell;

use anyhow::{Context as _, Result, ensure};
use plimsoll_core::{Scenario, estimate::estimate, grouped, scenario::Link};
use serde_json::Value;

use crate::page::Page;

/// What the page says of a run, as its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// `fits`, `tight`, `does not fit`.
    pub verdict: String,
    /// The process peak as it is read: `14.03 GiB`.
    pub peak: String,
    /// How far from the load line, either way.
    pub headroom: String,
    /// Whether that is over it.
    pub over: bool,
    /// The largest batch that fits, or `none`.
    pub largest: String,
    /// The process peak in bytes, under the breakdown.
    pub process: u64,
    /// The bytes of the breakdown's rows, by name; rows of nothing left out.
    pub parts: Vec<(String, u64)>,
}

/// What stands on the page, read at one moment.
const READ: &str = r#"
    const at = (hook, rest) => document.querySelector(`[data-testid="${hook}"]${rest ?? ""}`);
    const text = element => element?.checkVisibility() ? element.innerText.replace(/\s+/g, " ").trim() : "";
    const bytes = row => row?.dataset.bytes ?? "";
    return {
        address: location.href,
        verdict: text(at("verdict")),
        peak: text(at("peak-process")),
        headroom: text(at("headroom")),
        over: text(at("headroom")?.previousElementSibling),
        largest: text(at("max-batch", " .number")),
        process: bytes(at("breakdown-table", " tfoot tr")),
        parts: [...document.querySelectorAll("[data-testid='breakdown-table'] tbody tr")]
            .map(row => [row.querySelector("th small").previousSibling.data, bytes(row)]),
    };
"#;

/// Waits until the page says of its scenario, which is the one in the address bar, what the engine says of it here.
pub async fn agreed(page: &Page) -> Result<Figures> {
    // The engine's answer for the address seen last.
    let known = RefCell::new((String::new(), None::<Figures>));
    page.until("the page to say what the engine says", async || {
        let seen = page.eval(READ).await?;
        let address = seen.get("address").and_then(Value::as_str).context("no address")?;
        let (of, wanted) = known.take();
        let wanted = match wanted {
            Some(wanted) if of == address => wanted,
            _ => match Link::decode_strict(address) {
                Ok(scenario) => expected(&scenario)?,
                // The planner writes the address a moment after it was opened.
                Err(error) => return Ok(Err(format!("{error} in {address}"))),
            },
        };
        known.replace((address.to_owned(), Some(wanted.clone())));
        Ok(match read(&seen) {
            Some(figures) if figures == wanted => Ok(figures),
            _ => Err(format!("{seen}\nwhere the engine says {wanted:?}")),
        })
    })
    .await
}

/// The engine's figures for a scenario.
pub fn expected(scenario: &Scenario) -> Result<Figures> {
    let estimate = estimate(scenario)?;
    let (peak, at_peak) = (&estimate.peak, &estimate.at_peak);
    let process = peak.process.get();
    let reserved = peak.reserved.get();
    let mut parts: Vec<(String, u64)> = [
        ("weights", at_peak.weights),
        ("KV cache", at_peak.kv_cache),
        ("optimizer states", at_peak.optimizer_states),
        ("gradients", at_peak.gradients),
        ("autocast copies", at_peak.autocast_copies),
        ("saved activations", at_peak.saved_activations),
        ("temporaries", at_peak.temporaries),
        ("inputs", at_peak.inputs),
        ("workspace", at_peak.workspace),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes.get()))
    .into();
    // What the allocator reserved beyond what was asked of it, and what lies outside it.
    parts.push(("allocator's cache and gaps".to_owned(), reserved.saturating_sub(at_peak.total().get())));
    parts.push(("context and libraries".to_owned(), process.saturating_sub(reserved)));
    parts.retain(|(_, bytes)| *bytes > 0);
    ensure!(
        parts.iter().map(|(_, bytes)| bytes).sum::<u64>() == process,
        "the parts do not sum to the peak: {parts:?}"
    );
    let largest = estimate.max_batch.context("the engine sought no largest batch")?;
    Ok(Figures {
        verdict: estimate.verdict.label().to_owned(),
        peak: size(process),
        headroom: size(estimate.headroom.unsigned_abs()),
        over: estimate.headroom < 0,
        largest: if largest == 0 { "none".to_owned() } else { grouped(largest) },
        process,
        parts,
    })
}

/// `None` while something is not there yet.
fn read(seen: &Value) -> Option<Figures> {
    let text = |key: &str| seen.get(key).and_then(Value::as_str).map(str::to_owned);
    let row = |row: &Value| Some((row.get(0)?.as_str()?.to_owned(), row.get(1)?.as_str()?.parse().ok()?));
    let mut parts: Vec<(String, u64)> = seen.get("parts")?.as_array()?.iter().map(row).collect::<Option<_>>()?;
    parts.retain(|(_, bytes)| *bytes > 0);
    Some(Figures {
        verdict: text("verdict")?.to_lowercase(),
        peak: text("peak")?,
        headroom: text("headroom")?,
        over: text("over")?.to_lowercase().starts_with("over"),
        largest: text("largest")?,
        process: text("process")?.parse().ok()?,
        parts,
    })
}

/// A size as the page writes it: four figures, in the unit that reads best.
fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    let (unit, name) = if bytes >= 1024 * MIB { (1024 * MIB, "GiB") } else { (MIB, "MiB") };
    let value = bytes as f64 / unit as f64;
    if value < 100.0 {
        format!("{value:.2} {name}")
    } else if value < 1000.0 {
        format!("{value:.1} {name}")
    } else {
        format!("{} {name}", grouped(value.round() as u64))
    }
}
