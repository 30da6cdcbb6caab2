//! The CUDA driver's memory: allocations, addresses without memory and memory without addresses, pools, copies (CUDA Driver
//! API).

use super::call::{api, nothing, put, status};
use super::cards::cards;
use super::copy::{copy, fill};
use super::current;
use super::driver::{bound, card};
use super::memory::{self, Place};
use super::space::PAGE;

/// `CUmemAllocationProp`, up to where the memory is to lie.
#[repr(C)]
pub struct AllocationProperties {
    kind: i32,
    handles: i32,
    location_kind: i32,
    location: i32,
}

/// Names of memory without addresses say which card it is on, so that no table is needed: the card's index above these bits.
const NAME_BITS: u32 = 40;

fn name(index: i32, name: u64) -> u64 {
    (index as u64) << NAME_BITS | name
}

fn of_name(name: u64) -> (i32, u64) {
    ((name >> NAME_BITS) as i32, name & ((1 << NAME_BITS) - 1))
}

/// The default pools' handles: one per card, nothing is read behind them.
const POOL: u64 = 0x706f_6f6c_0000;

api! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let device = bound!();
        put(free, device.space().free() as usize);
        put(total, device.card.memory as usize);
        status::SUCCESS
    }
    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) {
        if bytes == 0 { return status::INVALID_VALUE }
        match memory::allocate(bound!(), bytes) {
            Ok(at) => { put(to, at); status::SUCCESS }
            Err(error) => error,
        }
    }
    fn cuMemFree_v2(at: u64) { memory::free(at) }
    fn cuMemAllocAsync(to: *mut u64, bytes: usize, _stream: u64) { cuMemAlloc_v2(to, bytes) }
    fn cuMemFreeAsync(at: u64, _stream: u64) { memory::free(at) }
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) {
        let (start, len) = match memory::place(at) {
            Some(Place::Card(_, start, len) | Place::Pinned(start, len)) => (start, len),
            None => return status::NOT_FOUND,
        };
        put(base, start);
        put(bytes, len as usize);
        status::SUCCESS
    }
    fn cuMemHostAlloc(to: *mut u64, bytes: usize, _flags: u32) {
        match memory::pin(bytes) {
            Ok(at) => { put(to, at); status::SUCCESS }
            Err(error) => error,
        }
    }
    fn cuMemAllocHost_v2(to: *mut u64, bytes: usize) { cuMemHostAlloc(to, bytes, 0) }
    fn cuMemFreeHost(at: u64) { cards().unpin(at); status::SUCCESS }
    fn cuMemHostRegister_v2(at: u64, bytes: usize, _flags: u32) { cards().pin(at, bytes as u64, false); status::SUCCESS }
    fn cuMemHostUnregister(at: u64) { cards().unpin(at); status::SUCCESS }
    fn cuMemHostGetDevicePointer_v2(to: *mut u64, host: u64, _flags: u32) { put(to, host); status::SUCCESS }

    fn cuPointerGetAttribute(to: *mut u64, number: i32, at: u64) {
        const HOST: u32 = 1;
        const DEVICE: u32 = 2;
        let Some(place) = memory::place(at) else { return status::INVALID_VALUE };
        let (card, start, len) = match place {
            Place::Card(index, start, len) => (Some(index), start, len),
            Place::Pinned(start, len) => (None, start, len),
        };
        match number {
            1 => put(to, cards().get(card.unwrap_or(0)).map_or(0, |d| std::ptr::from_ref(d) as u64)),
            2 => put(to.cast::<u32>(), if card.is_some() { DEVICE } else { HOST }),
            3 => put(to, at),
            4 if card.is_some() => return status::INVALID_VALUE,
            4 => put(to, at),
            7 | 20 => put(to, start),
            6 | 8 | 15 => put(to.cast::<u32>(), 0),
            9 => put(to.cast::<i32>(), card.unwrap_or_else(current::index)),
            10 | 13 => put(to.cast::<u32>(), 1),
            11 | 19 => put(to, start),
            12 | 18 => put(to, len),
            _ => return status::NOT_SUPPORTED,
        }
        status::SUCCESS
    }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: u64) { copy(to, from, bytes) }
    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: u64) { copy(to, from, bytes) }
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, _stream: u64) { copy(to, from, bytes) }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: u64) { copy(to, from, bytes) }
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) { fill(to, [value], count) }
    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) { fill(to, value.to_ne_bytes(), count) }
    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) { fill(to, value.to_ne_bytes(), count) }
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, _stream: u64) { fill(to, [value], count) }
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, _stream: u64) { fill(to, value.to_ne_bytes(), count) }
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, _stream: u64) { fill(to, value.to_ne_bytes(), count) }

    // ---- virtual memory

    fn cuMemGetAllocationGranularity(to: *mut usize) { put(to, PAGE as usize); status::SUCCESS }
    fn cuMemCreate(to: *mut u64, bytes: usize, properties: *const AllocationProperties, _flags: u64) {
        const DEVICE: i32 = 1;
        let on_card = (*properties).location_kind == DEVICE;
        let index = if on_card { (*properties).location } else { current::index() };
        if !(bytes as u64).is_multiple_of(PAGE) { return status::INVALID_VALUE }
        match card!(index).space().create(bytes as u64) {
            Ok(memory) => { put(to, name(index, memory)); status::SUCCESS }
            Err(_) => status::OUT_OF_MEMORY,
        }
    }
    fn cuMemRelease(memory: u64) {
        let (index, memory) = of_name(memory);
        if card!(index).space().put_back(memory).is_ok() { status::SUCCESS } else { status::INVALID_VALUE }
    }
    fn cuMemAddressReserve(to: *mut u64, bytes: usize, align: usize) {
        match card!(current::index()).space().reserve(bytes as u64, align as u64) {
            Ok(at) => { put(to, at); status::SUCCESS }
            Err(_) => status::OUT_OF_MEMORY,
        }
    }
    fn cuMemAddressFree(at: u64, _bytes: usize) {
        let Some((_, device)) = cards().of_address(at) else { return status::INVALID_VALUE };
        if device.space().unreserve(at).is_ok() { status::SUCCESS } else { status::INVALID_VALUE }
    }
    fn cuMemMap(at: u64, bytes: usize, _offset: usize, memory: u64, _flags: u64) {
        let (index, memory) = of_name(memory);
        if card!(index).space().map(at, bytes as u64, memory).is_ok() { status::SUCCESS } else { status::INVALID_VALUE }
    }
    fn cuMemUnmap(at: u64, bytes: usize) {
        let Some((_, device)) = cards().of_address(at) else { return status::INVALID_VALUE };
        if device.space().unmap(at, bytes as u64).is_ok() { status::SUCCESS } else { status::INVALID_VALUE }
    }

    // ---- pools: each card has its default one; what is freed goes back to the card at once

    fn cuDeviceGetDefaultMemPool(to: *mut u64, index: i32) { card!(index); put(to, POOL | index as u64); status::SUCCESS }
    fn cuDeviceGetMemPool(to: *mut u64, index: i32) { cuDeviceGetDefaultMemPool(to, index) }
    fn cuMemPoolSetAttribute(_pool: u64, _number: i32, _value: *const u64) { status::SUCCESS }
    fn cuMemPoolGetAttribute(pool: u64, number: i32, to: *mut u64) {
        let device = card!((pool & 0xff) as i32);
        let held = |bytes: u64| bytes.saturating_sub(if device.active() { device.card.context } else { 0 });
        match number {
            1..=3 => put(to.cast::<i32>(), 0),
            5 | 7 => put(to, held(device.space().used())), // reserved, used
            6 | 8 => put(to, held(device.space().peak())), // the most of each
            _ => put(to, 0),
        }
        status::SUCCESS
    }
}

nothing! { cuMemSetAccess cuMemPoolTrimTo cuMemPoolSetAccess cuMemPoolDestroy cuDeviceSetMemPool }
