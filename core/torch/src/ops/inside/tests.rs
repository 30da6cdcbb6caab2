//! What kernels take for themselves, against published measurements and PyTorch's own formulas.

use std::rc::Rc;

use plimsoll_catalog::software::{Rules, Software, Version};

use super::{Sizes, attention_backward, foreach_norm};
use crate::ops::sdpa_rules::Kernel;
use crate::ops::softmax::{log_softmax, softmax_to};
use crate::ops::{Given, ToldKernel, embedding, expand, index_rows, layer_norm, linear, neg, transpose};
use crate::tensor::testing::{
    activation, activation_of, backward_of, forward, input_of, made, watch, weight, weight_of,
};
use crate::tensor::{Context, DType, Geometry, Kernels, Kind, Machine, ModuleId, Tensor};
use crate::{GradFn, Op};

fn rules(torch: &str) -> Rules {
    Rules::of(&Software { torch: Version::parse(torch).unwrap(), ..Software::default() })
}

/// A forward on an A100.
fn on_a100(torch: &str) -> Rc<Context> {
    on(Kernels::Cuda(8, 0), torch)
}

pub(super) fn on(kernels: Kernels, torch: &str) -> Rc<Context> {
    let cx = forward();
    cx.set_machine(Machine { rules: rules(torch), kernels, multiprocessors: 108, threads: 2048, ..Machine::default() });
    cx
}

/// The most that buffers of kernels took at once.
fn peak(cx: &Context) -> u64 {
    let recorder = cx.recorder.borrow();
    let ledger = recorder.ledger();
    let (mut live, mut peak) = (0, 0);
    for event in &ledger.events {
        let storage = &ledger.storages[event.id() as usize];
        if storage.kind == Kind::Scratch {
            live = if event.is_free() { live - storage.bytes } else { live + storage.bytes };
            peak = live.max(peak);
        }
    }
    assert_eq!(live, 0, "kernels let go of everything");
    peak
}

fn of_embedding(cx: &Rc<Context>, rows: u64, width: u64, tokens: u64, dtype: DType) -> u64 {
    let out = embedding(&weight_of(cx, &[rows, width], dtype), &input_of(cx, &[tokens], DType::Int64));
    drop(backward_of(out));
    peak(cx)
}

/// What was expanded is copied, forward and backward, as PyTorch 2.11 does of ELECTRA's token types on a hollow card.
#[test]
fn indices_that_were_expanded_are_copied() {
    let cx = on(Kernels::Cuda(8, 0), "2.11");
    let taken = |sizes: &[u64]| {
        let ids = expand(&input_of(&cx, &[1, 60], DType::Int64), sizes);
        let before = cx.position();
        let out = embedding(&weight_of(&cx, &[2, 8], DType::BFloat16), &ids);
        let forward = cx.position().events_since(before);
        let copies =
            backward_of(out).into_iter().filter(|event| event.ends_with("embedding_dense_backward [2, 60] int64"));
        (forward, copies.count())
    };
    // The table comes and goes with its name, the result comes; what was expanded is copied besides, and the copy goes.
    assert_eq!((taken(&[2, 60]), taken(&[1, 60])), ((5, 2), (3, 0)));
}

/// Liger-Kernel's benchmark of an embedding (benchmark/data/all_benchmark_data.csv at ead96b6, September 2024; A100 80GB,
/// float32, 32 x 512 tokens, width 768): `max_memory_allocated` at 4096 to 131072 rows. Two weights, the gradient and the
/// last one's grow with the table; what else grows is the kernel's own. (Below 4096 rows blocks of the allocator that were
/// not split blur it.)
#[test]
fn an_embeddings_backward_grows_as_measured() {
    let measured: [(u64, u64); 6] = [
        (4096, 13_003_816_960),
        (8192, 13_066_829_824),
        (16384, 13_192_855_552),
        (32768, 13_394_182_144),
        (65536, 13_796_835_328),
        (131_072, 14_602_141_696),
    ];
    let inside = |rows| of_embedding(&on_a100("2.4"), rows, 768, 32 * 512, DType::Float32);
    for pair in measured.windows(2) {
        let [(few, less), (many, more)] = [pair[0], pair[1]];
        let tables = 4 * 4 * 768 * (many - few);
        assert_eq!(inside(many) - inside(few), more - less - tables, "{few} to {many} rows");
    }
}

