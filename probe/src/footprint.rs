//! What a card holds before a run begins, with where each figure comes from.

use std::fmt::Write as _;

use plimsoll_core::catalog::Gpu;
use plimsoll_core::device;
use plimsoll_core::solve::needs::{self, Method};
use serde_json::{Map, Value, json};

use crate::view::{Paint, WIDTH, wrapped};

/// As keys of a JSON object.
pub fn keys(gpu: &Gpu) -> Map<String, Value> {
    let limits = device::limits(gpu, None, None);
    let mut keys = Map::new();
    keys.insert("capacity".to_owned(), json!(limits.capacity));
    keys.insert("load_line".to_owned(), json!(limits.load_line));
    for part in device::footprint(gpu).iter().filter(|part| part.key != "memory") {
        let figure =
            json!({ "bytes": part.figure.bytes, "assumed": part.figure.assumed, "source": part.figure.source });
        keys.insert(part.key.to_owned(), figure);
    }
    keys.insert("memory_assumed".to_owned(), json!(gpu.memory_assumed));
    keys
}

/// As text below the card's line.
pub fn text(gpu: &Gpu, paint: Paint) -> String {
    const INDENT: usize = 4;
    let mut out = String::new();
    let limits = device::limits(gpu, None, None);
    for part in device::footprint(gpu) {
        let assumed = if part.figure.assumed { "   assumed" } else { "" };
        let _ = writeln!(out, "    {:<24}{:>10}{}", part.what, part.figure.bytes.to_string(), paint.strong(assumed));
        for line in wrapped(part.figure.source, WIDTH - 2 * INDENT) {
            let _ = writeln!(out, "        {}", paint.quiet(&line));
        }
    }
    let _ = writeln!(out, "    {:<24}{:>10}", "one process can have", limits.capacity.to_string());
    let _ = writeln!(out, "    {:<24}{:>10}", "load line", limits.load_line.to_string());
    let _ = writeln!(out, "    The largest model of the catalog it can train, one sample at a time:");
    for way in Method::ALL {
        let name = needs::largest(gpu, way).map_or("none", |model| model.name);
        let _ = writeln!(out, "    {:<24}{name}", way.label());
    }
    out
}
