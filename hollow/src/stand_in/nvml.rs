//! NVML, as far as PyTorch and the probe call it: the cards, and what processes hold of them (NVML API Reference).

use std::ffi::{CStr, c_char};

use super::attributes::BUS;
use super::book::Holder;
use super::call::{Status, api, nothing, put, put_text, status};
use super::cards::{Device, cards};
use crate::identity::uuid_text;

const UNSUPPORTED: Status = 3;
const NOT_FOUND: Status = 6;
const TOO_SMALL: Status = 7;
const BAD_ARGUMENT: Status = 2;

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
pub struct OldProcess {
    pid: u32,
    used: u64,
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
pub struct Process {
    pid: u32,
    used: u64,
    instances: [u32; 2],
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct Pci {
    old: [u8; 16],
    place: [u32; 3],
    ids: [u32; 2],
    bus: [u8; 32],
}

/// `nvmlGpuFabricInfo_v1_t`, as which the later ones begin.
#[repr(C)]
pub struct Fabric {
    version: u32,
    cluster: [u8; 16],
    status: u32,
    clique: u32,
    state: u8,
}

/// A card's handle: its place among all cards, seen by CUDA or not, counted from 1.
fn physical(handle: u64) -> Option<usize> {
    let index = (handle as usize).checked_sub(1)?;
    (index < cards().setup.cards.len()).then_some(index)
}

/// The same card as CUDA sees it, if it does.
fn seen(index: usize) -> Option<&'static Device> {
    cards().iter().find(|device| device.physical == index)
}

/// The driver's own version: the runtime's, since there is no other.
fn driver() -> String {
    let cuda = cards().setup.cuda;
    format!("{}.{:02}.00", cuda / 1000, cuda % 1000 / 10)
}

macro_rules! card {
    ($handle:expr) => {
        match physical($handle) {
            Some(index) => index,
            None => return BAD_ARGUMENT,
        }
    };
}

/// What this process holds of a card.
fn own(index: usize) -> u64 {
    seen(index).filter(|d| d.active()).map_or(0, |d| d.space().used())
}

/// Total, what the driver keeps, and what is used of the rest, bytes.
fn memory(index: usize) -> [u64; 3] {
    let card = &cards().setup.cards[index];
    let used = own(index).saturating_add(cards().book.taken_by_others(index));
    [card.board, card.board.saturating_sub(card.memory), used]
}

/// The processes of the rehearsal that hold something of the card.
unsafe fn running<T>(handle: u64, count: *mut u32, to: *mut T, process: impl Fn(Holder) -> T) -> Status {
    let index = card!(handle);
    let mut holders = cards().book.others(index);
    let used = own(index);
    if used > 0 {
        holders.push(Holder { pid: std::process::id(), used });
    }
    // SAFETY: the caller's: a count, and room for as many.
    unsafe {
        let room = *count as usize;
        put(count, holders.len() as u32);
        if room < holders.len() {
            return TOO_SMALL;
        }
        for (place, holder) in holders.into_iter().enumerate() {
            put(to.add(place), process(holder));
        }
    }
    status::SUCCESS
}

api! {
    fn nvmlSystemGetDriverVersion(to: *mut u8, room: u32) { put_text(to, room as usize, &driver()); status::SUCCESS }
    fn nvmlSystemGetNVMLVersion(to: *mut u8, room: u32) { put_text(to, room as usize, &driver()); status::SUCCESS }
    fn nvmlSystemGetCudaDriverVersion(to: *mut i32) { put(to, cards().setup.cuda); status::SUCCESS }
    fn nvmlSystemGetCudaDriverVersion_v2(to: *mut i32) { put(to, cards().setup.cuda); status::SUCCESS }
    fn nvmlDeviceGetCount_v2(to: *mut u32) { put(to, cards().setup.cards.len() as u32); status::SUCCESS }
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, to: *mut u64) {
        if index as usize >= cards().setup.cards.len() { return BAD_ARGUMENT }
        put(to, u64::from(index) + 1);
        status::SUCCESS
    }
    fn nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, to: *mut u64) {
        let text = CStr::from_ptr(text).to_string_lossy();
        let bus = text.split(':').nth(1).and_then(|bus| usize::from_str_radix(bus, 16).ok());
        let Some(index) = bus.and_then(|bus| bus.checked_sub(BUS)).filter(|&i| i < cards().setup.cards.len()) else {
            return NOT_FOUND;
        };
        put(to, index as u64 + 1);
        status::SUCCESS
    }
    fn nvmlDeviceGetHandleByUUID(text: *const c_char, to: *mut u64) {
        let text = CStr::from_ptr(text).to_string_lossy();
        let Some(index) = (0..cards().setup.cards.len()).find(|&i| uuid_text(i) == text) else { return NOT_FOUND };
        put(to, index as u64 + 1);
        status::SUCCESS
    }
    fn nvmlDeviceGetIndex(handle: u64, to: *mut u32) { put(to, card!(handle) as u32); status::SUCCESS }
    fn nvmlDeviceGetName(handle: u64, to: *mut u8, room: u32) {
        put_text(to, room as usize, &cards().setup.cards[card!(handle)].name);
        status::SUCCESS
    }
    fn nvmlDeviceGetUUID(handle: u64, to: *mut u8, room: u32) {
        put_text(to, room as usize, &uuid_text(card!(handle)));
        status::SUCCESS
    }
    fn nvmlDeviceGetCudaComputeCapability(handle: u64, major: *mut i32, minor: *mut i32) {
        let (a, b) = cards().setup.cards[card!(handle)].capability;
        put(major, a as i32);
        put(minor, b as i32);
        status::SUCCESS
    }
    fn nvmlDeviceGetPciInfo_v3(handle: u64, to: *mut Pci) {
        let bus = BUS + card!(handle);
        let mut pci = Pci { old: [0; 16], place: [0, bus as u32, 0], ids: [0; 2], bus: [0; 32] };
        put_text(pci.old.as_mut_ptr(), 16, &format!("0000:{bus:02X}:00.0"));
        put_text(pci.bus.as_mut_ptr(), 32, &format!("00000000:{bus:02X}:00.0"));
        put(to, pci);
        status::SUCCESS
    }
    fn nvmlDeviceGetMemoryInfo(handle: u64, to: *mut [u64; 3]) {
        let [total, kept, used] = memory(card!(handle));
        put(to, [total, total.saturating_sub(kept + used), kept + used]);
        status::SUCCESS
    }
    fn nvmlDeviceGetMemoryInfo_v2(handle: u64, to: *mut [u64; 5]) {
        let [total, kept, used] = memory(card!(handle));
        let version = to.cast::<u64>().read_unaligned();
        put(to, [version, total, kept, total.saturating_sub(kept + used), used]);
        status::SUCCESS
    }
    fn nvmlDeviceGetComputeRunningProcesses(handle: u64, count: *mut u32, to: *mut OldProcess) {
        running(handle, count, to, |Holder { pid, used }| OldProcess { pid, used })
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: u64, count: *mut u32, to: *mut Process) {
        nvmlDeviceGetComputeRunningProcesses_v3(handle, count, to)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: u64, count: *mut u32, to: *mut Process) {
        running(handle, count, to, |Holder { pid, used }| Process { pid, used, instances: [u32::MAX; 2] })
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(handle: u64, count: *mut u32) { card!(handle); put(count, 0); status::SUCCESS }
    // PyTorch 2.13 asks wherever segments grow, and wants an answer: state 0 is that there is no fabric. The version is the caller's.
    fn nvmlDeviceGetGpuFabricInfoV(handle: u64, to: *mut Fabric) {
        card!(handle);
        if to.is_null() { return BAD_ARGUMENT }
        let version = to.cast::<u32>().read_unaligned();
        to.write_unaligned(Fabric { version, cluster: [0; 16], status: 0, clique: 0, state: 0 });
        status::SUCCESS
    }
    fn nvmlDeviceGetComputeMode(_handle: u64, to: *mut i32) { put(to, 0); status::SUCCESS }
    fn nvmlDeviceGetPerformanceState(_handle: u64, to: *mut i32) { put(to, 0); status::SUCCESS }
}