/// Up to 3072 tokens one kernel does without; half gradients are summed in float32 all the same.
#[test]
fn an_embeddings_backward_sorts_many_tokens() {
    assert_eq!(of_embedding(&on_a100("2.11"), 128_256, 64, 3072, DType::Float32), 0);
    let partial = 8192 / 10 + 8192;
    let indices = 8 * (3 * 8192 + 2 * 8192 + partial) + 16;
    let sums = 4 * 64 * partial;
    assert_eq!(of_embedding(&on_a100("2.11"), 128_256, 64, 8192, DType::Float32), indices + sums);
    assert_eq!(of_embedding(&on_a100("2.11"), 128_256, 64, 8192, DType::BFloat16), indices + sums);
}

/// Few rows, as token types have, for many tokens: since 2.11 added up in place, in a float32 copy of the table where that is half.
#[test]
fn few_rows_are_added_up_in_place() {
    let partial = 819 + 20;
    let indices = 8 * (3 * 8192 + 2 * 20 + partial) + 16;
    let sums = 4 * 4096 * partial;
    let of = |torch: &str, dtype| of_embedding(&on_a100(torch), 20, 4096, 8192, dtype);
    assert_eq!(of("2.10", DType::Float32), indices + sums);
    assert_eq!(of("2.10", DType::BFloat16), indices + sums);
    assert_eq!(of("2.11", DType::BFloat16), indices + 8 * partial + 4 * 20 * 4096);
    // In float32 the sort before it takes more: copies, 8 x 256 counters of 8 bytes and those of three blocks.
    let sort = 8 * 2 * 8192 + 8 * 256 * 8 + 3 * 1024 + 256 + 255;
    assert_eq!(of("2.11", DType::Float32), 8 * (2 * 8192 + 8192) + sort);
}

/// `[n_tensors * max_chunks]` of float32: 300 tensors beside a table of 525 million take 9.6 MB.
#[test]
fn clipping_has_a_rectangle_of_chunks() {
    let cx = on_a100("2.11");
    drop(foreach_norm(&cx, Op::ForeachNormScalar, 300, 525_336_576));
    assert_eq!(peak(&cx), 4 * 300 * 525_336_576_u64.div_ceil(65536));
    let old = on_a100("1.13");
    assert!(foreach_norm(&old, Op::ForeachNormScalar, 300, 525_336_576).is_none(), "tensor by tensor before 2.0");
}

const LLAMA: Sizes = Sizes { batch: 2, heads: 32, kv_heads: 8, queries: 2000, keys: 2000, head: 128, value: 128 };

fn of_attention(kernels: Kernels, kernel: Kernel, sizes: Sizes, dtype: DType) -> u64 {
    let cx = on(kernels, "2.11");
    drop(attention_backward(&cx, Op::ScaledDotProductFlashAttentionBackward, kernel, sizes, dtype));
    peak(&cx)
}

#[test]
fn flash_sums_the_queries_gradient_in_float32() {
    let rows = 2048;
    let sums = 4 * 2 * 32 * rows + 4 * 2 * rows * 32 * 128;
    let grouped = 2 * (2 * 2 * 2000 * 32 * 128);
    let a100 = Kernels::Cuda(8, 0);
    assert_eq!(of_attention(a100, Kernel::Flash, LLAMA, DType::BFloat16), sums + grouped);
    let all = Sizes { kv_heads: 32, ..LLAMA };
    assert_eq!(of_attention(a100, Kernel::Flash, all, DType::BFloat16), sums);
    // Heads of 80 are rounded to 96, heads of 160 to 192.
    let head = |head| of_attention(a100, Kernel::Flash, Sizes { head, value: head, ..all }, DType::BFloat16);
    assert_eq!(head(80), 4 * 2 * 32 * rows * (1 + 96));
    assert_eq!(head(160), 4 * 2 * 32 * rows * (1 + 192));
    // Before PyTorch 2.11 to 160; beyond 192 to 256 in either.
    let before = |head| {
        let cx = on(a100, "2.10");
        let sizes = Sizes { head, value: head, ..all };
        drop(attention_backward(
            &cx,
            Op::ScaledDotProductFlashAttentionBackward,
            Kernel::Flash,
            sizes,
            DType::BFloat16,
        ));
        peak(&cx)
    };
    assert_eq!(before(160), 4 * 2 * 32 * rows * (1 + 160));
    assert_eq!((before(224), head(224)), (before(256), before(256)));
}

