//! cuBLAS and cuBLASLt: handles and what is asked of them. The products themselves are the dock's empty functions; the
//! workspaces are PyTorch's own and stay real.

use super::call::{api, put, status};
use super::cards::cards;

/// A handle or a descriptor: memory of its own, larger than any that PyTorch keeps inside its own objects.
fn object() -> u64 {
    Box::into_raw(Box::new([0u64; 128])) as u64
}

/// Gives [`object`] back.
unsafe fn gone(handle: u64) -> i32 {
    if handle != 0 {
        // SAFETY: PyTorch destroys what it created, once.
        drop(unsafe { Box::from_raw(handle as *mut [u64; 128]) });
    }
    status::SUCCESS
}

/// `cublasLtMatmulHeuristicResult_t`: algorithm, workspace, state, waves, reserved.
#[repr(C)]
pub struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// Where a handle keeps its stream, its mode of arithmetic, its pointers' mode.
const STREAM: usize = 0;
const MATH: usize = 1;
const POINTERS: usize = 2;

unsafe fn set(handle: *mut u64, place: usize, value: u64) -> i32 {
    // SAFETY: a handle of [`object`].
    unsafe { handle.add(place).write(value) };
    status::SUCCESS
}

api! {
    fn cublasCreate_v2(to: *mut u64) { put(to, object()); status::SUCCESS }
    fn cublasDestroy_v2(handle: u64) { gone(handle) }
    fn cublasGetVersion_v2(_handle: u64, to: *mut i32) { put(to, cards().setup.cuda * 10); status::SUCCESS }
    fn cublasGetProperty(which: i32, to: *mut i32) {
        let cuda = cards().setup.cuda;
        put(to, match which { 0 => cuda / 1000, 1 => cuda % 1000 / 10, _ => 0 });
        status::SUCCESS
    }
    fn cublasSetStream_v2(handle: *mut u64, stream: u64) { set(handle, STREAM, stream) }
    fn cublasGetStream_v2(handle: *const u64, to: *mut u64) { put(to, *handle.add(STREAM)); status::SUCCESS }
    fn cublasSetMathMode(handle: *mut u64, mode: u32) { set(handle, MATH, u64::from(mode)) }
    fn cublasGetMathMode(handle: *const u64, to: *mut u32) { put(to, *handle.add(MATH) as u32); status::SUCCESS }
    fn cublasSetPointerMode_v2(handle: *mut u64, mode: u32) { set(handle, POINTERS, u64::from(mode)) }
    fn cublasGetPointerMode_v2(handle: *const u64, to: *mut u32) { put(to, *handle.add(POINTERS) as u32); status::SUCCESS }

    fn cublasLtCreate(to: *mut u64) { put(to, object()); status::SUCCESS }
    fn cublasLtDestroy(handle: u64) { gone(handle) }
    fn cublasLtMatmulDescCreate(to: *mut u64) { put(to, object()); status::SUCCESS }
    fn cublasLtMatmulDescDestroy(handle: u64) { gone(handle) }
    fn cublasLtMatrixLayoutCreate(to: *mut u64) { put(to, object()); status::SUCCESS }
    fn cublasLtMatrixLayoutDestroy(handle: u64) { gone(handle) }
    fn cublasLtMatmulPreferenceCreate(to: *mut u64) { put(to, object()); status::SUCCESS }
    fn cublasLtMatmulPreferenceDestroy(handle: u64) { gone(handle) }
    /// There is always one algorithm, and it needs no workspace of its own.
    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: u64, _operation: u64, _a: u64, _b: u64, _c: u64, _d: u64, _preference: u64,
        wanted: i32, results: *mut Heuristic, found: *mut i32,
    ) {
        if wanted > 0 {
            put(results, Heuristic { algorithm: [0; 8], workspace: 0, state: 0, waves: 1.0, reserved: [0; 4] });
        }
        put(found, i32::from(wanted > 0));
        status::SUCCESS
    }
}

/// The version of cuBLASLt.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    cards().setup.cuda as usize * 10
}
