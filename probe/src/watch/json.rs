//! How the cards are now, for programs.

use serde_json::{Value, json};

use super::Watched;

/// Version of the answer's format.
const SCHEMA: u32 = 1;

/// Sizes in bytes, utilisation in percent, power in milliwatts, temperature in degrees Celsius; `null` is what a card does
/// not tell. `note` says why there is no card. UUIDs and PCI addresses stay out.
pub fn answer(watched: &[Watched], note: Option<&str>) -> Value {
    json!({ "schema": SCHEMA, "cards": watched.iter().map(card).collect::<Vec<_>>(), "note": note })
}

fn card(watched: &Watched) -> Value {
    let (card, reading) = (&watched.card, &watched.reading);
    let processes: Vec<Value> = reading
        .processes
        .iter()
        .map(|process| json!({ "pid": process.pid, "name": process.name, "memory": process.memory }))
        .collect();
    json!({
        "index": card.index, "name": card.name, "gpu": card.gpu, "driver": card.driver, "capability": card.capability,
        "total": card.total, "reserved": reading.reserved.or(card.reserved), "capacity": card.capacity(),
        "load_line": watched.line, "used": reading.used, "utilization": reading.load.utilization,
        "power": reading.load.power, "power_limit": reading.load.power_limit,
        "temperature": reading.load.temperature, "processes": processes,
    })
}