/// `Params::workspace_size`: 64 x 64 tiles of the queries' gradient, 16 bytes before each.
#[test]
fn the_efficient_kernel_sums_the_queries_gradient_in_tiles() {
    let sizes = Sizes { batch: 2, heads: 12, kv_heads: 12, queries: 1000, keys: 1000, head: 64, value: 64 };
    let tiles = 24 * (16 * (64 * 64 * 4 + 16));
    let delta = 4 * 24 * 1000;
    for kernels in [Kernels::Cuda(8, 0), Kernels::Cuda(8, 9), Kernels::Cuda(7, 5)] {
        assert_eq!(of_attention(kernels, Kernel::Efficient, sizes, DType::Float16), delta + tiles);
    }
    // float32 multiplies gradient and output out before it sums them, which is more here than the tiles after.
    let product = 4 * 24 * 1000 * 64 + 2 * delta;
    let float = of_attention(Kernels::Cuda(8, 0), Kernel::Efficient, sizes, DType::Float32);
    assert_eq!(float, product.max(delta + tiles));
    // A head too wide for the registers of a small card: tiles of the other two gradients, 200 in all make 8 for
    // each head (25,178,112 bytes asked for on a simulated RTX 4090).
    let wide = Sizes { head: 128, value: 128, ..sizes };
    let small = 24 * (16 * 2 * (64 * 64 * 4 + 16) + 8 * 2 * 64 * 128 * 4);
    assert_eq!(of_attention(Kernels::Cuda(8, 9), Kernel::Efficient, wide, DType::Float16), delta + small);
    let roomy = 24 * (8 * (128 * 128 * 4 + 16));
    assert_eq!(of_attention(Kernels::Cuda(8, 0), Kernel::Efficient, wide, DType::Float16), delta + roomy);
}

/// The workspace of four heads of 100 queries, as PyTorch 2.11 asks for it on simulated cards.
#[test]
fn the_efficient_kernels_blocks_are_those_that_fit_the_card() {
    let half = [
        ((7, 5), [131_200, 262_272, 262_272, 262_272, 1_441_984, 1_573_120]),
        ((8, 0), [131_200, 262_208, 262_208, 262_208, 1_441_984, 1_573_120]),
        ((8, 6), [131_200, 262_272, 262_272, 786_688, 1_441_984, 1_573_120]),
        ((8, 9), [131_200, 262_272, 262_272, 786_688, 1_441_984, 1_573_120]),
        ((9, 0), [131_200, 262_208, 262_208, 262_208, 1_441_984, 1_573_120]),
        ((10, 0), [131_200, 262_208, 262_208, 262_208, 1_441_984, 1_573_120]),
        ((12, 0), [131_200, 786_688, 786_688, 786_688, 1_441_984, 1_573_120]),
    ];
    let delta = 4 * 4 * 100;
    for ((major, minor), bytes) in half {
        for (head, bytes) in [64, 80, 96, 128, 160, 256].into_iter().zip(bytes) {
            let sizes = Sizes { batch: 1, heads: 4, kv_heads: 4, queries: 100, keys: 100, head, value: head };
            let found = of_attention(Kernels::Cuda(major, minor), Kernel::Efficient, sizes, DType::Float16);
            assert_eq!(found, delta + bytes, "{major}.{minor}, heads of {head}");
        }
    }
}

#[test]
fn cudnns_front_end_asks_for_the_queries_gradient_in_float32() {
    let front_end = 4 * 2 * 32 * 2000 * 128 + 4 * 2 * 32 * 2000;
    let found = of_attention(Kernels::Cuda(10, 0), Kernel::Cudnn, LLAMA, DType::BFloat16);
    assert_eq!(found, front_end);
    // Its plan on Hopper: keys' and values' gradients of grouped heads for every head of the queries, and 256 bytes.
    let found = of_attention(Kernels::Cuda(9, 0), Kernel::Cudnn, LLAMA, DType::BFloat16);
    assert_eq!(found, front_end + 2 * 2 * 32 * 2000 * 128 * 2 + 256);
    // As an H100 had it.
    let sizes = Sizes { batch: 2, heads: 32, kv_heads: 8, queries: 1024, keys: 1024, head: 64, value: 64 };
    assert_eq!(of_attention(Kernels::Cuda(9, 0), Kernel::Cudnn, sizes, DType::BFloat16), 33_816_832);
}

#[test]
fn the_rest_takes_nothing() {
    assert_eq!(of_attention(Kernels::Cuda(8, 0), Kernel::Math, LLAMA, DType::Float32), 0);
    assert_eq!(of_attention(Kernels::Rocm, Kernel::Flash, LLAMA, DType::BFloat16), 0, "not known");
    assert_eq!(of_attention(Kernels::Uncounted, Kernel::Flash, LLAMA, DType::BFloat16), 0);
    let uncounted = forward();
    assert_eq!(of_embedding(&uncounted, 128_256, 64, 8192, DType::Float32), 0);
}

