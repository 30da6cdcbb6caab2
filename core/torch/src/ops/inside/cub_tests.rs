//! What CUB asks for, as it was measured.

use std::rc::Rc;

use super::tests::on;
use crate::ops::{Given, Reduction, ToldKernel, embedding, index_rows, neg, permute, reduction, select};
use crate::tensor::testing::{activation, backward_of, input_of, weight};
use crate::tensor::{Context, DType, Geometry, Kernels, Kind};

/// What kernels of `cx` took, one after the other.
fn taken(cx: &Rc<Context>, f: impl FnOnce()) -> Vec<u64> {
    let before = cx.recorder.borrow().ledger().storages.len();
    f();
    let recorder = cx.recorder.borrow();
    recorder.ledger().storages[before..].iter().filter(|s| s.kind == Kind::Scratch).map(|s| s.bytes).collect()
}

/// Measured on an H100 80GB HBM3, PyTorch 2.11.0+cu130, 2026-11-26: what CUB asks for within an embedding's backward, without
/// which the rest is as before.
#[test]
fn cub_asks_for_what_was_measured() {
    let measured = [
        (4096, 50_272, [83_455, 1279, 1279]),
        (4096, 2050, [83_455, 1279, 1279]),
        (32_768, 50_272, [549_375, 1279, 1791]),
        (147_456, 32, [2_408_959, 1791, 1279]),
        (603_729, 32, [9_811_967, 3327, 1279]),
    ];
    for (tokens, rows, cub) in measured {
        let cx = on(Kernels::Cuda(9, 0), "2.11");
        let out = embedding(&weight(&cx, &[rows, 8]), &input_of(&cx, &[tokens], DType::Int64));
        let all = taken(&cx, || drop(backward_of(out)));
        assert_eq!([all[3], all[7], all[10]], cub, "{tokens} tokens of {rows} rows: {all:?}");
    }
}

/// As above: row numbers, and a running sum of one row, of int64 and of int32; two rows have a kernel of PyTorch's own.
#[test]
fn rows_and_running_sums_ask_for_what_was_measured() {
    let cx = on(Kernels::Cuda(9, 0), "2.11");
    for (rows, picked, sort) in [(600, 2400, 44_031), (200, 2432, 3583), (256, 5376, 4607), (40, 80, 1)] {
        let out = index_rows(&neg(&activation(&cx, &[rows, 4])), &input_of(&cx, &[picked], DType::Int64));
        let all = taken(&cx, || drop(backward_of(out)));
        assert_eq!(all.last(), Some(&sort), "{picked} of {rows}: {all:?}");
    }
    let sum = |sizes: &[u64], dtype| {
        taken(&cx, || drop(reduction(Reduction::Cumsum, &input_of(&cx, sizes, dtype), sizes, dtype)))
    };
    assert_eq!(sum(&[1, 512], DType::Int64), [1279]);
    assert_eq!(sum(&[8], DType::Int32), [1023]);
    assert_eq!(sum(&[2, 512], DType::Int64), [0; 0]);
}

/// DeBERTa's loss looks for the samples that have a label, as PyTorch 2.11 does it on a simulated RTX 3060: the count and an address before the
/// places, then what it takes to pick them.
#[test]
fn labels_that_are_looked_for_are_counted_first() {
    let cx = on(Kernels::Cuda(8, 6), "2.11");
    let all = taken(&cx, || {
        drop(reduction(Reduction::Nonzero, &input_of(&cx, &[8], DType::Bool), &[8, 1], DType::Int64));
    });
    assert_eq!(all, [4, 1, 1023]);
}

/// What older CUBs have: on an A100 blocks of fewer numbers, before CUDA 13.0 no second rounding, before 12.6 counts of 32 bits.
#[test]
fn cub_changed_with_cuda() {
    let of = |kernels, torch| {
        let cx = on(kernels, torch);
        let out = embedding(&weight(&cx, &[32, 8]), &input_of(&cx, &[603_729], DType::Int64));
        let all = taken(&cx, || drop(backward_of(out)));
        [all[3], all[7], all[10]]
    };
    let (a100, h100) = (Kernels::Cuda(8, 0), Kernels::Cuda(9, 0));
    let copies: u64 = 2 * 8 * 603_729_u64.next_multiple_of(32) + 8 * 2048 + 256 + 255;
    let counted = |tile: u64| copies + 1024 * 603_729_u64.div_ceil(tile);
    assert_eq!(of(h100, "2.11"), [counted(4608), 3327, 1279]);
    assert_eq!(of(a100, "2.11"), [counted(3840), 6655, 1279]);
    assert_eq!(of(h100, "2.10"), [counted(4608), 3071, 1023]);
    assert_eq!(of(h100, "2.6"), [counted(4608), 1791, 1023]);
    // What PyTorch 2.1.2+cu121 asked for on hollow cards, the same on an RTX 4090.
    assert_eq!(of(h100, "2.4"), [counted(3840), 15_615, 1023]);
    assert_eq!(of(a100, "2.1"), [9_838_591, 15_615, 1023]);
    assert_eq!(of(Kernels::Cuda(7, 5), "2.1"), [9_896_959, 15_615, 1023]);
    assert_eq!(of(Kernels::Cuda(7, 5), "2.11"), [counted(2816), 31_231, 1279]);
}

