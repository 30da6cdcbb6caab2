//! The CUDA driver, as far as PyTorch and Triton call it: cards, contexts, modules, kernels, streams (CUDA Driver API).

use std::ffi::{CStr, CString, c_char, c_void};

use super::attributes::{BUS, attribute};
use super::call::{Status, api, nothing, put, status};
use super::cards::{Device, cards};
use super::current;
use super::kernels::{self, Function, Module};
use super::runtime::text;
use super::{graph, streams};
use crate::capability::capability;
use crate::identity::uuid;

/// `CUlaunchConfig`, as far as it is read.
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
}

/// Where a function of the driver stands, by its name and the version whose form of it is wanted.
///
/// Functions whose form changed carry `_v2`, `_v3` ... in their symbols; the latest is the one that current versions want.
pub(super) fn entry_point(name: &CStr, version: i32) -> Option<u64> {
    const CAPTURE_WITH_EDGES: i32 = 12030;
    let name = name.to_str().ok()?;
    let exact = match name {
        "cuGetProcAddress" if version < 12000 => Some("cuGetProcAddress"),
        "cuStreamGetCaptureInfo" if version < CAPTURE_WITH_EDGES => Some("cuStreamGetCaptureInfo_v2"),
        _ => None,
    };
    if let Some(exact) = exact {
        return symbol(exact);
    }
    (2..=4).rev().find_map(|v| symbol(&format!("{name}_v{v}"))).or_else(|| symbol(name))
}

fn symbol(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: a name; the whole process is searched, this library first.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at as u64)
}

/// A context's handle: the card's place in memory, which no other card has.
fn context(index: i32) -> u64 {
    cards().get(index).map_or(0, |device| std::ptr::from_ref(device) as u64)
}

fn of_context(handle: u64) -> Option<i32> {
    (0..cards().count() as i32).find(|&index| context(index) == handle)
}

/// The card, or "no such card" as the answer.
macro_rules! card {
    ($index:expr) => {
        match cards().get($index) {
            Ok(device) => device,
            Err(error) => return error,
        }
    };
}

/// The card whose context is current, or "no context" as the answer.
macro_rules! bound {
    () => {
        match current::bound() {
            Some(index) => card!(index),
            None => return status::INVALID_CONTEXT,
        }
    };
}

pub(super) use {bound, card};

unsafe fn launched(function: *const Function, grid: [u32; 3], block: [u32; 3]) -> Status {
    // SAFETY: null, or one that this driver made; they are never dropped.
    unsafe { kernels::launch(function.as_ref(), grid, block, std::ptr::null()) }
}

unsafe fn load(to: *mut u64, image: *const u8) -> Status {
    // SAFETY: the caller's.
    unsafe { put(to, std::ptr::from_ref(Module::load(image)) as u64) };
    status::SUCCESS
}

unsafe fn named(to: *mut u64, module: *const Module, name: *const c_char) -> Status {
    // SAFETY: a module that this driver made, and a text.
    unsafe {
        let module: &'static Module = &*module;
        put(to, std::ptr::from_ref(module.function(CStr::from_ptr(name))) as u64);
    }
    status::SUCCESS
}

unsafe fn potential(blocks: *mut i32, threads: *mut i32, shared: usize, limit: i32) -> Status {
    let device: &Device = bound!();
    let most = if (1..1024).contains(&limit) { limit } else { 1024 };
    let each = kernels::occupancy(device, most as u32, shared as u64);
    // SAFETY: the caller's.
    unsafe {
        put(threads, most);
        put(blocks, (each * device.card.multiprocessors) as i32);
    }
    status::SUCCESS
}