/// Offsets, sorted offsets and their order stay; values and copies of the sort go first.
#[test]
fn adding_up_rows_sorts_them() {
    let cx = on_a100("2.11");
    let out = index_rows(&neg(&activation(&cx, &[4096, 4])), &input_of(&cx, &[8192], DType::Int64));
    let events = backward_of(out);
    // Row numbers of 12 bits are gone over twice, with counters of three blocks.
    let sort = 2 * 8 * 8192 + 2 * 2048 + 3 * 1024 + 256 + 255;
    assert_eq!(peak(&cx), 8 * 8192 * (3 + 1) + sort);
    assert!(events.iter().any(|e| e == &format!("+index_put [{sort}] uint8")), "{events:?}");
}

/// The gradient times the result, in the result's dtype; a log-softmax does without.
#[test]
fn a_softmaxs_backward_multiplies_first() {
    let taken = |from: DType, softmax: &dyn Fn(&Tensor) -> Tensor| {
        let cx = on_a100("2.11");
        drop(backward_of(softmax(&neg(&activation_of(&cx, &[8, 4, 64], from)))));
        peak(&cx)
    };
    let numbers = 8 * 4 * 64;
    assert_eq!(taken(DType::Float32, &|x| softmax_to(x, DType::Float32)), 4 * numbers);
    assert_eq!(taken(DType::BFloat16, &|x| softmax_to(x, DType::BFloat16)), 2 * numbers);
    assert_eq!(taken(DType::Float16, &|x| softmax_to(x, DType::Float32)), 4 * numbers, "converted in the kernel");
    assert_eq!(taken(DType::Float32, &log_softmax), 0);
}

/// The owner's name and module stay on what its kernel takes.
#[test]
fn a_buffer_belongs_to_its_op_and_module() {
    let cx = on_a100("2.11");
    let module = cx.module(ModuleId::ROOT, "embed_tokens".into(), None);
    let out = cx.within(module, || embedding(&weight(&cx, &[50_000, 8]), &input_of(&cx, &[4096], DType::Int64)));
    let (events, ()) = watch(&cx, || drop(backward_of(out)));
    assert!(made(&events).contains(&"embedding_dense_backward"));
    let recorder = cx.recorder.borrow();
    let ledger = recorder.ledger();
    let scratch: Vec<_> = ledger.storages.iter().filter(|s| s.kind == Kind::Scratch).collect();
    assert!(scratch.iter().all(|s| s.op == Op::EmbeddingDenseBackward.id()
        && s.module == module
        && s.grad_fn == GradFn::EmbeddingBackward0.id()));
}

/// What searches go by: every buffer is a line through its sizes at two batches; the embedding's, which are not, say
/// their law.
#[test]
fn buffers_grow_evenly_with_the_batch() {
    let bytes = |batch: u64| -> Vec<u64> {
        let cx = on_a100("2.11");
        for (kernel, dtype) in [
            (Kernel::Flash, DType::BFloat16),
            (Kernel::Efficient, DType::BFloat16),
            (Kernel::Efficient, DType::Float32),
            (Kernel::Cudnn, DType::BFloat16),
        ] {
            let sizes = Sizes { batch, heads: 6, kv_heads: 2, queries: 1001, keys: 1001, head: 72, value: 72 };
            drop(attention_backward(&cx, Op::ScaledDotProductFlashAttentionBackward, kernel, sizes, dtype));
        }
        let recorder = cx.recorder.borrow();
        let ledger = recorder.ledger();
        ledger.storages.iter().filter(|s| s.kind == Kind::Scratch).map(|s| s.bytes).collect()
    };
    let (four, five) = (bytes(4), bytes(5));
    for batch in [7, 13, 40] {
        let line: Vec<u64> = four.iter().zip(&five).map(|(a, b)| a + (b - a) * (batch - 4)).collect();
        assert_eq!(bytes(batch), line);
    }
}

