//! AMD's cards, through the files of the kernel's `amdgpu` driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::Bytes;

use super::drm::Clients;
use super::roots::{entries, number, text};
use super::{Card, Entry, Load, Memory, ProcessUse, Reader, Roots, Source};

/// AMD's PCI vendor id.
pub const VENDOR: &str = "0x1002";

/// libdrm's table of marketing names, where distributions put it.
const NAMES: &str = "/usr/share/libdrm/amdgpu.ids";

/// All cards whose driver tells how much memory they have, by PCI address.
pub fn open(roots: &Roots) -> Vec<Entry> {
    let mut found: Vec<Entry> = devices(roots).iter().filter_map(|device| card(device, roots)).collect();
    found.sort_by(|a, b| a.card.pci.cmp(&b.card.pci));
    found
}

/// The device directories of AMD's cards, of those too whose driver tells nothing.
pub fn devices(roots: &Roots) -> Vec<PathBuf> {
    let cards = entries(&roots.sys("class/drm")).into_iter().filter(|path| {
        // `card0` is a card, `card0-DP-1` one of its connectors.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("card").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    });
    let devices = cards.map(|card| card.join("device"));
    devices.filter(|device| text(&device.join("vendor")).as_deref() == Some(VENDOR)).collect()
}

fn card(device: &Path, roots: &Roots) -> Option<Entry> {
    let total = Bytes::new(number(&device.join("mem_info_vram_total"))?);
    let pci = pci(device);
    let sensors = entries(&device.join("hwmon")).into_iter().next();
    let card = Card { name: name(device), pci: pci.clone(), total, driver: driver(roots), ..Card::default() };
    let clients = Mutex::new(Clients::new(roots.clone(), pci));
    Some(Entry { card, source: Arc::new(AmdCard { device: device.to_owned(), sensors, clients }) })
}

/// `PCI_SLOT_NAME` of the device's uevent, else the name of the directory the link leads to.
fn pci(device: &Path) -> Option<String> {
    let uevent = text(&device.join("uevent")).unwrap_or_default();
    let slot = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(str::to_owned);
    slot.or_else(|| Some(fs::canonicalize(device).ok()?.file_name()?.to_str()?.to_owned()))
}

/// The driver's own module has a version; the one in the kernel is known by the kernel's.
fn driver(roots: &Roots) -> Option<String> {
    text(&roots.sys("module/amdgpu/version")).or_else(|| text(&roots.proc("sys/kernel/osrelease")))
}

/// The card's own product name, else libdrm's name for it, else its number.
fn name(device: &Path) -> String {
    let own = text(&device.join("product_name")).filter(|name| !name.is_empty());
    own.or_else(|| listed_name(device, &fs::read_to_string(NAMES).ok()?)).unwrap_or_else(|| {
        let number = text(&device.join("device")).unwrap_or_default();
        format!("AMD GPU {number}").trim_end().to_owned()
    })
}

/// Lines of the table: `744C,\tC8,\tAMD Radeon RX 7900 XTX`: device, revision, name.
fn listed_name(device: &Path, table: &str) -> Option<String> {
    let wanted = [hex(&device.join("device"))?, hex(&device.join("revision"))?];
    table.lines().find_map(|line| {
        let mut columns = line.splitn(3, ',').map(str::trim);
        let ids = [columns.next()?, columns.next()?].map(|id| u32::from_str_radix(id, 16).ok());
        (ids == wanted.map(Some)).then(|| columns.next().map(str::to_owned))?
    })
}

fn hex(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.strip_prefix("0x")?, 16).ok()
}

struct AmdCard {
    device: PathBuf,
    sensors: Option<PathBuf>,
    clients: Mutex<Clients>,
}

impl AmdCard {
    /// The first of these sensors that there is.
    fn sensor(&self, names: &[&str]) -> Option<u64> {
        let sensors = self.sensors.as_ref()?;
        names.iter().find_map(|name| number(&sensors.join(name)))
    }
}

impl Source for AmdCard {
    fn reader(&self) -> Reader {
        Reader::Amdgpu
    }

    fn memory(&self) -> Option<Memory> {
        Some(Memory { used: Bytes::new(number(&self.device.join("mem_info_vram_used"))?), reserved: None })
    }

    /// hwmon gives power in microwatts and temperatures in thousandths of a degree; `temp1` is the edge of the die, which
    /// accelerators lack, `temp2` its hottest point.
    fn load(&self) -> Load {
        Load {
            utilization: number(&self.device.join("gpu_busy_percent")).and_then(|n| u8::try_from(n).ok()),
            power: self.sensor(&["power1_average", "power1_input"]).map(|microwatts| microwatts / 1000),
            power_limit: self.sensor(&["power1_cap"]).map(|microwatts| microwatts / 1000),
            temperature: self.sensor(&["temp1_input", "temp2_input"]).and_then(|n| u8::try_from(n / 1000).ok()),
        }
    }

    fn processes(&self) -> Vec<ProcessUse> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).everyone()
    }

    fn held_by(&self, pids: &[u32]) -> Option<Bytes> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).held_by(pids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("class/drm").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let roots = Roots::at(root.path(), root.path());
        (root, roots)
    }

    #[test]
    fn only_amds_cards_that_tell_their_memory_by_address() {
        let (_root, roots) = machine(&[
            ("card0/device/vendor", VENDOR),
            ("card0/device/mem_info_vram_total", "8573157376"),
            ("card0/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:43:00.0"),
            ("card1/device/vendor", VENDOR),
            ("card1/device/mem_info_vram_total", "17163091968"),
            ("card1/device/uevent", "PCI_SLOT_NAME=0000:03:00.0"),
            ("card1-DP-1/device/vendor", VENDOR),
            ("card2/device/vendor", "0x8086"),
            ("card2/device/mem_info_vram_total", "17163091968"),
            ("card3/device/vendor", VENDOR),
            ("renderD128/device/vendor", VENDOR),
        ]);
        let found = open(&roots);
        let rows: Vec<_> = found.iter().map(|entry| (entry.card.pci.as_deref(), entry.card.total.get())).collect();
        assert_eq!(rows, [(Some("0000:03:00.0"), 17_163_091_968), (Some("0000:43:00.0"), 8_573_157_376)]);
        assert_eq!(devices(&roots).len(), 3);
        // Nothing else is there to be read, and nothing is made up.
        let source = found.first().map(|entry| Arc::clone(&entry.source)).unwrap();
        assert_eq!((source.memory(), source.load()), (None, Load::default()));
    }

    #[test]
    fn an_accelerators_sensors() {
        let (_root, roots) = machine(&[
            ("card0/device/vendor", VENDOR),
            ("card0/device/mem_info_vram_total", "206141652992"),
            ("card0/device/mem_info_vram_used", "1073741824"),
            ("card0/device/gpu_busy_percent", "100"),
            ("card0/device/hwmon/hwmon5/power1_input", "750400000"),
            ("card0/device/hwmon/hwmon5/temp2_input", "68500"),
        ]);
        let source = open(&roots).first().map(|entry| Arc::clone(&entry.source)).unwrap();
        let load = Load { utilization: Some(100), power: Some(750_400), power_limit: None, temperature: Some(68) };
        assert_eq!(source.load(), load);
        assert_eq!(source.memory().map(|memory| memory.used), Some(Bytes::from_gib(1)));
    }

    #[test]
    fn names() {
        let (root, _) = machine(&[("card0/device/device", "0x744c"), ("card0/device/revision", "0xc8")]);
        let device = root.path().join("class/drm/card0/device");
        let table = "1.0.0\n# List\n744C,\tCC,\tAMD Radeon RX 7900 GRE\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n";
        assert_eq!(listed_name(&device, table).as_deref(), Some("AMD Radeon RX 7900 XTX"));
        assert_eq!(listed_name(&device, "744C,\tCC,\tother"), None);
        fs::write(device.join("product_name"), "AMD Instinct MI300X\n").unwrap();
        assert_eq!(name(&device), "AMD Instinct MI300X");
    }
}