/// `nonzero` of int64, as four versions do it on simulated cards: up to 4,096 numbers are counted by one block, more by as many as the
/// card is given; of what is picked, the places go by blocks that each architecture has of its own size.
#[test]
fn what_is_not_zero_is_counted_and_picked_by_blocks_of_the_card() {
    let of = |kernels, torch, numbers: u64| {
        let cx = on(kernels, torch);
        let x = input_of(&cx, &[numbers], DType::Int64);
        taken(&cx, || drop(reduction(Reduction::Nonzero, &x, &[0, 1], DType::Int64)))
    };
    // As an A100 has them: 108 multiprocessors, 2,048 threads each.
    let counted = 17_663;
    let (ampere, h100, b200) = (Kernels::Cuda(8, 6), Kernels::Cuda(9, 0), Kernels::Cuda(10, 0));
    assert_eq!(of(h100, "2.6", 4096), [4, 1, 767]);
    assert_eq!(of(h100, "2.6", 1_000_000), [4, counted, 2559]);
    assert_eq!(of(h100, "2.11", 3_000_000), [4, counted, 6655]);
    assert_eq!(of(h100, "2.4", 32 * 640), [4, counted, 767]);
    assert_eq!(of(h100, "2.4", 32 * 640 + 1), [4, counted, 1023]);
    assert_eq!(of(Kernels::Cuda(8, 0), "2.6", 32 * 2304 + 1), [4, counted, 1023]);
    assert_eq!(of(ampere, "2.11", 1_000_000), [4, counted, 13_311]);
    assert_eq!(of(b200, "2.9", 32 * 4224), [4, counted, 767]);
    assert_eq!(of(b200, "2.11", 32 * 3520 + 1), [4, counted, 1279]);
}

/// What a recording tells of what picks by a mask. PyTorch 2.11 on a simulated RTX 5070 Ti took as much, in blocks of 512: of 8 maps of 64 x 64, of
/// which the card selects all.
#[test]
fn a_kernel_that_is_told_of_counts_what_its_mask_selects() {
    let cx = on(Kernels::Cuda(12, 0), "2.11");
    let made = |sizes: &[u64]| Given { geometry: Geometry::contiguous(sizes), dtype: DType::Bool };
    let told =
        |name: &str, given: &[Given], numbers: &[u32]| ToldKernel::of(name, given.to_vec(), numbers.to_vec()).unwrap();
    let mask = made(&[8, 64, 64]);
    let values = Given { geometry: Geometry::contiguous(&[32_768]), dtype: DType::BFloat16 };

    let nonzero = told("nonzero", std::slice::from_ref(&mask), &[]);
    assert_eq!(nonzero.before(), Some(0));
    let counted = taken(&cx, || drop(nonzero.holds(&cx, true, &[])));
    assert_eq!(counted[0], 4);
    let picked = taken(&cx, || nonzero.run(&cx, &Geometry::contiguous(&[3, 32_768])));

    let scattered =
        taken(&cx, || told("masked_scatter", &[mask.clone(), values.clone()], &[]).run(&cx, &mask.geometry));
    assert_eq!(scattered, [8 * 32_768, 1791]);

    // Rows that a mask of three dimensions selects are added: their places are there while they are made offsets.
    let zeros = Geometry::contiguous(&[8, 64, 64]);
    let by_mask = taken(&cx, || told("index_put", &[values.clone(), mask.clone()], &[3, 1]).run(&cx, &zeros));
    let rows = Given { geometry: Geometry::contiguous(&[32_768]), dtype: DType::Int64 };
    let by_rows = taken(&cx, || told("index_put", &[values.clone(), rows], &[3]).run(&cx, &zeros));
    let places = [counted[0], counted[1], 3 * 8 * 32_768, picked[0]];
    assert_eq!(by_mask, [&places[..], &by_rows].concat());
}

/// `randperm` of 400 numbers: in order, what they are sorted by, and a sort that one block does (PyTorch 2.11 on a simulated RTX 5070 Ti).
#[test]
fn numbers_in_a_random_order_are_sorted_by_random_ones() {
    let cx = on(Kernels::Cuda(12, 0), "2.11");
    let of = |n: u64| {
        let out = Given { geometry: Geometry::contiguous(&[n]), dtype: DType::Int64 };
        let made = out.geometry.clone();
        taken(&cx, || ToldKernel::of("randperm", vec![out], Vec::new()).unwrap().run(&cx, &made))
    };
    assert_eq!(of(400), [3200, 1600, 1600, 1]);
    // Of so many, 32 bits are too few to tell them apart.
    assert_eq!(of(30_000)[1], 4 * 30_000);
    assert_eq!(of(31_000)[1], 8 * 31_000);
}

/// What is not row-major is copied, and the copy is there until the places are.
#[test]
fn a_strided_mask_is_copied_before_it_is_counted() {
    let cx = on(Kernels::Cuda(8, 6), "2.6");
    let mask = permute(&input_of(&cx, &[100, 2, 4], DType::Int64), &[2, 1, 0]);
    let all = taken(&cx, || drop(reduction(Reduction::Nonzero, &select(&mask, 0), &[50, 2], DType::Int64)));
    assert_eq!(all, [1600, 4, 1, 767]);
}