/// A bias's gradient is a sum over all tokens, to which many blocks add their part (`Reduce.cuh`; what PyTorch 2.11 asks for
/// on a simulated A100).
#[test]
fn the_gradient_of_a_bias_is_summed_in_parts() {
    let of = |rows: u64| {
        let cx = on_a100("2.11");
        let x = neg(&activation(&cx, &[rows, 8]));
        drop(backward_of(linear(&x, &weight(&cx, &[768, 8]), Some(&weight(&cx, &[768])))));
        peak(&cx)
    };
    assert_eq!(of(512), 0);
    assert_eq!(of(4096), 25_165_824 + 4 * 6);
    let uncounted = forward();
    let out =
        linear(&activation(&uncounted, &[4096, 8]), &weight(&uncounted, &[768, 8]), Some(&weight(&uncounted, &[768])));
    drop(backward_of(out));
    assert_eq!(peak(&uncounted), 0);
}

/// `layer_norm_cuda`, `layer_norm_backward_cuda`: rows that do not lie together are copied, there and back.
#[test]
fn a_layer_norm_copies_what_is_not_row_major() {
    let cx = on_a100("2.11");
    let x = transpose(&neg(&activation(&cx, &[8, 96, 100])), 1, 2);
    let out = layer_norm(&x, &weight(&cx, &[96]), Some(&weight(&cx, &[96])));
    assert_eq!(peak(&cx), 4 * 8 * 96 * 100);
    drop(backward_of(out));
    assert_eq!(peak(&cx), 4 * 8 * 96 * 100);
}

/// Over many short rows the gradients of weight and bias are sums of sums of 32 rows, and those are summed in parts.
#[test]
fn a_layer_norm_over_many_short_rows_sums_them_in_two_steps() {
    let cx = on_a100("2.11");
    let out = layer_norm(&neg(&activation(&cx, &[1024, 128, 96])), &weight(&cx, &[96]), Some(&weight(&cx, &[96])));
    drop(backward_of(out));
    // On an H200 the parts of the second step are as large.
    assert_eq!(peak(&cx), 2 * 1_572_864 + 786_432 + 4 * 2);
}

/// What a recording tells of a kernel comes to what the operator itself holds while it runs.
#[test]
fn a_kernel_that_is_told_of_holds_what_the_operator_does() {
    let given = |sizes: &[u64], dtype| Given { geometry: Geometry::contiguous(sizes), dtype };
    let told = |name: &str, given: &[Given], numbers: &[u32], made: &[u64]| {
        let cx = on_a100("2.11");
        ToldKernel::of(name, given.to_vec(), numbers.to_vec()).unwrap().run(&cx, &Geometry::contiguous(made));
        peak(&cx)
    };
    let half = DType::BFloat16;

    let tokens = [given(&[4, 2048, 64], half), given(&[4, 2048], DType::Int64)];
    let embedding = told("embedding_dense_backward", &tokens, &[], &[50_000, 64]);
    assert_eq!(embedding, of_embedding(&on_a100("2.11"), 50_000, 64, 4 * 2048, half));
    assert!(embedding > 0);

    let cx = on_a100("2.11");
    drop(backward_of(softmax_to(&activation_of(&cx, &[8, 8, 128, 128], half), DType::Float32)));
    let softmax = told("_softmax_backward_data", &[given(&[8, 8, 128, 128], DType::Float32)], &[], &[8, 8, 128, 128]);
    assert_eq!(softmax, peak(&cx));
    assert_eq!(softmax, 8 * 8 * 128 * 128 * 4);

    let cx = on_a100("2.11");
    let bias = weight_of(&cx, &[64], half);
    drop(backward_of(linear(&activation_of(&cx, &[65_536, 16], half), &weight_of(&cx, &[64, 16], half), Some(&bias))));
    let summed = told("sum.dim_IntList", &[given(&[65_536, 64], half)], &[1], &[1, 64]);
    assert_eq!(summed, peak(&cx));
    assert!(summed > 0);
    assert_eq!(told("sum.dim_IntList", &[given(&[64, 65_536], half)], &[0], &[64, 65_536]), 0);
}

