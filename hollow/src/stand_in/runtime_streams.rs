//! The CUDA runtime's streams, events and graphs (CUDA Runtime API).

use std::ffi::c_void;

use super::call::{api, nothing, put, status};
use super::cards::cards;
use super::current::{self, noted};
use super::graph;
use super::runtime::device;
use super::streams;

/// From this version on a capture's dependencies have edges.
const WITH_EDGES: i32 = 13000;

api! {
    fn cudaStreamCreate(to: *mut u64) { device!(); put(to, streams::stream(current::index(), 0, 0)); status::SUCCESS }
    fn cudaStreamCreateWithFlags(to: *mut u64, flags: u32) {
        device!();
        put(to, streams::stream(current::index(), flags, 0));
        status::SUCCESS
    }
    fn cudaStreamCreateWithPriority(to: *mut u64, flags: u32, priority: i32) {
        device!();
        put(to, streams::stream(current::index(), flags, priority));
        status::SUCCESS
    }
    fn cudaStreamGetPriority(stream: u64, to: *mut i32) {
        put(to, streams::of(stream).map_or(0, |s| s.priority));
        status::SUCCESS
    }
    fn cudaStreamGetFlags(stream: u64, to: *mut u32) {
        put(to, streams::of(stream).map_or(0, |s| s.flags));
        status::SUCCESS
    }
    fn cudaStreamGetId(stream: u64, to: *mut u64) {
        put(to, streams::of(stream).map_or(stream, |s| s.id));
        status::SUCCESS
    }
    fn cudaStreamGetDevice(stream: u64, to: *mut i32) {
        put(to, streams::of(stream).map_or_else(current::index, |s| s.device));
        status::SUCCESS
    }
    fn cudaStreamAddCallback(stream: u64, call: extern "C" fn(u64, i32, *mut c_void), what: *mut c_void, _flags: u32) {
        call(stream, status::SUCCESS, what);
        status::SUCCESS
    }
    fn cudaLaunchHostFunc(_stream: u64, call: extern "C" fn(*mut c_void), what: *mut c_void) {
        call(what);
        status::SUCCESS
    }
    fn cudaStreamIsCapturing(stream: u64, to: *mut i32) { put(to, graph::capturing(streams::of(stream))); status::SUCCESS }
    fn cudaStreamBeginCapture(stream: u64, _mode: i32) { noted(graph::begin(streams::of(stream))) }
    fn cudaStreamEndCapture(stream: u64, to: *mut u64) { noted(graph::end(streams::of(stream), to)) }
    fn cudaStreamGetCaptureInfo(stream: u64, state: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut u64, edges: *mut u64, count: *mut usize) {
        if cards().setup.cuda < WITH_EDGES {
            return graph::info(streams::of(stream), state, id);
        }
        put(edges, 0);
        put(count, 0);
        cudaStreamGetCaptureInfo_v2(stream, state, id, graph, nodes, std::ptr::null_mut())
    }
    fn cudaStreamGetCaptureInfo_v3(stream: u64, state: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut u64, edges: *mut u64, count: *mut usize) {
        put(edges, 0);
        cudaStreamGetCaptureInfo_v2(stream, state, id, graph, nodes, count)
    }
    fn cudaStreamGetCaptureInfo_v2(stream: u64, state: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut u64, count: *mut usize) {
        put(graph, graph::HANDLE);
        put(nodes, 0);
        put(count, 0);
        graph::info(streams::of(stream), state, id)
    }
    fn cudaGraphInstantiate(to: *mut u64) { put(to, graph::HANDLE); status::SUCCESS }
    fn cudaGraphInstantiateWithFlags(to: *mut u64) { put(to, graph::HANDLE); status::SUCCESS }
    fn cudaGraphGetNodes(_graph: u64, _nodes: *mut u64, count: *mut usize) { put(count, 1); status::SUCCESS }
    fn cudaEventCreate(to: *mut u64) { device!(); put(to, streams::event()); status::SUCCESS }
    fn cudaEventCreateWithFlags(to: *mut u64, _flags: u32) { device!(); put(to, streams::event()); status::SUCCESS }
    fn cudaEventDestroy(event: u64) { streams::forget_event(event); status::SUCCESS }
    fn cudaEventRecord(event: u64, _stream: u64) { device!(); streams::record(event); status::SUCCESS }
    fn cudaEventRecordWithFlags(event: u64, _stream: u64, _flags: u32) { device!(); streams::record(event); status::SUCCESS }
    fn cudaEventElapsedTime(to: *mut f32, from: u64, event: u64) {
        let Some(ms) = streams::elapsed(from, event) else { return noted(status::INVALID_HANDLE) };
        put(to, ms);
        status::SUCCESS
    }
}

nothing! {
    cudaStreamDestroy cudaStreamSynchronize cudaStreamQuery cudaStreamWaitEvent cudaThreadExchangeStreamCaptureMode
    cudaStreamUpdateCaptureDependencies cudaGraphLaunch cudaGraphDestroy cudaGraphExecDestroy cudaGraphDebugDotPrint
    cudaEventQuery cudaEventSynchronize cudaStreamSetAttribute cudaCtxResetPersistingL2Cache
}
