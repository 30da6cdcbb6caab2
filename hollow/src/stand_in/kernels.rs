//! Kernels and variables of the device: they have names and attributes, and nothing else.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex};

use super::call::{Status, lock, status};
use super::cards::{Device, cards};
use super::pages;
use super::{overflow, selected, truth};
use crate::capability::{REGISTERS, capability};

/// Registers a thread takes: kernels' real counts are not read. Only occupancy depends on it.
const REGISTERS_PER_THREAD: u32 = 32;
/// Shared memory that a block may take without asking (CUDA C++ Programming Guide).
const SHARED: i32 = 48 << 10;
/// Threads of a block (the same).
const THREADS: u32 = 1024;

/// A compiled module.
#[derive(Debug)]
pub(super) struct Module {
    /// The architecture whose machine code would run, as 86 for 8.6.
    pub architecture: i32,
    /// The architecture that it was compiled for.
    pub compiled_for: i32,
    functions: Mutex<HashMap<String, &'static Function>>,
    variables: Mutex<HashMap<String, u64>>,
}

/// A kernel.
#[derive(Debug)]
pub(super) struct Function {
    /// Its mangled name, with a closing zero.
    pub name: &'static CStr,
    /// Where it stands.
    pub module: &'static Module,
    dynamic_shared: AtomicI32,
    carve_out: AtomicI32,
}

/// How much a variable of a module may hold: its size stands in machine code that is not read.
const VARIABLE: u64 = 1 << 20;

impl Module {
    /// From what the compiler embeds, or from nothing that can be read.
    ///
    /// # Safety
    /// `image` is null or what `cuModuleLoadData` takes.
    pub(super) unsafe fn load(image: *const u8) -> &'static Self {
        let (major, minor) = cards().iter().next().map_or((9, 0), |d| d.card.capability);
        let card = (major * 10 + minor) as i32;
        // SAFETY: the caller's.
        let (architecture, compiled_for) = unsafe { architectures(image, card) };
        Box::leak(Box::new(Self {
            architecture,
            compiled_for,
            functions: Mutex::default(),
            variables: Mutex::default(),
        }))
    }

    /// A kernel by its name; every name is one.
    pub(super) fn function(&'static self, name: &CStr) -> &'static Function {
        let key = name.to_string_lossy().into_owned();
        lock(&self.functions).entry(key).or_insert_with(|| {
            Box::leak(Box::new(Function {
                name: Box::leak(name.to_owned().into_boxed_c_str()),
                module: self,
                dynamic_shared: AtomicI32::new(SHARED),
                carve_out: AtomicI32::new(-1),
            }))
        })
    }

    /// A variable by its name, and how many bytes it may hold.
    pub(super) fn variable(&self, name: &CStr) -> Option<(u64, u64)> {
        let key = name.to_string_lossy().into_owned();
        let mut variables = lock(&self.variables);
        if let Some(&at) = variables.get(&key) {
            return Some((at, VARIABLE));
        }
        let at = pages::host(VARIABLE)?;
        variables.insert(key, at);
        Some((at, VARIABLE))
    }
}