/// What operators copy before they make anything: of what is not row-major, and so long as they make something.
#[test]
fn what_is_told_of_copies_what_it_is_given_before_it_makes_anything() {
    let rows = |sizes: &[u64]| Given { geometry: Geometry::contiguous(sizes), dtype: DType::BFloat16 };
    let turned =
        |sizes: &[u64]| Given { geometry: Geometry::contiguous(sizes).permuted(&[0, 2, 1]), dtype: DType::BFloat16 };
    let held = |name: &str, given: &[Given], numbers: &[u32], next: Option<&[u32]>| {
        let cx = on_a100("2.11");
        let told = |numbers: &[u32]| ToldKernel::of(name, given.to_vec(), numbers.to_vec()).unwrap();
        let kernel = told(numbers);
        let next: Vec<ToldKernel> = next.map(told).into_iter().collect();
        let further: Vec<&ToldKernel> = next.iter().filter(|next| next.continues(&kernel)).collect();
        let behind = kernel.holds(&cx, true, &further).iter().map(|(_, behind)| *behind).max().unwrap_or_default();
        (kernel.before(), behind, peak(&cx))
    };
    let (x, across, weight) = (rows(&[8, 64, 32]), turned(&[8, 32, 64]), rows(&[32]));
    let copy = 8 * 32 * 64 * 2;

    assert_eq!(held("native_layer_norm", std::slice::from_ref(&x), &[], None), (Some(2), 0, 0));
    assert_eq!(held("native_layer_norm", std::slice::from_ref(&across), &[], None), (Some(2), 0, copy));

    let backward = |given: &[Given], numbers: &[u32]| held("native_layer_norm_backward", given, numbers, None);
    let both = [across.clone(), across.clone(), weight.clone()];
    assert_eq!(backward(&both, &[0]), (Some(0), 0, copy));
    assert_eq!(backward(&[across.clone(), x.clone(), weight], &[0, 1]), (Some(0), 0, 0));

    // Efficient attention wants the gradient as `[batch, seq, heads, dim]`.
    let heads = |order: &[usize]| Given {
        geometry: Geometry::contiguous(&[8, 64, 4, 32]).permuted(order),
        dtype: DType::BFloat16,
    };
    let efficient = |grad: Given| held("_scaled_dot_product_efficient_attention_backward", &[grad], &[2], None);
    assert_eq!(efficient(heads(&[0, 2, 1, 3])), (Some(2), 0, 0));
    assert_eq!(efficient(heads(&[0, 1, 2, 3])), (Some(2), 0, 8 * 64 * 4 * 32 * 2));

    let flash =
        |grad: Given| held("_scaled_dot_product_flash_attention_backward", &[grad, heads(&[0, 2, 1, 3])], &[], None);
    assert_eq!(flash(heads(&[0, 2, 1, 3])), (Some(2), 0, 0));
    assert_eq!(flash(heads(&[0, 1, 2, 3])), (Some(2), 0, 8 * 64 * 4 * 32 * 2));

    // A line of 64 channels: its copy comes before the output, and before the input's gradient where the weight has one.
    let (filters, grad) = (rows(&[16, 64, 1]), rows(&[8, 16, 32]));
    let moves = [1, 0, 0];
    let line = [across.clone(), filters.clone()];
    assert_eq!(held("convolution", &line, &moves, None), (Some(0), 0, copy));
    let (input, own) = ([1, 1, 0, 0], [2, 1, 0, 0]);
    let given = [grad.clone(), across, filters.clone()];
    let of = |given: &[Given], numbers, next: Option<&[u32]>| held("convolution_backward", given, numbers, next);
    assert_eq!(of(&given, &input, Some(&own)), (Some(0), 1, copy));
    assert_eq!(of(&given, &input, None), (Some(0), 0, copy));
    assert_eq!(of(&given, &own, None), (Some(0), 0, copy));
    // The gradient that comes in is copied before that of the weight, and behind that of the input.
    let given = [turned(&[8, 32, 16]), x, filters];
    assert_eq!(of(&given, &input, None), (Some(0), 0, 0));
    assert_eq!(of(&given, &own, None), (Some(0), 0, 8 * 16 * 32 * 2));
}

