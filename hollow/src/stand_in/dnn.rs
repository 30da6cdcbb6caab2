//! cuDNN: descriptors remember what they are told, every engine exists, and nothing is convolved. What cuDNN's own
//! heuristics would ask for as a workspace is not known without a card: every workspace and reserve is 0 bytes, but those
//! that [`plans`] has.

use std::ffi::{c_char, c_void};

use super::call::{Status, api, nothing, put, put_text, status};
use super::cards::cards;
use super::current;
use super::plans::{self, Descriptor, Seen};

/// What a tensor's or filter's descriptor is told.
#[derive(Clone, Copy, Default)]
struct Shape {
    kind: i32,
    format: i32,
    dims: usize,
    sizes: [i32; MOST],
    strides: [i32; MOST],
}

/// Dimensions at most: `CUDNN_DIM_MAX` of the cuDNN API.
const MOST: usize = 8;

/// A handle's only state.
#[derive(Default)]
struct Handle {
    stream: u64,
}

/// `cudnnBackendAttributeName_t`, those that a descriptor answers without having been told.
mod attribute {
    pub const ENGINE_HEURISTIC_RESULTS: i32 = 202;
    pub const ENGINE_CONFIG_KNOB_CHOICES: i32 = 302;
    pub const ENGINE_CONFIG_WORKSPACE: i32 = 303;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const PLAN_JSON: i32 = 405;
    pub const GRAPH_ENGINE_COUNT: i32 = 802;
    pub const ENGINE_KNOBS: i32 = 1302;
    pub const ENGINE_NUMERICAL_NOTE: i32 = 1303;
    pub const ENGINE_BEHAVIOUR_NOTE: i32 = 1305;
}

/// Bytes of one element of a `cudnnBackendAttributeType_t`: handles, 64-bit numbers, pointers and descriptors take 8,
/// fractions 16, booleans and characters 1, the others are C enumerations or 32-bit numbers.
fn element(kind: i32) -> usize {
    match kind {
        0 | 3 | 5 | 6 | 15 => 8,
        2 | 24 => 1,
        26 => 16,
        _ => 4,
    }
}

fn made<T: Default>() -> u64 {
    Box::into_raw(Box::<T>::default()) as u64
}

unsafe fn gone<T>(handle: *mut T) -> Status {
    if !handle.is_null() {
        // SAFETY: PyTorch destroys what it created, once.
        drop(unsafe { Box::from_raw(handle) });
    }
    status::SUCCESS
}

unsafe fn remember(
    shape: *mut Shape,
    kind: i32,
    format: i32,
    dims: i32,
    sizes: *const i32,
    strides: *const i32,
) -> Status {
    let dims = dims.max(0) as usize;
    if dims > MOST {
        return BAD_PARAMETER;
    }
    let mut told = Shape { kind, format, dims, ..Shape::default() };
    // SAFETY: as many numbers as dimensions.
    unsafe {
        sizes.copy_to_nonoverlapping(told.sizes.as_mut_ptr(), dims);
        if !strides.is_null() {
            strides.copy_to_nonoverlapping(told.strides.as_mut_ptr(), dims);
        }
        shape.write(told);
    }
    status::SUCCESS
}

/// `CUDNN_STATUS_BAD_PARAM` of cuDNN 9.
const BAD_PARAMETER: Status = 2000;

/// `cudnnConvolutionFwdAlgoPerf_t` and its like for the two backward ones.
#[repr(C)]
pub struct Performance {
    algorithm: i32,
    status: i32,
    time: f32,
    memory: usize,
    determinism: i32,
    arithmetic: i32,
    reserved: [i32; 3],
}

/// One algorithm, without a workspace.
unsafe fn one_algorithm(wanted: i32, found: *mut i32, results: *mut Performance) -> Status {
    let performance =
        Performance { algorithm: 1, status: 0, time: 0.0, memory: 0, determinism: 1, arithmetic: 0, reserved: [0; 3] };
    // SAFETY: the caller's.
    unsafe {
        if wanted > 0 {
            put(results, performance);
        }
        put(found, i32::from(wanted > 0));
    }
    status::SUCCESS
}

macro_rules! descriptors {
    ($($create:ident $destroy:ident $type:ty;)*) => {
        api! {
            $(
                fn $create(to: *mut u64) { put(to, made::<$type>()); status::SUCCESS }
                fn $destroy(descriptor: *mut c_void) { gone(descriptor.cast::<$type>()) }
            )*
        }
    };
}

