//! What no step of a plan is faster than: its own count of operations and bytes at the rates that card and links are sold with.

use plimsoll_catalog::Gpu;
use plimsoll_catalog::device::links;
use serde::{Deserialize, Serialize};

use crate::work::StepWork;

/// Seconds of one step on one card, each as if nothing else had to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Matrix products, convolutions and attention at the dense peak of their type.
    pub compute: f64,
    /// What goes to other cards of the machine.
    pub peers: f64,
    /// What goes to other machines.
    pub network: f64,
    /// What goes to the machine's memory and back.
    pub host: f64,
}

impl Bound {
    /// Of a step's work.
    pub(super) fn of(work: &StepWork, gpu: &Gpu) -> Self {
        let rate = |dtype: &str| match dtype {
            "fp32" | "fp64" => gpu.tflops_fp32,
            "bf16" => gpu.tflops_bf16.unwrap_or(gpu.tflops_fp32),
            _ => gpu.tflops_fp16,
        };
        let phases = [&work.forward, &work.backward, &work.optimizer];
        let seconds = |(dtype, flops): (&&'static str, &u64)| *flops as f64 / (rate(dtype) * 1e12);
        let compute = phases.iter().flat_map(|phase| phase.flops.iter().map(seconds)).sum();
        let links = links(gpu);
        let over = |bytes: plimsoll_ground::Bytes, rate: f64| bytes.get() as f64 / (rate * 1e9);
        Self {
            compute,
            peers: over(work.traffic.peers, links.peers),
            network: over(work.traffic.network, links.network),
            host: over(work.traffic.host, links.host),
        }
    }

    /// Where everything else is hidden behind the longest.
    pub fn hidden(&self) -> f64 {
        self.compute.max(self.peers).max(self.network).max(self.host)
    }

    /// [`Bound::hidden`] in three digits.
    pub fn in_words(&self) -> String {
        seconds(self.hidden())
    }

    /// Where nothing is hidden.
    pub fn one_by_one(&self) -> f64 {
        self.compute + self.peers + self.network + self.host
    }
}

/// Seconds, in three digits.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.0001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_said_in_few_digits() {
        let said = [0.000_002, 0.0125, 0.4351, 1.234, 37.42, 250.0].map(seconds);
        assert_eq!(said, ["2.0 us", "12.5 ms", "435 ms", "1.23 s", "37.4 s", "250 s"]);
    }
}
