//! The CUDA runtime, as far as PyTorch calls it: devices, kernels, memory (CUDA Runtime API).

use std::ffi::{CStr, c_char, c_void};

use super::attributes::attribute;
use super::call::{Status, api, nothing, put, put_text, status};
use super::cards::cards;
use super::copy::{address, copy, copy_rows, fill};
use super::current::{self, noted};
use super::kernels::{self, Function};
use super::memory::{self, Place};
use super::properties::properties;
use super::{driver, driver_memory};
use crate::capability::capability;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl From<Dim3> for [u32; 3] {
    fn from(d: Dim3) -> Self {
        [d.x, d.y, d.z]
    }
}

/// `cudaLaunchConfig_t`, as far as it is read.
#[repr(C)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
}

/// `cudaFuncAttributes`, up to the last member that every version has.
#[repr(C)]
pub struct FunctionAttributes {
    sizes: [usize; 3],
    threads: i32,
    registers: i32,
    compiled_for: i32,
    architecture: i32,
    cache_mode: i32,
    dynamic_shared: i32,
    carve_out: i32,
}

/// `cudaPointerAttributes`, up to the last member that every version has.
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    on_device: u64,
    on_host: u64,
}

/// What a function of the runtime begins with: a card with a context, or its error as the answer.
macro_rules! device {
    () => {
        match current::device() {
            Ok(device) => device,
            Err(error) => return noted(error),
        }
    };
}

pub(super) use device;

// ---- what the compiler's start-up code calls

/// Keeps what it is given; the handle is the image's address.
///
/// # Safety
/// `image` is what the compiler embeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(image: *mut c_void) -> *mut *mut c_void {
    Box::into_raw(Box::new(image))
}

/// There is nothing to unload.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(_module: *mut *mut c_void) {}

nothing! { __cudaRegisterFatBinaryEnd __cudaRegisterTexture __cudaRegisterSurface }

/// Modules are ready as soon as they are registered.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_module: *mut *mut c_void) -> c_char {
    1
}

/// Keeps a kernel's name.
///
/// # Safety
/// As the compiler calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    module: *mut *mut c_void,
    host: *const c_void,
    _device: *mut c_char,
    name: *const c_char,
) {
    // SAFETY: a handle of `__cudaRegisterFatBinary`.
    let image = unsafe { *module };
    kernels::register_kernel(host as usize, image as usize, name);
}

/// Keeps a variable's size.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterVar(
    _module: *mut *mut c_void,
    host: *mut c_void,
    _device: *mut c_char,
    _name: *const c_char,
    _external: i32,
    bytes: usize,
) {
    kernels::register_variable(host as usize, bytes as u64);
}

/// The same for managed ones.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterManagedVar(
    module: *mut *mut c_void,
    host: *mut *mut c_void,
    device: *mut c_char,
    name: *const c_char,
    external: i32,
    bytes: usize,
) {
    __cudaRegisterVar(module, host.cast(), device, name, external, bytes);
}

thread_local! {
    /// What `<<<...>>>` leaves for the stub that launches.
    static CALLS: std::cell::RefCell<Vec<(Dim3, Dim3, usize, u64)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Leaves a launch's shape.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: u64) -> u32 {
    CALLS.with_borrow_mut(|calls| calls.push((grid, block, shared, stream)));
    0
}

/// A kernel by its handle: the address of the host that it is registered under, or the driver's.
unsafe fn function(host: *const c_void) -> Option<&'static Function> {
    // SAFETY: what is registered is loaded.
    unsafe { kernels::kernel(host as usize) }
}

/// `arguments`: null, or where each of the kernel's arguments lies.
unsafe fn launched(host: *const c_void, grid: Dim3, block: Dim3, arguments: *const *const c_void) -> Status {
    if let Err(error) = current::device() {
        return noted(error);
    }
    // SAFETY: as above.
    let status = unsafe { kernels::launch(function(host), grid.into(), block.into(), arguments) };
    noted(if status == status::INVALID_VALUE { status::INVALID_CONFIGURATION } else { status })
}