/// What kernels copy when their results are there, of what lies in another order or dtype than they want (PyTorch 2.11 on a
/// simulated RTX 5070 Ti).
#[test]
fn what_is_told_of_copies_what_lies_otherwise() {
    let held = |name: &str, given: &[Given], numbers: &[u32]| {
        let cx = on_a100("2.11");
        let kernel = ToldKernel::of(name, given.to_vec(), numbers.to_vec()).unwrap();
        drop(kernel.holds(&cx, true, &[]));
        kernel.run(&cx, &Geometry::contiguous(&[1]));
        peak(&cx)
    };
    let rows = |sizes: &[u64], dtype| Given { geometry: Geometry::contiguous(sizes), dtype };
    let turned = |dtype| Given { geometry: Geometry::contiguous(&[8, 32, 64]).permuted(&[0, 2, 1]), dtype };
    let last = |dtype| Given { geometry: Geometry::contiguous(&[2, 12, 16, 8]).permuted(&[0, 3, 1, 2]), dtype };
    let (float, half) = (DType::Float32, DType::BFloat16);
    let (lines, images) = (8 * 32 * 64, 2 * 8 * 12 * 16);

    // A pool takes its input's order, and has its gradient in that; a resized line is row-major.
    assert_eq!(held("max_pool2d_with_indices", &[last(half)], &[1]), 0);
    assert_eq!(held("avg_pool2d_backward", &[rows(&[2, 8, 12, 16], half), last(half)], &[1]), 2 * images);
    assert_eq!(held("adaptive_max_pool2d", &[last(half)], &[0]), 2 * images);
    assert_eq!(held("upsample_nearest1d", &[turned(float)], &[0]), 4 * lines);
    assert_eq!(held("median.dim_values", &[turned(half)], &[0, 1]), 2 * lines);

    // In the result's dtype, and row-major.
    assert_eq!(held("cumsum", &[turned(half), rows(&[8, 64, 32], float)], &[1]), 2 * 4 * lines);
    assert_eq!(held("cumsum", &[rows(&[8, 64, 32], float), rows(&[8, 64, 32], float)], &[1]), 0);
    assert_eq!(held("where.self", &[turned(half), rows(&[8, 64, 32], float)], &[]), 4 * lines);
    assert_eq!(held("native_batch_norm", &[turned(half)], &[]), 4 * lines);
    assert_eq!(held("native_batch_norm", &[turned(float)], &[]), 0);
    assert_eq!(held("native_batch_norm", &[last(half)], &[]), 0);

    assert_eq!(held("mm", &[rows(&[64, 32], half), rows(&[32, 16], half)], &[]), 2 * (64 * 32 + 32 * 16));
    assert_eq!(held("roll", &[rows(&[8, 64, 32], half)], &[2]), 2 * lines);
    assert_eq!(held("roll", &[rows(&[8, 64, 32], half)], &[1]), 0);
    let (more, as_many) = (rows(&[8, 64, 64], half), rows(&[8, 32, 64], half));
    assert_eq!(held("im2col", &[rows(&[8, 64, 32], half), more.clone()], &[]), 2 * lines);
    assert_eq!(held("im2col", &[turned(half), more], &[]), 2 * 2 * lines);
    assert_eq!(held("col2im", &[rows(&[8, 64, 32], half), as_many.clone()], &[]), 0);
    assert_eq!(held("col2im", &[turned(half), as_many], &[]), 2 * lines);
    // A norm's input is copied before its gradients, which are then there, and what comes in behind them.
    let weight = rows(&[32], half);
    assert_eq!(held("native_layer_norm_backward", &[turned(half), rows(&[8, 64, 32], half), weight], &[0]), 2 * lines);
    assert_eq!(held("_fused_rms_norm_backward", &[turned(half), rows(&[8, 64, 32], half)], &[1]), 2 * lines);
    assert_eq!(held("_log_softmax", &[turned(half)], &[]), 2 * lines);
    assert_eq!(held("_log_softmax_backward_data", &[rows(&[8, 64, 32], half), turned(half)], &[]), 2 * lines);
    assert_eq!(held("_softmax_backward_data", &[turned(half), turned(half)], &[]), 3 * 2 * lines);
}

