//! NVRTC, as far as PyTorch calls it for kernels that it writes while it runs: TorchScript's fuser and jiterator. Every
//! program compiles, to nothing: what is launched does nothing either (NVRTC documentation).

use std::ffi::{CString, c_char};

use super::call::{Status, api, put, status};
use super::cards::cards;

/// What a program becomes: a text without any function in it. The driver's part takes any image.
const IMAGE: &[u8] = b"// hollow\0";

const INVALID_INPUT: Status = 3;

/// A program: the names of its functions are its callers'.
#[derive(Debug, Default)]
pub struct Program {
    names: Vec<CString>,
}

api! {
    fn nvrtcVersion(major: *mut i32, minor: *mut i32) {
        let cuda = cards().setup.cuda;
        put(major, cuda / 1000);
        put(minor, cuda % 1000 / 10);
        status::SUCCESS
    }
    fn nvrtcCreateProgram(to: *mut *mut Program) { put(to, Box::into_raw(Box::default())); status::SUCCESS }
    fn nvrtcDestroyProgram(program: *mut *mut Program) {
        let made = program.read_unaligned();
        if !made.is_null() {
            drop(Box::from_raw(made));
        }
        put(program, std::ptr::null_mut());
        status::SUCCESS
    }
    fn nvrtcGetPTXSize(_program: *mut Program, to: *mut usize) { put(to, IMAGE.len()); status::SUCCESS }
    fn nvrtcGetPTX(_program: *mut Program, to: *mut u8) {
        to.copy_from_nonoverlapping(IMAGE.as_ptr(), IMAGE.len());
        status::SUCCESS
    }
    fn nvrtcGetCUBINSize(program: *mut Program, to: *mut usize) { nvrtcGetPTXSize(program, to) }
    fn nvrtcGetCUBIN(program: *mut Program, to: *mut u8) { nvrtcGetPTX(program, to) }
    fn nvrtcGetProgramLogSize(_program: *mut Program, to: *mut usize) { put(to, 1); status::SUCCESS }
    fn nvrtcGetProgramLog(_program: *mut Program, to: *mut u8) { put(to, 0); status::SUCCESS }
    fn nvrtcGetLoweredName(program: *mut Program, name: *const c_char, to: *mut *const c_char) {
        if program.is_null() || name.is_null() { return INVALID_INPUT }
        // Kept until the program goes, as documented. A name that was given is as good as one that was lowered.
        let text = std::ffi::CStr::from_ptr(name).to_owned();
        let names = &mut (*program).names;
        names.push(text);
        put(to, names.last().map_or(std::ptr::null(), |text| text.as_ptr()));
        status::SUCCESS
    }
}

/// The names are taken as they are asked for; compiling does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcAddNameExpression() -> Status {
    status::SUCCESS
}

/// Every program is one.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcCompileProgram() -> Status {
    status::SUCCESS
}

/// An error in words.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(error: Status) -> *const c_char {
    (if error == status::SUCCESS { c"NVRTC_SUCCESS" } else { c"NVRTC_ERROR_INVALID_INPUT" }).as_ptr()
}
