//! CUPTI, as far as PyTorch's profiler calls it: it can be subscribed to, and nothing is ever recorded.

use std::ffi::c_char;

use super::call::{api, put, status};
use super::cards::cards;

api! {
    fn cuptiGetVersion(to: *mut u32) { put(to, cards().setup.cuda.max(0) as u32); status::SUCCESS }
    fn cuptiGetResultString(_result: i32, to: *mut *const c_char) {
        put(to, c"not simulated on a hollow card".as_ptr());
        status::SUCCESS
    }
    fn cuptiActivityGetNumDroppedRecords(_context: u64, _stream: u32, to: *mut usize) { put(to, 0); status::SUCCESS }
}
