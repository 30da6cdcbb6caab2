//! Models and cards people can name, compiled in from `data/`.

use std::sync::{LazyLock, OnceLock};

use plimsoll_ground::Bytes;
use serde_json::{Map, Value};

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;

// Written by `build.rs`, which checks the data files and knows their format.
include!(concat!(env!("OUT_DIR"), "/gpus.rs"));
include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Who makes the card; decides which allocator and context rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// CUDA.
    Nvidia,
    /// ROCm.
    Amd,
    /// Metal, unified memory.
    Apple,
}

/// One row of `data/gpus.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// `rtx-5070-ti-laptop`.
    pub id: &'static str,
    /// `GeForce RTX 5070 Ti Laptop GPU`.
    pub name: &'static str,
    /// Who makes it.
    pub vendor: Vendor,
    /// `blackwell`, `ada`, `hopper`, `rdna4`, `cdna3`, `m4`, ...
    pub architecture: &'static str,
    /// CUDA compute capability; `None` on other vendors.
    pub compute_capability: Option<(u8, u8)>,
    /// `desktop`, `laptop`, `server`, `workstation`, `unified`.
    pub form: &'static str,
    /// Memory as the driver reports it (`nvidia-smi` total; Metal's recommended working set on Apple).
    pub memory: Bytes,
    /// Whether `memory` was derived from the nominal size by a documented rule because no reading was found.
    pub memory_assumed: bool,
    /// Memory bandwidth in GB/s (10^9).
    pub bandwidth_gb_s: f64,
    /// Streaming multiprocessors of an NVIDIA card; `None` where nobody lists them, and on other vendors.
    pub multiprocessors: Option<u64>,
    /// Dense peak TFLOP/s in float32 (no tensor cores).
    pub tflops_fp32: f64,
    /// Dense peak TFLOP/s in float16 with tensor cores where there are any, float32 accumulation.
    pub tflops_fp16: f64,
    /// The same in bfloat16; `None` where the hardware has none or the vendor publishes none.
    pub tflops_bf16: Option<f64>,
    /// Where the figures come from.
    pub source: &'static str,
}

/// One row of `data/models/*.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// `llama-3.2-1b`.
    pub id: &'static str,
    /// `Llama 3.2 1B`.
    pub name: &'static str,
    /// Who published it: `Meta`, `Mistral AI`, ...
    pub publisher: &'static str,
    /// The Hugging Face `config.json` as JSON text (keys that bear on memory).
    pub config: &'static str,
    /// `model_type` inside it.
    pub model_type: &'static str,
    /// Exact number of parameters; tied weights count once.
    pub parameters: u64,
    /// Where the configuration comes from (repository id on the Hub, or paper).
    pub source: &'static str,
}

/// All cards, in the order of the data file.
pub fn gpus() -> &'static [Gpu] {
    GPUS
}

/// The card with this id.
pub fn gpu(id: &str) -> Option<&'static Gpu> {
    gpus().iter().find(|g| g.id == id)
}

/// All models, families together, small to large.
pub fn models() -> &'static [Model] {
    MODELS
}

/// The model with this id.
pub fn model(id: &str) -> Option<&'static Model> {
    models().iter().find(|m| m.id == id)
}

/// The config of the model with this id. It is parsed once: whoever changes a scenario asks for it many times.
pub fn config(id: &str) -> Option<&'static Map<String, Value>> {
    static PARSED: LazyLock<Vec<OnceLock<Map<String, Value>>>> =
        LazyLock::new(|| models().iter().map(|_| OnceLock::new()).collect());
    let at = models().iter().position(|m| m.id == id)?;
    let model = models().get(at)?;
    // The build refuses an entry that is no JSON object.
    Some(PARSED.get(at)?.get_or_init(|| serde_json::from_str(model.config).unwrap_or_default()))
}
