//! Why there is no card to read, and what to do.

use nvml_wrapper::error::NvmlError;

use super::Roots;
use super::amdgpu;
use super::roots::{entries, text};

/// NVIDIA's PCI vendor id.
const NVIDIA: &str = "0x10de";

/// In a sentence or two.
pub fn explain(roots: &Roots, nvml: Option<&NvmlError>) -> String {
    let amd = !amdgpu::devices(roots).is_empty();
    match (nvml, amd) {
        (Some(problem), _) if !missing(problem) => nvidia(problem),
        (_, true) => "An AMD card is here, but its driver does not say how much memory it has: it takes the amdgpu driver of \
                      Linux 5.3 or later."
            .to_owned(),
        (Some(_), false) if on_the_bus(roots, NVIDIA) => {
            "An NVIDIA card is here, but not its library libnvidia-ml.so.1: install NVIDIA's driver; in a container, start \
             it with the GPU (docker run --gpus all)."
                .to_owned()
        }
        (Some(_), false) if on_the_bus(roots, amdgpu::VENDOR) => {
            "An AMD card is here, but not its driver: load the kernel module amdgpu.".to_owned()
        }
        _ => none(),
    }
}

fn none() -> String {
    let read = if cfg!(target_os = "linux") {
        "neither an NVIDIA card, through libnvidia-ml.so.1, nor an AMD card, through the amdgpu driver"
    } else if cfg!(windows) {
        "no NVIDIA card, through nvml.dll; AMD's are read on Linux only"
    } else {
        "only NVIDIA's cards are read on this system, and AMD's on Linux"
    };
    format!("No card can be read here: {read}. In a container or virtual machine the card must be passed in.")
}

/// Whether the library is simply not there.
fn missing(problem: &NvmlError) -> bool {
    matches!(problem, NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound)
}

fn nvidia(problem: &NvmlError) -> String {
    let advice = match problem {
        NvmlError::DriverNotLoaded => "load the kernel module (modprobe nvidia) or install the driver anew",
        NvmlError::LibRmVersionMismatch => "the driver was updated while it was loaded: restart the machine",
        NvmlError::NoPermission | NvmlError::OperatingSystem => {
            "this user or container may not use it: check the rights of /dev/nvidia* and the container's GPU option"
        }
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => "it takes a driver of version 510 or later",
        NvmlError::GpuLost | NvmlError::ResetRequired => "the card is gone until the machine restarts",
        _ => "see whether nvidia-smi works",
    };
    format!("NVIDIA's driver does not answer ({problem}): {advice}.")
}

/// Whether a display or 3D controller of this maker is there.
fn on_the_bus(roots: &Roots, vendor: &str) -> bool {
    entries(&roots.sys("bus/pci/devices")).iter().any(|device| {
        text(&device.join("vendor")).as_deref() == Some(vendor)
            && text(&device.join("class")).is_some_and(|class| class.starts_with("0x03"))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_wrong_and_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::at(root.path(), root.path());
        assert!(explain(&roots, None).contains("No card can be read here"));
        assert!(explain(&roots, Some(&NvmlError::DriverNotLoaded)).contains("modprobe nvidia"));
        assert!(explain(&roots, Some(&NvmlError::LibRmVersionMismatch)).contains("restart"));
        assert!(explain(&roots, Some(&NvmlError::NoPermission)).contains("may not use it"));
        assert!(explain(&roots, Some(&NvmlError::LibraryNotFound)).contains("No card can be read here"));

        let device = root.path().join("bus/pci/devices/0000:01:00.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("vendor"), "0x10de\n").unwrap();
        fs::write(device.join("class"), "0x030000\n").unwrap();
        assert!(explain(&roots, Some(&NvmlError::LibraryNotFound)).contains("install NVIDIA's driver"));
        fs::write(device.join("vendor"), "0x1002\n").unwrap();
        assert!(explain(&roots, Some(&NvmlError::LibraryNotFound)).contains("load the kernel module amdgpu"));

        let card = root.path().join("class/drm/card0/device");
        fs::create_dir_all(&card).unwrap();
        fs::write(card.join("vendor"), "0x1002\n").unwrap();
        assert!(explain(&roots, None).contains("does not say how much memory"));
    }
}