impl Function {
    /// `CUfunction_attribute` by its number (CUDA Driver API).
    pub(super) fn attribute(&self, number: i32) -> i32 {
        match number {
            0 => THREADS as i32,
            4 => REGISTERS_PER_THREAD as i32,
            5 => self.module.compiled_for,
            6 => self.module.architecture,
            8 => self.dynamic_shared.load(Ordering::Relaxed),
            9 => self.carve_out.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Sets one; more shared memory than the card has is refused, as on a card.
    pub(super) fn set_attribute(&self, number: i32, value: i32, device: &Device) -> Status {
        match number {
            8 if value as u32 > capability(device.card.capability).shared_opt_in => return status::INVALID_VALUE,
            8 => self.dynamic_shared.store(value, Ordering::Relaxed),
            9 => self.carve_out.store(value, Ordering::Relaxed),
            _ => {}
        }
        status::SUCCESS
    }
}

/// A launch: remembered by name, refused where a card would refuse its shape, and otherwise over.
///
/// # Safety
/// `arguments` is null or where each of the kernel's arguments lies.
pub(super) unsafe fn launch(
    function: Option<&'static Function>,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: *const *const c_void,
) -> Status {
    if let Some(name) = function.and_then(|f| f.name.to_str().ok()) {
        // SAFETY: whoever counts has more arguments than this one, which is a number of 32 or 64 bits.
        let items = (selected::counts(name) && !arguments.is_null())
            .then(|| unsafe { (*arguments.add(selected::ITEMS)).cast::<u32>().read_unaligned() });
        selected::launched(items);
        overflow::launched(name);
        truth::launched(name);
    }
    let threads = block.iter().try_fold(1u32, |all, &n| all.checked_mul(n));
    let shape = grid.iter().all(|&n| n > 0) && grid[1] <= 65535 && grid[2] <= 65535;
    if shape && threads.is_some_and(|n| (1..=THREADS).contains(&n)) { status::SUCCESS } else { status::INVALID_VALUE }
}

/// How many blocks of `threads` one multiprocessor holds at once: the limits of the Programming Guide's table.
pub(super) fn occupancy(device: &Device, threads: u32, shared: u64) -> u32 {
    if threads == 0 {
        return 0;
    }
    let limits = capability(device.card.capability);
    let threads = threads.next_multiple_of(32);
    let by_shared = u64::from(limits.shared) / (shared + u64::from(limits.shared_reserved)).max(1);
    (limits.threads / threads)
        .min(REGISTERS / (threads * REGISTERS_PER_THREAD))
        .min(u32::try_from(by_shared).unwrap_or(u32::MAX))
        .min(limits.blocks)
}

/// The architectures in a fat binary that `card` would run: machine code of its own generation, else the latest code that
/// can be compiled for it. Public descriptions of the container (the CUDA Binary Utilities guide tells what is in it): a
/// wrapper with the magic number 0x466243b1 and a pointer to the data; the data with the magic number 0xBA55ED50, the
/// header's size at 6 and the size of what follows at 8; entries with their kind at 0 (1: to be compiled, 2: machine code),
/// header size at 4, payload size at 8, architecture at 28.
///
/// # Safety
/// `image` is null or what `cuModuleLoadData` takes.
unsafe fn architectures(image: *const u8, card: i32) -> (i32, i32) {
    const WRAPPER: u32 = 0x4662_43b1;
    const DATA: u32 = 0xBA55_ED50;
    // SAFETY: an image is at least as long as a magic number, a wrapper as its four fields.
    let data = unsafe {
        if image.is_null() {
            return (card, card);
        }
        let data = match image.cast::<u32>().read_unaligned() {
            WRAPPER => image.add(8).cast::<*const u8>().read_unaligned(),
            _ => image,
        };
        if data.is_null() || data.cast::<u32>().read_unaligned() != DATA {
            return (card, card);
        }
        data
    };
    // SAFETY: the data says how long it is.
    let entries = unsafe {
        let header = usize::from(data.add(6).cast::<u16>().read_unaligned());
        let size = data.add(8).cast::<u64>().read_unaligned() as usize;
        std::slice::from_raw_parts(data.add(header), size)
    };
    chosen(entries, card)
}

fn chosen(mut entries: &[u8], card: i32) -> (i32, i32) {
    const TO_COMPILE: u16 = 1;
    const MACHINE: u16 = 2;
    let (mut machine, mut to_compile) = (0, 0);
    while let Some((kind, next, architecture)) = entry(entries) {
        match kind {
            MACHINE if architecture <= card && architecture / 10 == card / 10 => machine = machine.max(architecture),
            TO_COMPILE if architecture <= card => to_compile = to_compile.max(architecture),
            _ => {}
        }
        let Some(rest) = entries.get(next..) else { break };
        entries = rest;
    }
    match (machine, to_compile) {
        (0, 0) => (card, card),
        (0, compiled) => (card, compiled),
        (machine, _) => (machine, machine),
    }
}

/// Kind, whole length and architecture of the first entry.
fn entry(bytes: &[u8]) -> Option<(u16, usize, i32)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let kind = word(0)? as u16;
    let header = word(4)? as usize;
    let payload = u64::from(word(8)?) | u64::from(word(12)?) << 32;
    let next = header.checked_add(usize::try_from(payload).ok()?)?;
    (header > 0).then_some((kind, next, word(28)? as i32))
}

/// What the compiler's start-up code registers: modules, and for each kernel and variable of the host the name of the
/// device's.
#[derive(Default)]
struct Registered {
    kernels: HashMap<usize, (usize, usize)>,
    variables: HashMap<usize, (u64, u64)>,
    modules: HashMap<usize, &'static Module>,
}

static REGISTERED: LazyLock<Mutex<Registered>> = LazyLock::new(Mutex::default);

/// A kernel of a module, under an address of the host.
pub(super) fn register_kernel(host: usize, image: usize, name: *const c_char) {
    lock(&REGISTERED).kernels.insert(host, (image, name as usize));
}

/// A variable, under an address of the host; its memory is made when somebody asks where it is.
pub(super) fn register_variable(host: usize, bytes: u64) {
    lock(&REGISTERED).variables.insert(host, (0, bytes));
}

/// The kernel that is registered under an address of the host.
///
/// # Safety
/// What was registered is still loaded.
pub(super) unsafe fn kernel(host: usize) -> Option<&'static Function> {
    let mut all = lock(&REGISTERED);
    let &(image, name) = all.kernels.get(&host)?;
    let module = match all.modules.get(&image) {
        Some(module) => module,
        None => {
            // SAFETY: the compiler registered it as an image.
            let module = unsafe { Module::load(image as *const u8) };
            all.modules.insert(image, module);
            module
        }
    };
    // SAFETY: the compiler registered it as a name.
    let name = unsafe { CStr::from_ptr(name as *const c_char) };
    Some(module.function(name))
}

