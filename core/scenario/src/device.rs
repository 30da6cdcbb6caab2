//! `[device]`: the card.

use plimsoll_catalog as catalog;
use plimsoll_ground::{Bytes, Error, Result, quoted};

use super::Scenario;
use super::lever::{Group, Near, levers};
use super::model::nearest_hint;

/// The card when none is named.
pub const DEFAULT_GPU: &str = "rtx-5070-ti-laptop";

levers! {
    /// `[device]`: the card.
    pub struct Device = "device", device of Scenario {
        /// An id in `data/gpus.toml`.
        pub gpu: String = DEFAULT_GPU.to_owned() => {
            link: "gpu",
            label: "Device",
            help: "A card of the catalog",
            group: Group::Card,
            near: Near::unlike(2.5),
        }
        /// What one process can use, where it is not the card's own.
        pub memory: Option<Bytes> = None => {
            link: "memory",
            label: "Memory",
            help: "What one process can use, in GiB, where it is not the card's own",
            otherwise: "the card's own",
            group: Group::Card,
        }
        /// How deep the run may sit.
        pub load_line: Option<Bytes> = None => {
            link: "load_line",
            label: "Load line",
            help: "How deep the run may sit, in GiB",
            otherwise: "92 % of the memory",
            group: Group::Card,
        }
        /// The memory of the machine that the cards stand in: what is offloaded lies there. Without it nothing is said of whether that
        /// fits.
        pub host_memory: Option<Bytes> = None => {
            link: "host_memory",
            label: "Machine's memory",
            help: "The memory of the machine itself, in GiB: several cards load and offload into it",
            otherwise: "not said",
            group: Group::Card,
        }
        /// Whether what kernels allocate inside (cuBLAS workspaces, ...) is counted.
        pub workspaces: bool = true => {
            link: "workspaces",
            label: "Kernel workspaces",
            help: "Count what cuBLAS and its like allocate inside",
            near: Near::unlike(0.5),
        }
    }
}

/// The first few of them.
fn some(ids: &[&str]) -> String {
    const MOST: usize = 6;
    let listed: Vec<&str> = ids.iter().copied().take(MOST).collect();
    let more = if ids.len() > MOST { format!(", and {} more", ids.len() - MOST) } else { String::new() };
    format!("{}{more}", listed.join(", "))
}

/// That no card of the catalog has this id, or that it means several: which those are, or the nearest.
pub fn no_such_gpu(id: &str) -> Error {
    let found: Vec<&str> = catalog::search::find_gpus(id).iter().map(|g| g.id).collect();
    if catalog::search::count(id).0 > 1 {
        let which = match found.as_slice() {
            [] => "rtx-4090".to_owned(),
            found => some(found),
        };
        return Error::new(
            at::gpu,
            format!("{} are several cards", quoted(id)),
            format!("name one of them ({which}), and say how many in parallel.gpus"),
        );
    }
    if let [_, _, ..] = found.as_slice() {
        let hint = format!("say which: {}", some(&found));
        return Error::new(at::gpu, format!("{} is more than one card", quoted(id)), hint);
    }
    let ids: Vec<&str> = catalog::gpus().iter().map(|g| g.id).collect();
    Error::new(
        at::gpu,
        format!("no GPU {} in the catalog", quoted(id)),
        nearest_hint(id, &found, &ids, "ids read like rtx-5070-ti-laptop, a100-80gb, h200; see the list of GPUs"),
    )
}

/// Whether there is such a card.
///
/// # Errors
/// An id that is in no catalog; a line above the memory.
pub fn check(device: &Device) -> Result<()> {
    let id = device.gpu.as_str();
    let gpu = catalog::gpu(id).ok_or_else(|| no_such_gpu(id))?;
    let capacity = device.memory.unwrap_or(gpu.memory);
    match device.load_line.filter(|line| *line > capacity) {
        None => Ok(()),
        Some(line) => Err(Error::new(
            at::load_line,
            format!("{line} is above the {capacity} of memory the device has"),
            "give a line below it, or raise device.memory",
        )),
    }
}