api! {
    fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut u64) {
        let Some(call) = CALLS.with_borrow_mut(Vec::pop) else { return noted(52) };
        put(grid, call.0);
        put(block, call.1);
        put(shared, call.2);
        put(stream, call.3);
        status::SUCCESS
    }
    fn __cudaGetKernel(kernel: *mut u64, host: *const c_void) {
        put(kernel, host as u64);
        if function(host).is_some() { status::SUCCESS } else { status::INVALID_DEVICE_FUNCTION }
    }
    fn cudaGetKernel(kernel: *mut u64, host: *const c_void) { __cudaGetKernel(kernel, host) }
    fn __cudaLaunchKernel(host: *const c_void, grid: Dim3, block: Dim3, arguments: *const *const c_void) {
        launched(host, grid, block, arguments)
    }
    fn __cudaLaunchKernel_ptsz(host: *const c_void, grid: Dim3, block: Dim3, arguments: *const *const c_void) {
        launched(host, grid, block, arguments)
    }
    fn cudaLaunchKernel(host: *const c_void, grid: Dim3, block: Dim3, arguments: *const *const c_void) {
        launched(host, grid, block, arguments)
    }
    fn cudaLaunchCooperativeKernel(host: *const c_void, grid: Dim3, block: Dim3, arguments: *const *const c_void) {
        launched(host, grid, block, arguments)
    }
    fn cudaLaunchKernelExC(config: *const LaunchConfig, host: *const c_void, arguments: *const *const c_void) {
        launched(host, (*config).grid, (*config).block, arguments)
    }
    fn cudaGetFuncBySymbol(to: *mut u64, host: *const c_void) {
        let Some(kernel) = function(host) else { return noted(status::INVALID_DEVICE_FUNCTION) };
        put(to, address(kernel));
        status::SUCCESS
    }
    fn cudaFuncGetAttributes(to: *mut FunctionAttributes, host: *const c_void) {
        device!();
        let Some(kernel) = function(host) else { return noted(status::INVALID_DEVICE_FUNCTION) };
        put(to, FunctionAttributes {
            sizes: [0; 3],
            threads: kernel.attribute(0),
            registers: kernel.attribute(4),
            compiled_for: kernel.attribute(5),
            architecture: kernel.attribute(6),
            cache_mode: 0,
            dynamic_shared: kernel.attribute(8),
            carve_out: kernel.attribute(9),
        });
        status::SUCCESS
    }
    fn cudaFuncSetAttribute(host: *const c_void, number: i32, value: i32) {
        let device = device!();
        let Some(kernel) = function(host) else { return noted(status::INVALID_DEVICE_FUNCTION) };
        noted(kernel.set_attribute(number, value, device))
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(to: *mut i32, _host: *const c_void, threads: i32, shared: usize) {
        let device = device!();
        put(to, kernels::occupancy(device, threads.max(0) as u32, shared as u64) as i32);
        status::SUCCESS
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to: *mut i32, host: *const c_void, threads: i32, shared: usize) {
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(to, host, threads, shared)
    }
    fn cudaOccupancyMaxActiveClusters(to: *mut i32, _host: *const c_void) {
        put(to, device!().card.multiprocessors as i32);
        status::SUCCESS
    }
    fn cudaOccupancyAvailableDynamicSMemPerBlock(to: *mut usize, _host: *const c_void, blocks: i32) {
        let limits = capability(device!().card.capability);
        put(to, (limits.shared / blocks.max(1) as u32).saturating_sub(limits.shared_reserved) as usize);
        status::SUCCESS
    }
    fn cudaGetSymbolAddress(to: *mut u64, host: *const c_void) {
        device!();
        let Some((at, _)) = kernels::variable(host as usize) else { return noted(status::INVALID_SYMBOL) };
        put(to, at);
        status::SUCCESS
    }
    fn cudaGetSymbolSize(to: *mut usize, host: *const c_void) {
        let Some((_, bytes)) = kernels::variable(host as usize) else { return noted(status::INVALID_SYMBOL) };
        put(to, bytes as usize);
        status::SUCCESS
    }
    fn cudaMemcpyToSymbol(host: *const c_void, from: *const u8, bytes: usize, offset: usize) {
        let Some((at, room)) = kernels::variable(host as usize) else { return noted(status::INVALID_SYMBOL) };
        if offset.saturating_add(bytes) as u64 > room { return noted(status::INVALID_VALUE) }
        copy(at + offset as u64, address(from), bytes)
    }
    fn cudaMemcpyToSymbolAsync(host: *const c_void, from: *const u8, bytes: usize, offset: usize) {
        cudaMemcpyToSymbol(host, from, bytes, offset)
    }
    fn cudaMemcpyFromSymbol(to: *mut u8, host: *const c_void, bytes: usize, offset: usize) {
        let Some((at, room)) = kernels::variable(host as usize) else { return noted(status::INVALID_SYMBOL) };
        if offset.saturating_add(bytes) as u64 > room { return noted(status::INVALID_VALUE) }
        copy(address(to), at + offset as u64, bytes)
    }

    // ---- devices

    fn cudaGetDeviceCount(to: *mut i32) {
        let count = cards().count();
        put(to, count as i32);
        if count > 0 { status::SUCCESS } else { noted(status::NO_DEVICE) }
    }
    fn cudaGetDevice(to: *mut i32) { put(to, current::index()); status::SUCCESS }
    fn cudaSetDevice(index: i32) {
        if let Err(error) = cards().get(index) { return noted(error) }
        current::bind(Some(index));
        device!();
        status::SUCCESS
    }
    fn cudaDeviceGetAttribute(to: *mut i32, number: i32, index: i32) {
        match cards().get(index) {
            Ok(device) => { put(to, attribute(device, number)); status::SUCCESS }
            Err(error) => noted(error),
        }
    }
    fn cudaGetDeviceProperties(to: *mut u8, index: i32) {
        let device = match cards().get(index) { Ok(device) => device, Err(error) => return noted(error) };
        let bytes = properties(device, cards().setup.cuda);
        to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        status::SUCCESS
    }
    fn cudaGetDeviceProperties_v2(to: *mut u8, index: i32) { cudaGetDeviceProperties(to, index) }
    fn cudaDeviceGetPCIBusId(to: *mut u8, room: i32, index: i32) { noted(driver::cuDeviceGetPCIBusId(to, room, index)) }
    fn cudaDeviceGetByPCIBusId(to: *mut i32, text: *const c_char) { noted(driver::cuDeviceGetByPCIBusId(to, text)) }
    fn cudaDeviceCanAccessPeer(to: *mut i32, from: i32, other: i32) { put(to, i32::from(from != other)); status::SUCCESS }
    fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        put(least, 0);
        put(greatest, -5);
        status::SUCCESS
    }
    fn cudaDeviceGetLimit(to: *mut usize, limit: i32) { driver::cuCtxGetLimit(to, limit) }
    fn cudaDeviceGetDefaultMemPool(to: *mut u64, index: i32) { driver_memory::cuDeviceGetDefaultMemPool(to, index) }
    fn cudaDeviceGetMemPool(to: *mut u64, index: i32) { driver_memory::cuDeviceGetDefaultMemPool(to, index) }
    fn cudaDriverGetVersion(to: *mut i32) { put(to, cards().setup.cuda); status::SUCCESS }
    fn cudaRuntimeGetVersion(to: *mut i32) { put(to, cards().setup.cuda); status::SUCCESS }
    fn cudaGetDriverEntryPointByVersion(name: *const c_char, to: *mut u64, version: i32, _flags: u64, found: *mut i32) {
        let at = driver::entry_point(CStr::from_ptr(name), version);
        put(to, at.unwrap_or(0));
        put(found, i32::from(at.is_none()));
        status::SUCCESS
    }
    fn cudaGetDriverEntryPoint(name: *const c_char, to: *mut u64, flags: u64, found: *mut i32) {
        cudaGetDriverEntryPointByVersion(name, to, cards().setup.cuda, flags, found)
    }
    fn cudaGetLastError() { current::take_error() }
    fn cudaPeekAtLastError() { current::last_error() }

    // ---- memory

    fn cudaMalloc(to: *mut u64, bytes: usize) {
        let device = device!();
        if bytes == 0 { put(to, 0); return status::SUCCESS }
        match memory::allocate(device, bytes) {
            Ok(at) => { put(to, at); status::SUCCESS }
            Err(error) => noted(error),
        }
    }
    fn cudaFree(at: u64) { device!(); noted(memory::free(at)) }
    fn cudaMallocAsync(to: *mut u64, bytes: usize, _stream: u64) { cudaMalloc(to, bytes) }
    fn cudaMallocFromPoolAsync(to: *mut u64, bytes: usize, _pool: u64, _stream: u64) { cudaMalloc(to, bytes) }
    fn cudaFreeAsync(at: u64, _stream: u64) { cudaFree(at) }
    fn cudaMallocManaged(to: *mut u64, bytes: usize, _flags: u32) { device!(); noted(driver_memory::cuMemHostAlloc(to, bytes, 0)) }
    fn cudaMemPrefetchAsync(_at: u64) { status::SUCCESS }
    fn cudaMallocHost(to: *mut u64, bytes: usize) { device!(); noted(driver_memory::cuMemHostAlloc(to, bytes, 0)) }
    fn cudaHostAlloc(to: *mut u64, bytes: usize, flags: u32) { device!(); noted(driver_memory::cuMemHostAlloc(to, bytes, flags)) }
    fn cudaFreeHost(at: u64) { cards().unpin(at); status::SUCCESS }
    fn cudaHostRegister(at: u64, bytes: usize, _flags: u32) { device!(); cards().pin(at, bytes as u64, false); status::SUCCESS }
    fn cudaHostUnregister(at: u64) { cards().unpin(at); status::SUCCESS }
    fn cudaHostGetDevicePointer(to: *mut u64, host: u64, _flags: u32) { put(to, host); status::SUCCESS }
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        let device = device!();
        put(free, device.space().free() as usize);
        put(total, device.card.memory as usize);
        status::SUCCESS
    }
    fn cudaMemcpy(to: u64, from: u64, bytes: usize, _kind: i32) { device!(); copy(to, from, bytes) }
    fn cudaMemcpyAsync(to: u64, from: u64, bytes: usize, _kind: i32, _stream: u64) { device!(); copy(to, from, bytes) }
    fn cudaMemcpyPeer(to: u64, _there: i32, from: u64, _here: i32, bytes: usize) { device!(); copy(to, from, bytes) }
    fn cudaMemcpyPeerAsync(to: u64, _there: i32, from: u64, _here: i32, bytes: usize, _stream: u64) { device!(); copy(to, from, bytes) }
    fn cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize) {
        device!();
        copy_rows((to, to_pitch), (from, from_pitch), width, height)
    }
    fn cudaMemcpy2DAsync(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize) {
        cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height)
    }
    fn cudaMemset(to: u64, value: i32, bytes: usize) { device!(); fill(to, [value as u8], bytes) }
    fn cudaMemsetAsync(to: u64, value: i32, bytes: usize, _stream: u64) { cudaMemset(to, value, bytes) }
    fn cudaPointerGetAttributes(to: *mut PointerAttributes, at: u64) {
        const UNREGISTERED: i32 = 0;
        const HOST: i32 = 1;
        const DEVICE: i32 = 2;
        const NOWHERE: i32 = -2;
        device!();
        put(to, match memory::place(at) {
            Some(Place::Card(device, ..)) => PointerAttributes { kind: DEVICE, device, on_device: at, on_host: 0 },
            Some(Place::Pinned(..)) => PointerAttributes { kind: HOST, device: current::index(), on_device: at, on_host: at },
            None => PointerAttributes { kind: UNREGISTERED, device: NOWHERE, on_device: 0, on_host: at },
        });
        status::SUCCESS
    }
    fn cudaMemPoolSetAttribute(pool: u64, number: i32, value: *const u64) { driver_memory::cuMemPoolSetAttribute(pool, number, value) }
    fn cudaMemPoolGetAttribute(pool: u64, number: i32, value: *mut u64) { driver_memory::cuMemPoolGetAttribute(pool, number, value) }
}

nothing! {
    cudaInitDevice cudaSetDeviceFlags cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess cudaDeviceSynchronize
    cudaDeviceReset cudaDeviceSetLimit cudaDeviceSetMemPool cudaMemPoolSetAccess cudaMemPoolTrimTo cudaMemPoolDestroy
    cudaProfilerStart cudaProfilerStop cudaFuncSetCacheConfig
}

/// An error's name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(error: Status) -> *const c_char {
    status::words(error).0.as_ptr().cast()
}

/// An error's sentence.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(error: Status) -> *const c_char {
    status::words(error).1.as_ptr().cast()
}

/// Kept here because both sides write texts the same way.
pub(super) unsafe fn text(to: *mut u8, room: i32, text: &str) -> Status {
    // SAFETY: the caller's.
    unsafe { put_text(to, room.max(0) as usize, text) };
    status::SUCCESS
}