nothing! { nvmlInit nvmlInit_v2 nvmlInitWithFlags nvmlShutdown }

macro_rules! unsupported {
    ($($name:ident)*) => { $( /// Not known of a card that is not there.
        #[unsafe(no_mangle)] pub extern "C" fn $name() -> Status { UNSUPPORTED } )* };
}

unsupported! {
    nvmlDeviceGetUtilizationRates nvmlDeviceGetTemperature nvmlDeviceGetPowerUsage nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetClockInfo nvmlDeviceGetMigMode nvmlDeviceGetBrand nvmlDeviceGetMemoryBusWidth nvmlDeviceGetNvLinkState
    nvmlDeviceGetNvLinkCapability nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetNvLinkRemotePciInfo_v2
    nvmlDeviceGetP2PStatus nvmlDeviceGetFieldValues nvmlDeviceGetFanSpeed nvmlDeviceGetEccMode
    nvmlDeviceGetPersistenceMode nvmlDeviceGetPowerManagementLimit nvmlDeviceGetMaxClockInfo nvmlDeviceGetSerial
    nvmlDeviceGetMinorNumber nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetBAR1MemoryInfo
    nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetCpuAffinity
    nvmlSystemGetProcessName
}

/// An error in words.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(error: Status) -> *const c_char {
    (match error {
        status::SUCCESS => c"Success",
        UNSUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        TOO_SMALL => c"Insufficient Size",
        BAD_ARGUMENT => c"Invalid Argument",
        _ => c"Unknown Error",
    })
    .as_ptr()
}