descriptors! {
    cudnnCreate cudnnDestroy Handle;
    cudnnCreateTensorDescriptor cudnnDestroyTensorDescriptor Shape;
    cudnnCreateFilterDescriptor cudnnDestroyFilterDescriptor Shape;
    cudnnCreateConvolutionDescriptor cudnnDestroyConvolutionDescriptor Shape;
    cudnnCreateActivationDescriptor cudnnDestroyActivationDescriptor Shape;
    cudnnCreatePoolingDescriptor cudnnDestroyPoolingDescriptor Shape;
    cudnnCreateDropoutDescriptor cudnnDestroyDropoutDescriptor Shape;
    cudnnCreateSpatialTransformerDescriptor cudnnDestroySpatialTransformerDescriptor Shape;
    cudnnCreateCTCLossDescriptor cudnnDestroyCTCLossDescriptor Shape;
}

api! {
    fn cudnnSetStream(handle: *mut c_void, stream: u64) { (*handle.cast::<Handle>()).stream = stream; status::SUCCESS }
    fn cudnnGetStream(handle: *mut c_void, to: *mut u64) { put(to, (*handle.cast::<Handle>()).stream); status::SUCCESS }
    fn cudnnGetProperty(which: i32, to: *mut i32) {
        put(to, property(cards().setup.cudnn, which));
        status::SUCCESS
    }
    fn cudnnSetTensorNdDescriptor(descriptor: *mut c_void, kind: i32, dims: i32, sizes: *const i32, strides: *const i32) {
        remember(descriptor.cast(), kind, 0, dims, sizes, strides)
    }
    fn cudnnGetTensorNdDescriptor(descriptor: *const c_void, room: i32, kind: *mut i32, dims: *mut i32, sizes: *mut i32, strides: *mut i32) {
        let shape = &*descriptor.cast::<Shape>();
        put(kind, shape.kind);
        put(dims, shape.dims as i32);
        let count = shape.dims.min(room.max(0) as usize);
        sizes.copy_from_nonoverlapping(shape.sizes.as_ptr(), count);
        strides.copy_from_nonoverlapping(shape.strides.as_ptr(), count);
        status::SUCCESS
    }
    fn cudnnSetFilterNdDescriptor(descriptor: *mut c_void, kind: i32, format: i32, dims: i32, sizes: *const i32) {
        remember(descriptor.cast(), kind, format, dims, sizes, std::ptr::null())
    }
    fn cudnnGetFilterNdDescriptor(descriptor: *const c_void, room: i32, kind: *mut i32, format: *mut i32, dims: *mut i32, sizes: *mut i32) {
        let shape = &*descriptor.cast::<Shape>();
        put(kind, shape.kind);
        put(format, shape.format);
        put(dims, shape.dims as i32);
        sizes.copy_from_nonoverlapping(shape.sizes.as_ptr(), shape.dims.min(room.max(0) as usize));
        status::SUCCESS
    }
    fn cudnnDropoutGetStatesSize(_handle: u64, to: *mut usize) { put(to, 1 << 20); status::SUCCESS }

    // ---- convolutions and batch norms of the older interface

    fn cudnnGetConvolutionForwardAlgorithm_v7(_h: u64, _a: u64, _b: u64, _c: u64, _d: u64, wanted: i32, found: *mut i32, results: *mut Performance) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(_h: u64, _a: u64, _b: u64, _c: u64, _d: u64, wanted: i32, found: *mut i32, results: *mut Performance) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(_h: u64, _a: u64, _b: u64, _c: u64, _d: u64, wanted: i32, found: *mut i32, results: *mut Performance) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnGetConvolutionForwardWorkspaceSize(_h: u64, _a: u64, _b: u64, _c: u64, _d: u64, _algorithm: i32, to: *mut usize) {
        put(to, 0);
        status::SUCCESS
    }
    fn cudnnGetConvolutionBackwardDataWorkspaceSize(_h: u64, _a: u64, _b: u64, _c: u64, _d: u64, _algorithm: i32, to: *mut usize) {
        put(to, 0);
        status::SUCCESS
    }
    fn cudnnGetConvolutionBackwardFilterWorkspaceSize(_h: u64, _a: u64, _b: u64, _c: u64, _d: u64, _algorithm: i32, to: *mut usize) {
        put(to, 0);
        status::SUCCESS
    }
    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(_h: u64, _mode: i32, _ops: i32, _x: u64, _z: u64, _y: u64, _b: u64, _a: u64, to: *mut usize) {
        put(to, 0);
        status::SUCCESS
    }
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(_h: u64, _mode: i32, _ops: i32, _a: u64, _x: u64, to: *mut usize) {
        put(to, 0);
        status::SUCCESS
    }
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(_h: u64, _mode: i32, _ops: i32, _x: u64, _y: u64, _dy: u64, _dz: u64, _dx: u64, _b: u64, _a: u64, to: *mut usize) {
        put(to, 0);
        status::SUCCESS
    }

    // ---- the graph interface

    fn cudnnBackendCreateDescriptor(kind: i32, to: *mut u64) {
        let descriptor = Descriptor { kind, ..Descriptor::default() };
        put(to, Box::into_raw(Box::new(descriptor)) as u64);
        status::SUCCESS
    }
    fn cudnnBackendDestroyDescriptor(descriptor: *mut c_void) { gone(descriptor.cast::<Descriptor>()) }
    fn cudnnBackendSetAttribute(descriptor: *mut c_void, number: i32, kind: i32, count: i64, values: *const u8) {
        let bytes = if values.is_null() { 0 } else { count.max(0) as usize * element(kind) };
        let values = if bytes == 0 { Vec::new() } else { std::slice::from_raw_parts(values, bytes).to_vec() };
        let descriptor = &mut *descriptor.cast::<Descriptor>();
        let told = (kind, count, values);
        if let Some(workspace) = plans::workspace(number, &told, seen()) {
            descriptor.workspace = workspace;
        }
        descriptor.attributes.insert(number, told);
        status::SUCCESS
    }
    fn cudnnBackendGetAttribute(descriptor: *const c_void, number: i32, kind: i32, room: i64, found: *mut i64, values: *mut u8) {
        let room = if values.is_null() { 0 } else { room.max(0) as usize };
        let descriptor = &*descriptor.cast::<Descriptor>();
        if number == attribute::ENGINE_HEURISTIC_RESULTS {
            plans::suggest(values, room, descriptor.workspace);
        }
        let (count, bytes) = answer(number, kind, descriptor);
        let bytes = &bytes[..bytes.len().min(room * element(kind))];
        values.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        put(found, count);
        status::SUCCESS
    }
}

