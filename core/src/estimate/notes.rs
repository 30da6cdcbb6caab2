//! What an estimate should not be read without: figures that are assumed, and what is left out because nobody knows it.

use crate::catalog::{Gpu, Vendor};
use crate::tensor::Ledger;
use crate::{Scenario, device, ops};

/// A sentence for each figure of this card that no reading stands behind and that the verdict rests on. That a desktop
/// may be running is assumed of every card that can have one, and said where cards are listed.
pub fn assumed(gpu: &Gpu, scenario: &Scenario) -> Vec<String> {
    let given = scenario.device.memory.is_some();
    let matters = |part: &device::Part| match part.key {
        "memory" => !given,
        "context" => true,
        _ => false,
    };
    let parts = device::footprint(gpu);
    let assumed = parts.iter().filter(|part| part.figure.assumed && matters(part));
    assumed
        .map(|part| format!("{} of this card, {}, is assumed: {}", part.what, part.figure.bytes, part.figure.source))
        .collect()
}

/// What kernels take for themselves and nobody can know, a sentence each.
pub fn uncounted(gpu: &Gpu, ledger: &Ledger) -> Vec<String> {
    const CONVOLUTION: &str = "what cuDNN takes while a convolution runs is not counted: it depends on the algorithm it \
         picks, and on torch.backends.cudnn.benchmark";
    const CUDNN: &str = "of what cuDNN's attention takes in its backward only what its front end asks for is counted, not \
         what its own plan may ask for on top";
    const AMD: &str = "what AMD's attention kernels take in their backward is not counted: it is not known";
    let ran = |name: &str| ledger.storages.iter().any(|s| s.op == name);
    let mut sentences = Vec::new();
    if ran(ops::CONVOLUTION) {
        sentences.push(CONVOLUTION.to_owned());
    }
    if ran(ops::CUDNN_ATTENTION) {
        sentences.push(CUDNN.to_owned());
    }
    if gpu.vendor == Vendor::Amd && (ran(ops::FLASH_ATTENTION) || ran(ops::EFFICIENT_ATTENTION)) {
        sentences.push(AMD.to_owned());
    }
    sentences
}
