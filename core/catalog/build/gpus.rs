//! `data/gpus.toml` to a `static` of cards.

use std::collections::BTreeSet;
use std::fmt::Write;

use toml::Table;

use crate::rows::{Row, check_id, tables};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const SERIES_KEYS: &[&str] = &["vendor", "architecture", "compute_capability", "form", "source", "cards"];
const CARD_KEYS: &[&str] = &[
    "id",
    "name",
    "gib",
    "sizes_gib",
    "mib",
    "gb_s",
    "sms",
    "fp32",
    "fp16",
    "bf16",
    "vendor",
    "architecture",
    "compute_capability",
    "form",
    "source",
];
const FORMS: &[&str] = &["desktop", "laptop", "server", "workstation", "unified"];

/// The Rust source of `static GPUS`.
///
/// # Errors
/// Every problem found, each naming the file and the row.
pub fn generate(file: &str, text: &str) -> Result<String, Vec<String>> {
    let document: Table = toml::from_str(text).map_err(|e| vec![format!("{file}: {e}")])?;
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    let mut out = String::from("static GPUS: &[Gpu] = &[\n");
    for series in tables(file, &document, "series").map_err(|e| vec![e])? {
        if let Some(key) = series.keys().find(|k| !SERIES_KEYS.contains(&k.as_str())) {
            problems.push(format!(
                "{file}: nothing reads the key {key} of a series; it may be one of {}",
                SERIES_KEYS.join(", ")
            ));
        }
        let cards = tables(file, series, "cards").unwrap_or_else(|e| {
            problems.push(e);
            Vec::new()
        });
        for card in cards {
            let row = Row::new(file, "card", card, Some(series));
            match read(&row) {
                Ok(devices) => {
                    for device in devices {
                        if !ids.insert(device.id.clone()) {
                            problems.push(row.problem(&format!("the id \"{}\" is used twice", device.id)));
                        }
                        device.print(&mut out);
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
    }
    out.push_str("];\n");
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

struct Device {
    id: String,
    name: String,
    vendor: &'static str,
    architecture: String,
    compute_capability: Option<(u8, u8)>,
    form: String,
    memory: u64,
    memory_assumed: bool,
    bandwidth: f64,
    multiprocessors: Option<u64>,
    fp32: f64,
    fp16: f64,
    bf16: Option<f64>,
    source: String,
}

/// A card's line; more than one device when it comes in several sizes of unified memory.
fn read(row: &Row) -> Result<Vec<Device>, String> {
    row.only(CARD_KEYS)?;
    let id = row.text("id")?;
    check_id(id).map_err(|e| row.problem(&e))?;
    let vendor = match row.text("vendor")? {
        "nvidia" => "Nvidia",
        "amd" => "Amd",
        "apple" => "Apple",
        other => return Err(row.problem(&format!("vendor \"{other}\" is not one of nvidia, amd, apple"))),
    };
    let form = row.text("form")?;
    if !FORMS.contains(&form) {
        return Err(row.problem(&format!("form \"{form}\" is not one of {}", FORMS.join(", "))));
    }
    let compute_capability = match (vendor, row.text("compute_capability")) {
        ("Nvidia", text) => {
            Some(capability(text?).ok_or_else(|| row.problem("compute_capability must read like \"8.9\""))?)
        }
        (_, Ok(_)) => return Err(row.problem("compute_capability is NVIDIA's; leave it out")),
        (_, Err(_)) => None,
    };
    let needed = |key: &str| row.number(key)?.ok_or_else(|| row.problem(&format!("{key} is missing")));
    let reading = row.whole("mib")?;
    let sizes = match (row.whole("gib")?, row.wholes("sizes_gib")?) {
        (Some(gib), None) => vec![(id.to_owned(), row.text("name")?.to_owned(), gib)],
        (None, Some(_)) if reading.is_some() => {
            return Err(row.problem("mib needs gib: with sizes_gib it is unclear whose it is"));
        }
        (None, Some(list)) => list
            .into_iter()
            .map(|n| (format!("{id}-{n}gb"), format!("{} {n} GB", row.text("name").unwrap_or_default()), n))
            .collect(),
        _ => return Err(row.problem("give either gib or sizes_gib")),
    };
    row.text("name")?;
    let multiprocessors = row.whole("sms")?;
    if multiprocessors.is_some() && vendor != "Nvidia" {
        return Err(row.problem("sms is NVIDIA's; leave it out"));
    }
    let mut devices = Vec::new();
    for (id, name, gib) in sizes {
        let nominal = gib * GIB;
        let memory = reading.map_or_else(|| derived(vendor, nominal), |mib| mib * MIB);
        // Inline ECC takes a sixteenth; a reading outside this is a typing error. B200 reads above its nominal 180 GB.
        if memory < nominal / 10 * 6 || memory > nominal / 100 * 103 {
            return Err(row.problem(&format!("{memory} bytes is not the memory of a {gib} GiB card")));
        }
        devices.push(Device {
            id,
            name,
            vendor,
            architecture: row.text("architecture")?.to_owned(),
            compute_capability,
            form: form.to_owned(),
            memory,
            memory_assumed: reading.is_none(),
            bandwidth: needed("gb_s")?,
            multiprocessors,
            fp32: needed("fp32")?,
            fp16: needed("fp16")?,
            bf16: row.number("bf16")?,
            source: row.text("source")?.to_owned(),
        });
    }
    Ok(devices)
}

/// Memory of a card for which no reading was found; the rules and what they rest on stand at the head of the data file.
fn derived(vendor: &str, nominal: u64) -> u64 {
    match vendor {
        "Nvidia" => nominal / 1000 * 995,
        "Amd" => nominal - 16 * MIB,
        _ if nominal < 36 * GIB => nominal / 3 * 2,
        _ => nominal / 4 * 3,
    }
}

fn capability(text: &str) -> Option<(u8, u8)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Device {
    fn print(&self, out: &mut String) {
        let Self { id, name, vendor, architecture, compute_capability, form, memory, memory_assumed, .. } = self;
        let Self { bandwidth, multiprocessors, fp32, fp16, bf16, source, .. } = self;
        let written = writeln!(
            out,
            "    Gpu {{ id: {id:?}, name: {name:?}, vendor: Vendor::{vendor}, architecture: {architecture:?}, \
             compute_capability: {compute_capability:?}, form: {form:?}, memory: Bytes::new({memory}), \
             memory_assumed: {memory_assumed}, bandwidth_gb_s: {bandwidth:?}, multiprocessors: {multiprocessors:?}, \
             tflops_fp32: {fp32:?}, tflops_fp16: {fp16:?}, tflops_bf16: {bf16:?}, source: {source:?} }},"
        );
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
}