api! {
    fn cuInit(_flags: u32) { if cards().count() > 0 { status::SUCCESS } else { status::NO_DEVICE } }
    fn cuDriverGetVersion(to: *mut i32) { put(to, cards().setup.cuda); status::SUCCESS }
    fn cuGetErrorName(error: Status, to: *mut *const c_char) { put(to, status::words(error).0.as_ptr().cast()); status::SUCCESS }
    fn cuGetErrorString(error: Status, to: *mut *const c_char) { put(to, status::words(error).1.as_ptr().cast()); status::SUCCESS }
    fn cuGetProcAddress(name: *const c_char, to: *mut u64, version: i32, flags: u64) {
        cuGetProcAddress_v2(name, to, version, flags, std::ptr::null_mut())
    }
    fn cuGetProcAddress_v2(name: *const c_char, to: *mut u64, version: i32, _flags: u64, found: *mut i32) {
        let at = entry_point(CStr::from_ptr(name), version);
        put(to, at.unwrap_or(0));
        put(found, i32::from(at.is_none()));
        if at.is_some() { status::SUCCESS } else { status::NOT_FOUND }
    }
    /// NVIDIA's private tables: none is here.
    fn cuGetExportTable(to: *mut u64, _id: *const c_void) { put(to, 0); status::NOT_FOUND }

    // ---- cards

    fn cuDeviceGetCount(to: *mut i32) { put(to, cards().count() as i32); status::SUCCESS }
    fn cuDeviceGet(to: *mut i32, index: i32) { card!(index); put(to, index); status::SUCCESS }
    fn cuDeviceGetName(to: *mut u8, room: i32, index: i32) { text(to, room, &card!(index).card.name) }
    fn cuDeviceTotalMem_v2(to: *mut usize, index: i32) { put(to, card!(index).card.memory as usize); status::SUCCESS }
    fn cuDeviceGetUuid(to: *mut [u8; 16], index: i32) { put(to, uuid(card!(index).physical)); status::SUCCESS }
    fn cuDeviceGetUuid_v2(to: *mut [u8; 16], index: i32) { cuDeviceGetUuid(to, index) }
    fn cuDeviceGetPCIBusId(to: *mut u8, room: i32, index: i32) {
        text(to, room, &format!("0000:{:02X}:00.0", BUS + card!(index).physical))
    }
    fn cuDeviceGetByPCIBusId(to: *mut i32, name: *const c_char) {
        let name = CStr::from_ptr(name).to_string_lossy();
        let bus = name.split(':').nth(1).and_then(|bus| usize::from_str_radix(bus, 16).ok());
        let Some(index) = cards().iter().position(|device| Some(BUS + device.physical) == bus) else {
            return status::INVALID_DEVICE;
        };
        put(to, index as i32);
        status::SUCCESS
    }
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, index: i32) {
        let (a, b) = card!(index).card.capability;
        put(major, a as i32);
        put(minor, b as i32);
        status::SUCCESS
    }
    fn cuDeviceGetAttribute(to: *mut i32, number: i32, index: i32) { put(to, attribute(card!(index), number)); status::SUCCESS }
    fn cuDeviceCanAccessPeer(to: *mut i32, from: i32, other: i32) { put(to, i32::from(from != other)); status::SUCCESS }

    // ---- contexts

    fn cuDevicePrimaryCtxRetain(to: *mut u64, index: i32) {
        let device = card!(index);
        put(to, context(index));
        device.activate()
    }
    fn cuDevicePrimaryCtxGetState(index: i32, flags: *mut u32, active: *mut i32) {
        put(flags, 0);
        put(active, i32::from(card!(index).active()));
        status::SUCCESS
    }
    fn cuCtxCreate_v2(to: *mut u64, _flags: u32, index: i32) {
        let device = card!(index);
        current::push(Some(index));
        put(to, context(index));
        device.activate()
    }
    fn cuCtxSetCurrent(handle: u64) {
        let index = of_context(handle);
        if handle != 0 && index.is_none() { return status::INVALID_CONTEXT }
        current::bind(index);
        status::SUCCESS
    }
    fn cuCtxGetCurrent(to: *mut u64) { put(to, current::bound().map_or(0, context)); status::SUCCESS }
    fn cuCtxPushCurrent_v2(handle: u64) {
        let Some(index) = of_context(handle) else { return status::INVALID_CONTEXT };
        current::push(Some(index));
        status::SUCCESS
    }
    fn cuCtxPopCurrent_v2(to: *mut u64) {
        put(to, current::pop().map_or(0, context));
        status::SUCCESS
    }
    fn cuCtxGetDevice(to: *mut i32) { bound!(); put(to, current::index()); status::SUCCESS }
    fn cuCtxGetDevice_v2(to: *mut i32, handle: u64) {
        let index = if handle == 0 { current::bound() } else { of_context(handle) };
        let Some(index) = index else { return status::INVALID_CONTEXT };
        put(to, index);
        status::SUCCESS
    }
    fn cuCtxGetFlags(to: *mut u32) { put(to, 0); status::SUCCESS }
    fn cuCtxGetId(handle: u64, to: *mut u64) { put(to, handle); status::SUCCESS }
    fn cuCtxGetApiVersion(_handle: u64, to: *mut u32) { put(to, 3020); status::SUCCESS }
    fn cuCtxGetLimit(to: *mut usize, limit: i32) {
        // Stack, printf and heap sizes: the defaults of the Programming Guide.
        put(to, match limit { 0 => 1 << 10, 1 => 1 << 20, 2 => 8 << 20, 3 => 2, 4 => 2048, 5 => 128, _ => 0 });
        status::SUCCESS
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) { put(least, 0); put(greatest, -5); status::SUCCESS }

    // ---- modules and kernels

    fn cuModuleLoad(to: *mut u64, _file: *const c_char) { load(to, std::ptr::null()) }
    fn cuModuleLoadData(to: *mut u64, image: *const u8) { load(to, image) }
    fn cuModuleLoadDataEx(to: *mut u64, image: *const u8) { load(to, image) }
    fn cuModuleLoadFatBinary(to: *mut u64, image: *const u8) { load(to, image) }
    fn cuLibraryLoadData(to: *mut u64, image: *const u8) { load(to, image) }
    fn cuModuleGetLoadingMode(to: *mut i32) { put(to, 2); status::SUCCESS }
    fn cuModuleGetFunction(to: *mut u64, module: *const Module, name: *const c_char) { named(to, module, name) }
    fn cuLibraryGetKernel(to: *mut u64, module: *const Module, name: *const c_char) { named(to, module, name) }
    fn cuLibraryGetModule(to: *mut u64, module: u64) { put(to, module); status::SUCCESS }
    fn cuKernelGetFunction(to: *mut u64, kernel: u64) { put(to, kernel); status::SUCCESS }
    fn cuModuleGetGlobal_v2(to: *mut u64, bytes: *mut usize, module: *const Module, name: *const c_char) {
        let Some((at, len)) = (*module).variable(CStr::from_ptr(name)) else { return status::OUT_OF_MEMORY };
        put(to, at);
        put(bytes, len as usize);
        status::SUCCESS
    }
    fn cuLibraryGetGlobal(to: *mut u64, bytes: *mut usize, module: *const Module, name: *const c_char) {
        cuModuleGetGlobal_v2(to, bytes, module, name)
    }
    fn cuFuncGetModule(to: *mut u64, function: *const Function) {
        put(to, std::ptr::from_ref((*function).module) as u64);
        status::SUCCESS
    }
    fn cuFuncGetName(to: *mut *const c_char, function: *const Function) { put(to, (*function).name.as_ptr()); status::SUCCESS }
    fn cuFuncGetAttribute(to: *mut i32, number: i32, function: *const Function) {
        put(to, (*function).attribute(number));
        status::SUCCESS
    }
    fn cuFuncSetAttribute(function: *const Function, number: i32, value: i32) {
        (*function).set_attribute(number, value, bound!())
    }
    fn cuLaunchKernel(function: *const Function, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32) {
        launched(function, [gx, gy, gz], [bx, by, bz])
    }
    fn cuLaunchCooperativeKernel(function: *const Function, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32) {
        launched(function, [gx, gy, gz], [bx, by, bz])
    }
    fn cuLaunchKernelEx(config: *const LaunchConfig, function: *const Function) {
        launched(function, (*config).grid, (*config).block)
    }
    fn cuLaunchHostFunc(_stream: u64, call: extern "C" fn(*mut c_void), what: *mut c_void) { call(what); status::SUCCESS }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(to: *mut i32, _function: *const Function, threads: i32, shared: usize) {
        put(to, kernels::occupancy(bound!(), threads.max(0) as u32, shared as u64) as i32);
        status::SUCCESS
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to: *mut i32, function: *const Function, threads: i32, shared: usize) {
        cuOccupancyMaxActiveBlocksPerMultiprocessor(to, function, threads, shared)
    }
    fn cuOccupancyMaxPotentialBlockSize(blocks: *mut i32, threads: *mut i32, _function: u64, by_threads: Option<extern "C" fn(i32) -> usize>, shared: usize, limit: i32) {
        let most = if (1..1024).contains(&limit) { limit } else { 1024 };
        potential(blocks, threads, by_threads.map_or(shared, |shared| shared(most)), limit)
    }
    fn cuOccupancyMaxActiveClusters(to: *mut i32) { put(to, bound!().card.multiprocessors as i32); status::SUCCESS }
    fn cuOccupancyAvailableDynamicSMemPerBlock(to: *mut usize, _function: u64, blocks: i32) {
        let limits = capability(bound!().card.capability);
        put(to, (limits.shared / blocks.max(1) as u32).saturating_sub(limits.shared_reserved) as usize);
        status::SUCCESS
    }
    fn cuTensorMapEncodeTiled(to: *mut [u8; 128]) { put(to, [0; 128]); status::SUCCESS }
    fn cuTensorMapEncodeIm2col(to: *mut [u8; 128]) { put(to, [0; 128]); status::SUCCESS }

    // ---- streams and events

    fn cuStreamCreate(to: *mut u64, flags: u32) { bound!(); put(to, streams::stream(current::index(), flags, 0)); status::SUCCESS }
    fn cuStreamCreateWithPriority(to: *mut u64, flags: u32, priority: i32) {
        bound!();
        put(to, streams::stream(current::index(), flags, priority));
        status::SUCCESS
    }
    fn cuStreamGetPriority(stream: u64, to: *mut i32) { put(to, streams::of(stream).map_or(0, |s| s.priority)); status::SUCCESS }
    fn cuStreamGetFlags(stream: u64, to: *mut u32) { put(to, streams::of(stream).map_or(0, |s| s.flags)); status::SUCCESS }
    fn cuStreamGetId(stream: u64, to: *mut u64) { put(to, streams::of(stream).map_or(stream, |s| s.id)); status::SUCCESS }
    fn cuStreamGetCtx(stream: u64, to: *mut u64) {
        put(to, context(streams::of(stream).map_or_else(current::index, |s| s.device)));
        status::SUCCESS
    }
    fn cuStreamIsCapturing(stream: u64, to: *mut i32) { put(to, graph::capturing(streams::of(stream))); status::SUCCESS }
    fn cuStreamBeginCapture_v2(stream: u64, _mode: i32) { graph::begin(streams::of(stream)) }
    fn cuStreamEndCapture(stream: u64, to: *mut u64) { graph::end(streams::of(stream), to) }
    fn cuStreamGetCaptureInfo_v2(stream: u64, state: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut u64, count: *mut usize) {
        put(graph, graph::HANDLE);
        put(nodes, 0);
        put(count, 0);
        graph::info(streams::of(stream), state, id)
    }
    fn cuStreamGetCaptureInfo_v3(stream: u64, state: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut u64, edges: *mut u64, count: *mut usize) {
        put(edges, 0);
        cuStreamGetCaptureInfo_v2(stream, state, id, graph, nodes, count)
    }
    fn cuEventCreate(to: *mut u64) { put(to, streams::event()); status::SUCCESS }
    fn cuEventDestroy_v2(event: u64) { streams::forget_event(event); status::SUCCESS }
    fn cuEventRecord(event: u64) { streams::record(event); status::SUCCESS }
    fn cuEventElapsedTime(to: *mut f32, from: u64, event: u64) {
        let Some(ms) = streams::elapsed(from, event) else { return status::INVALID_HANDLE };
        put(to, ms);
        status::SUCCESS
    }
}

nothing! {
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuCtxDestroy_v2 cuCtxSetFlags
    cuCtxSynchronize cuCtxSetLimit cuCtxSetCacheConfig cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuModuleUnload
    cuLibraryUnload cuFuncSetCacheConfig cuFuncLoad cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery cuStreamWaitEvent
    cuStreamAttachMemAsync cuStreamWriteValue32_v2 cuStreamWaitValue32_v2 cuStreamWriteValue64_v2 cuStreamWaitValue64_v2
    cuThreadExchangeStreamCaptureMode cuStreamUpdateCaptureDependencies_v2 cuGraphLaunch cuGraphDestroy cuGraphExecDestroy
    cuEventQuery cuEventSynchronize cuProfilerStart cuProfilerStop cuLogsRegisterCallback cuLogsUnregisterCallback
}
