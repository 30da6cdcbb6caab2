//! NVIDIA's cards, through the management library that comes with their driver.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use plimsoll_core::Bytes;

use super::family::program;
use super::{Card, Entry, Load, Memory, ProcessUse, Reader, Source};

/// Bytes of a process's name, its path included.
const NAME: usize = 1024;

/// What NVML had to say.
#[derive(Default)]
pub struct Found {
    /// The cards it can read.
    pub entries: Vec<Entry>,
    /// Why there is none.
    pub problem: Option<NvmlError>,
}

/// All cards NVML can read.
pub fn open() -> Found {
    match Nvml::init() {
        Ok(nvml) => cards(&Arc::new(nvml)),
        Err(problem) => Found { entries: Vec::new(), problem: Some(problem) },
    }
}

fn cards(nvml: &Arc<Nvml>) -> Found {
    let driver = nvml.sys_driver_version().ok();
    let mut found = Found::default();
    for index in 0..nvml.device_count().unwrap_or_default() {
        match nvml.device_by_index(index).and_then(|device| card(&device, driver.as_deref())) {
            Ok(card) => {
                let source = Arc::new(NvmlCard { nvml: Arc::clone(nvml), index });
                found.entries.push(Entry { card, source });
            }
            Err(problem) => found.problem = Some(problem),
        }
    }
    found
}

/// Without its memory a card is of no use here; the rest it need not tell.
fn card(device: &Device<'_>, driver: Option<&str>) -> Result<Card, NvmlError> {
    let memory = device.memory_info()?;
    Ok(Card {
        name: device.name()?,
        uuid: device.uuid().ok(),
        pci: device.pci_info().ok().map(|pci| pci.bus_id),
        total: Bytes::new(memory.total),
        reserved: Some(Bytes::new(memory.reserved)),
        driver: driver.map(str::to_owned),
        capability: device.cuda_compute_capability().ok().map(|cc| format!("{}.{}", cc.major, cc.minor)),
        ..Card::default()
    })
}

/// One card; its handle is asked for anew each time, which costs nothing beside the readings.
struct NvmlCard {
    nvml: Arc<Nvml>,
    index: u32,
}

impl NvmlCard {
    fn device(&self) -> Option<Device<'_>> {
        self.nvml.device_by_index(self.index).ok()
    }
}

impl Source for NvmlCard {
    fn reader(&self) -> Reader {
        Reader::Nvml
    }

    fn memory(&self) -> Option<Memory> {
        let info = self.device()?.memory_info().ok()?;
        Some(Memory { used: Bytes::new(info.used), reserved: Some(Bytes::new(info.reserved)) })
    }

    fn load(&self) -> Load {
        let Some(device) = self.device() else { return Load::default() };
        let small = |n: u32| u8::try_from(n).ok();
        Load {
            utilization: device.utilization_rates().ok().and_then(|rates| small(rates.gpu)),
            power: device.power_usage().ok().map(u64::from),
            power_limit: device.enforced_power_limit().ok().map(u64::from),
            temperature: device.temperature(TemperatureSensor::Gpu).ok().and_then(small),
        }
    }

    fn processes(&self) -> Vec<ProcessUse> {
        let Some(device) = self.device() else { return Vec::new() };
        let compute = device.running_compute_processes().unwrap_or_default();
        let graphics = device.running_graphics_processes().unwrap_or_default();
        by_pid(compute.into_iter().chain(graphics))
    }

    /// The only way to it on Windows.
    fn name(&self, pid: u32) -> Option<String> {
        let path = self.nvml.sys_process_name(pid, NAME).ok()?;
        Some(program(&path)).filter(|name| !name.is_empty())
    }

    /// Only the compute contexts: asking for the others as well would double the time, and a worker draws nothing.
    fn held_by(&self, pids: &[u32]) -> Option<Bytes> {
        let of_them = by_pid(self.device()?.running_compute_processes().ok()?).into_iter();
        of_them.filter(|p| pids.contains(&p.pid)).filter_map(|p| p.memory).reduce(|a, b| a + b)
    }
}

/// One row a process: who computes and draws is in both lists, with the same memory.
fn by_pid(listed: impl IntoIterator<Item = ProcessInfo>) -> Vec<ProcessUse> {
    let mut rows: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    for process in listed {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes::new(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        let row = rows.entry(process.pid).or_default();
        *row = (*row).max(memory);
    }
    rows.into_iter().map(|(pid, memory)| ProcessUse { pid, name: None, memory }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: u32, used_gpu_memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn a_process_that_computes_and_draws_counts_once() {
        let listed = [
            info(7, UsedGpuMemory::Used(300)),
            info(9, UsedGpuMemory::Unavailable),
            info(7, UsedGpuMemory::Used(300)),
            info(9, UsedGpuMemory::Unavailable),
        ];
        let rows: Vec<_> = by_pid(listed).into_iter().map(|p| (p.pid, p.memory)).collect();
        assert_eq!(rows, [(7, Some(Bytes::new(300))), (9, None)]);
    }
}