nothing! { cudnnBackendInitialize cudnnBackendFinalize cudnnBackendExecute }

/// The card this thread works on, and the library.
fn seen() -> Seen {
    let cards = cards();
    let (capability, multiprocessors) =
        cards.get(current::index()).map_or(((0, 0), 0), |device| (device.card.capability, device.card.multiprocessors));
    Seen { capability, multiprocessors, cudnn: cards.setup.cudnn }
}

/// Count and bytes of an attribute.
fn answer(number: i32, kind: i32, descriptor: &Descriptor) -> (i64, Vec<u8>) {
    match number {
        // One engine configuration, in the descriptor that the caller made for it.
        attribute::ENGINE_HEURISTIC_RESULTS => (1, Vec::new()),
        attribute::GRAPH_ENGINE_COUNT => (1, 1i64.to_ne_bytes().to_vec()),
        attribute::PLAN_WORKSPACE | attribute::ENGINE_CONFIG_WORKSPACE => {
            (1, descriptor.workspace.to_ne_bytes().to_vec())
        }
        attribute::PLAN_JSON => (3, b"{}\0".to_vec()),
        attribute::ENGINE_KNOBS
        | attribute::ENGINE_CONFIG_KNOB_CHOICES
        | attribute::ENGINE_NUMERICAL_NOTE
        | attribute::ENGINE_BEHAVIOUR_NOTE => (0, Vec::new()),
        _ => match descriptor.attributes.get(&number) {
            Some((_, count, bytes)) => (*count, bytes.clone()),
            // A descriptor that the caller made stays; anything else is zero.
            None if kind == 15 => (1, Vec::new()),
            None => (1, vec![0; element(kind)]),
        },
    }
}

/// `libraryPropertyType`: major 0, minor 1, patch 2; numbered by thousands up to cuDNN 8, by tens of thousands from 9 on.
fn property(version: usize, which: i32) -> i32 {
    let major = if version >= 90_000 { 10_000 } else { 1000 };
    (match which {
        0 => version / major,
        1 => version % major / 100,
        _ => version % 100,
    }) as i32
}

/// The version that PyTorch was built for.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    cards().setup.cudnn
}

/// The runtime it was built with.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    cards().setup.cuda.max(0) as usize
}

/// A status in words.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(error: Status) -> *const c_char {
    if error == status::SUCCESS { c"CUDNN_STATUS_SUCCESS".as_ptr() } else { c"CUDNN_STATUS_NOT_SUPPORTED".as_ptr() }
}

/// No error has a message.
///
/// # Safety
/// `to` is valid for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(to: *mut u8, room: usize) {
    // SAFETY: the caller's.
    unsafe { put_text(to, room, "") };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_answers_what_it_was_told_and_what_its_plan_asks_for() {
        let told =
            Descriptor { attributes: [(777, (3, 2, vec![1u8; 16]))].into(), workspace: 256, ..Descriptor::default() };
        assert_eq!(answer(777, 3, &told), (2, vec![1; 16]));
        assert_eq!(answer(778, 4, &told), (1, vec![0; 4]));
        assert_eq!(answer(attribute::PLAN_WORKSPACE, 3, &told).1, 256i64.to_ne_bytes());
    }

    #[test]
    fn versions_come_apart_as_each_generation_writes_them() {
        assert_eq!([0, 1, 2].map(|w| property(91_900, w)), [9, 19, 0]);
        assert_eq!([0, 1, 2].map(|w| property(8902, w)), [8, 9, 2]);
    }
}