/// Where the variable is that is registered under an address of the host, and its size.
pub(super) fn variable(host: usize) -> Option<(u64, u64)> {
    let mut all = lock(&REGISTERED);
    let (at, bytes) = all.variables.get_mut(&host)?;
    if *at == 0 {
        *at = pages::host((*bytes).max(1))?;
    }
    Some((*at, *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: u16, architecture: u32, payload: u64) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + payload as usize];
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&payload.to_le_bytes());
        bytes[28..32].copy_from_slice(&architecture.to_le_bytes());
        bytes
    }

    #[test]
    fn a_card_takes_machine_code_of_its_generation_else_the_latest_it_can_compile() {
        let all = [made(2, 80, 8), made(2, 86, 16), made(2, 90, 8), made(1, 90, 8)].concat();
        assert_eq!(chosen(&all, 86), (86, 86));
        assert_eq!(chosen(&all, 89), (86, 86));
        assert_eq!(chosen(&all, 90), (90, 90));
        assert_eq!(chosen(&all, 120), (120, 90));
        assert_eq!(chosen(&all, 75), (75, 75), "nothing fits: the card's own");
        assert_eq!(chosen(&all[..70], 86), (80, 80), "cut short");
    }

    #[test]
    fn a_launch_has_a_shape_that_a_card_takes() {
        assert_eq!(unsafe { launch(None, [1, 1, 1], [1024, 1, 1], std::ptr::null()) }, status::SUCCESS);
        assert_eq!(unsafe { launch(None, [0, 1, 1], [32, 1, 1], std::ptr::null()) }, status::INVALID_VALUE);
        assert_eq!(unsafe { launch(None, [1, 65536, 1], [32, 1, 1], std::ptr::null()) }, status::INVALID_VALUE);
        assert_eq!(unsafe { launch(None, [1, 1, 1], [1024, 2, 1], std::ptr::null()) }, status::INVALID_VALUE);
        assert_eq!(unsafe { launch(None, [1, 1, 1], [1 << 31, 2, 1], std::ptr::null()) }, status::INVALID_VALUE);
    }
}
