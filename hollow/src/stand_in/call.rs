//! What every function that C calls is made of.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A status as all of CUDA's libraries have it: 0 is success.
pub(super) type Status = c_int;

/// Error numbers that driver and runtime share since CUDA 10.1 (CUDA Runtime API, `cudaError_t`).
pub(super) mod status {
    use super::Status;

    pub const SUCCESS: Status = 0;
    pub const INVALID_VALUE: Status = 1;
    pub const OUT_OF_MEMORY: Status = 2;
    pub const INVALID_CONFIGURATION: Status = 9;
    pub const INVALID_SYMBOL: Status = 13;
    pub const INVALID_DEVICE_FUNCTION: Status = 98;
    pub const NO_DEVICE: Status = 100;
    pub const INVALID_DEVICE: Status = 101;
    pub const INVALID_CONTEXT: Status = 201;
    pub const INVALID_HANDLE: Status = 400;
    pub const NOT_FOUND: Status = 500;
    pub const NOT_READY: Status = 600;
    pub const NOT_SUPPORTED: Status = 801;

    /// Name and sentence of an error, each ended by a zero as C has it.
    pub fn words(status: Status) -> (&'static str, &'static str) {
        match status {
            SUCCESS => ("cudaSuccess\0", "no error\0"),
            INVALID_VALUE => ("cudaErrorInvalidValue\0", "invalid argument\0"),
            OUT_OF_MEMORY => ("cudaErrorMemoryAllocation\0", "out of memory\0"),
            INVALID_CONFIGURATION => ("cudaErrorInvalidConfiguration\0", "invalid configuration argument\0"),
            INVALID_SYMBOL => ("cudaErrorInvalidSymbol\0", "invalid device symbol\0"),
            INVALID_DEVICE_FUNCTION => ("cudaErrorInvalidDeviceFunction\0", "invalid device function\0"),
            NO_DEVICE => ("cudaErrorNoDevice\0", "no CUDA-capable device is detected\0"),
            INVALID_DEVICE => ("cudaErrorInvalidDevice\0", "invalid device ordinal\0"),
            INVALID_CONTEXT => ("cudaErrorDeviceUninitialized\0", "invalid device context\0"),
            INVALID_HANDLE => ("cudaErrorInvalidResourceHandle\0", "invalid resource handle\0"),
            NOT_FOUND => ("cudaErrorSymbolNotFound\0", "named symbol not found\0"),
            NOT_READY => ("cudaErrorNotReady\0", "device not ready\0"),
            NOT_SUPPORTED => ("cudaErrorNotSupported\0", "operation not supported on a hollow card\0"),
            _ => ("cudaErrorUnknown\0", "unknown error\0"),
        }
    }
}

/// Functions with C's calling convention that answer with a status. Their bodies are unsafe: a pointer that C hands over is
/// taken to be what the documentation says it is.
macro_rules! api {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::stand_in::call::Status {
                // SAFETY: each pointer is null or valid for what its function's documentation says of it.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

/// Functions that take anything and do nothing, successfully: there is nothing to be done on a hollow card.
macro_rules! nothing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> $crate::stand_in::call::Status {
                $crate::stand_in::call::status::SUCCESS
            }
        )*
    };
}

pub(super) use {api, nothing};

/// Writes an answer where C wants it, if it does.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(super) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as above. C's structures need not be aligned for the types they are read as.
        unsafe { to.write_unaligned(value) }
    }
}

/// Writes a text and its closing zero into C's buffer, cut to fit.
///
/// # Safety
/// `to` is null or valid for writes of `room` bytes.
pub(super) unsafe fn put_text(to: *mut u8, room: usize, text: &str) {
    if to.is_null() || room == 0 {
        return;
    }
    let len = text.len().min(room - 1);
    // SAFETY: `len + 1 <= room`.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr(), len);
        to.add(len).write(0);
    }
}

/// A lock, used on even if whoever held it panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