/// What PyTorch 2.11 asks for on a simulated H100 (132 multiprocessors, 2048 threads each), beside what comes out.
#[test]
fn kernels_that_a_recording_tells_of_hold_what_was_asked_for() {
    let given = |sizes: &[u64], dtype| Given { geometry: Geometry::contiguous(sizes), dtype };
    let told = |name: &str, given: &[Given], numbers: &[u32]| {
        let cx = on(Kernels::Cuda(9, 0), "2.11");
        cx.set_machine(Machine { multiprocessors: 132, ..cx.machine() });
        ToldKernel::of(name, given.to_vec(), numbers.to_vec()).unwrap().run(&cx, &Geometry::contiguous(&[1]));
        peak(&cx)
    };
    let (float, half) = (DType::Float32, DType::BFloat16);

    // Groups of 8 of 64 channels; of one number a channel.
    for dtype in [float, half] {
        let (image, points) = ([given(&[4, 64, 16, 16], dtype)], [given(&[2, 64, 1], dtype)]);
        assert_eq!(told("native_group_norm", &image, &[1]), 2048);
        assert_eq!(told("native_group_norm", &image, &[0]), 0);
        assert_eq!(told("native_group_norm", &points, &[1]), 0);
        assert_eq!(told("native_group_norm_backward", &image, &[8, 1, 1]), 3328);
        assert_eq!(told("native_group_norm_backward", &image, &[8, 1, 0]), 2304);
        assert_eq!(told("native_group_norm_backward", &image, &[8, 0, 1]), 2048);
        assert_eq!(told("native_group_norm_backward", &points, &[4, 1, 1]), 1088);
    }

    // Parts are as large as what is compared, with a place beside it or with moments 16 bytes.
    let (tall, wide) = ([65_536, 64], [3, 300_000]);
    for (name, bytes, few) in [
        ("sum.dim_IntList", 8_388_612, 456),
        ("amax", 8_388_612, 456),
        ("any.dim", 8_388_612, 456),
        ("max.dim", 33_554_436, 1788),
        ("var.correction", 33_554_436, 1788),
    ] {
        assert_eq!(told(name, &[given(&tall, float)], &[1]), bytes, "{name}");
        assert_eq!(told(name, &[given(&wide, float)], &[2]), few, "{name}");
    }
    for (name, bytes, few) in
        [("sum.dim_IntList", 8_388_612, 456), ("amax", 4_194_308, 234), ("argmax", 33_554_436, 1788)]
    {
        assert_eq!(told(name, &[given(&tall, half)], &[1]), bytes, "{name}");
        assert_eq!(told(name, &[given(&wide, half)], &[2]), few, "{name}");
    }
    // Truth values are summed as int64, and as float32 where that is asked for.
    assert_eq!(told("sum.dim_IntList", &[given(&tall, DType::Bool)], &[1, 8]), 50_331_652);
    assert_eq!(told("sum.dim_IntList", &[given(&tall, DType::Bool)], &[1, 4]), 25_165_828);
    assert_eq!(told("sum.dim_IntList", &[given(&tall, DType::Int64)], &[1]), 16_777_220);

    // In place; one row; few rows; many rows.
    assert_eq!(told("sort.stable", &[given(&[4, 4096], float)], &[1]), 32_768);
    assert_eq!(told("sort.stable", &[given(&[4, 8192], float)], &[0]), 32);
    assert_eq!(told("sort.stable", &[given(&[1, 100_000], float)], &[1]), 2_028_287);
    assert_eq!(told("sort.stable", &[given(&[4, 8192], half)], &[1]), 928_255);
    assert_eq!(told("sort.stable", &[given(&[200, 8192], half)], &[1]), 29_491_455);

    let topk = |sizes: [u64; 2], kept, sorted, dtype| {
        told("topk", &[given(&sizes, dtype), given(&[sizes[0], kept], dtype)], &[1, sorted])
    };
    assert_eq!(topk([2, 13_294], 300, 1, float), 0, "a block takes a row");
    for (sizes, kept, bytes) in [
        ([2, 20_000], 100, 24_167),
        ([1, 300_000], 300, 154_683),
        ([30, 12_000], 50, 219_799),
        ([1000, 900], 10, 1_565_279),
    ] {
        assert_eq!(topk(sizes, kept, 1, float), bytes, "{sizes:?}");
    }
    assert_eq!(topk([2, 20_000], 100, 1, half), 24_163);
    assert_eq!(topk([2, 50_000], 5000, 1, float), 451_071, "what comes out is sorted");
    assert_eq!(topk([2, 50_000], 5000, 0, float), 54_327);
}

/// A recording comes from anywhere.
#[test]
fn a_kernel_that_no_card_could_run_is_not_told_of() {
    let given = Given { geometry: Geometry::contiguous(&[1 << 30, 1 << 30]), dtype: DType::Float32 };
    assert!(ToldKernel::of("sum.dim_IntList", vec![given.clone()], vec![1]).is_none());
    assert!(ToldKernel::of("add.Tensor", vec![], vec![]).is_none());
    let short = Given { geometry: Geometry::contiguous(&[8]), dtype: DType::Float32 };
    let cx = on_a100("2.11");
    ToldKernel::of("embedding_dense_backward", vec![short], vec![]).unwrap().run(&cx, &Geometry::contiguous(&[8]));
    assert_eq!(peak(&cx), 0, "an operand is missing");
    let tokens = ["grad", "indices"].map(|_| Given { geometry: Geometry::contiguous(&[9000, 1]), dtype: DType::Int64 });
    let backward = ToldKernel::of("embedding_dense_backward", tokens.to_vec(), vec![]).unwrap();
    backward.run(&cx, &Geometry::contiguous(&[9000, u64::MAX - 1]));
    assert_eq!(peak(&cx), 0, "no table is as wide");
}
