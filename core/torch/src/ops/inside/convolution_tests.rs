//! Convolutions measured on an H100 80GB HBM3, PyTorch 2.11.0+cu130, cuDNN 9.19, 2026-11-26.

use super::convolution::{self, Convolved, Product};
use crate::Op;
use crate::ops::{self, Given, ToldKernel};
use crate::tensor::testing::{activation, backward_of, forward, watch, weight};
use crate::tensor::{Context, DType, Geometry, Kernels, Machine};

const MEASURED: &str = include_str!("../../../../../tests/corpus/convolutions.csv");
const PRODUCTS: [Product; 3] = [Product::Forward, Product::Input, Product::Weight];

/// What was convolved, and the workspaces.
type Row = (Convolved, [u64; 3]);

/// Of a line.
fn line(line: &str) -> Row {
    let fields: Vec<&str> = line.split(',').collect();
    let [samples, channels, size, filters, kernel, stride, padding, groups, dtype, last, made, workspaces @ ..] =
        &fields[..]
    else {
        panic!("{line}")
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let [places, made] = [size, made].map(|size| size.split('x').map(number).collect::<Vec<_>>());
    let [samples, channels, filters] = [samples, channels, filters].map(|text| number(text));
    let x = [&[samples, channels][..], &places].concat();
    let weight = [&[filters, channels / number(groups)][..], &vec![number(kernel); places.len()]].concat();
    let dtype = match *dtype {
        "fp32" => DType::Float32,
        "fp16" => DType::Float16,
        _ => DType::BFloat16,
    };
    let made = [&[samples, filters][..], &made].concat();
    let convolved = Convolved::of([&x, &weight], &made, [number(stride), number(padding)], *last == "1", dtype);
    (convolved, [0, 1, 2].map(|product| number(workspaces[product])))
}

fn measured() -> Vec<Row> {
    MEASURED.lines().skip(1).map(line).collect()
}

/// How many of the measured ones the rule has in the same block of the allocator, of each product; none is asked to be right.
#[test]
fn most_of_what_was_measured_follows_the_rule() {
    let rows = measured();
    let block = |bytes: u64| bytes.div_ceil(512);
    let met = PRODUCTS.map(|product| {
        let same = |(convolved, took): &&Row| block(convolved.workspace(product)) == block(took[product as usize]);
        rows.iter().filter(same).count()
    });
    // All together, the rule neither invents nor loses much.
    let mebibytes =
        |of: fn(&Row, usize) -> u64| [0, 1, 2].map(|i| rows.iter().map(|row| of(row, i)).sum::<u64>() >> 20);
    let took = mebibytes(|(_, took), i| took[i]);
    let says = mebibytes(|(convolved, _), i| convolved.workspace(PRODUCTS[i]));
    assert_eq!(
        (rows.len(), met, took, says),
        (763, [587, 519, 356], [12_603, 12_851, 15_693], [12_217, 11_852, 14_612])
    );
}

/// Lines of networks that people train.
#[test]
fn layers_of_known_networks_take_what_was_measured() {
    let rows = [
        // ResNet's stem, and a block.
        ("32,3,224x224,64,7,2,3,1,bf16,0,112x112,77120528,77323920,83242128", vec![Product::Forward]),
        ("32,3,224x224,64,7,2,3,1,fp16,0,112x112,64250384,77323920,64451471", vec![Product::Forward]),
        ("8,128,28x28,128,3,1,1,1,bf16,0,28x28,3506192,3506192,3506192", PRODUCTS.to_vec()),
        ("8,256,56x56,64,1,1,0,1,bf16,0,56x56,0,0,524288", PRODUCTS.to_vec()),
        ("8,512,7x7,512,3,1,1,1,fp32,0,7x7,11042832,14582367,11042832", vec![Product::Forward, Product::Weight]),
        // ConvNeXt's filters of one channel; VGG's first layer.
        ("8,384,14x14,384,7,1,3,384,fp32,0,14x14,0,0,0", PRODUCTS.to_vec()),
        ("8,3,224x224,64,3,1,1,1,bf16,0,224x224,0,57812115,60060816", vec![Product::Forward]),
        // Channels last: nothing is copied.
        ("8,256,28x28,256,3,2,1,1,bf16,1,14x14,0,131,0", vec![Product::Forward, Product::Weight]),
    ];
    for (row, products) in rows {
        assert!(MEASURED.lines().any(|measured| measured == row), "{row}");
        let (convolved, took) = line(row);
        for product in products {
            assert_eq!(convolved.workspace(product), took[product as usize], "{row} {product:?}");
        }
    }
}

/// As measured: the output first, then the workspace; nothing where it was not measured.
#[test]
fn it_is_held_on_hopper_alone_and_not_while_algorithms_are_searched_for() {
    let held = |kernels: Kernels, prepare: &dyn Fn(&Context)| {
        let cx = forward();
        cx.set_machine(Machine { kernels, ..cx.machine() });
        prepare(&cx);
        let (x, w) = (activation(&cx, &[8, 128, 28, 28]), weight(&cx, &[128, 128, 3, 3]));
        let (events, _) = watch(&cx, || ops::conv2d(&x, &w, None, ops::Window { kernel: 3, stride: 1, padding: 1 }));
        events.into_iter().filter(|event| event.starts_with('+')).collect::<Vec<_>>()
    };
    let out = "+convolution [8, 128, 28, 28] float32";
    let hopper = Kernels::Cuda(9, 0);
    assert_eq!(held(hopper, &|_| ()), [out, "+convolution [7012368] uint8"]);
    assert_eq!(held(hopper, &Context::search_convolutions), [out]);
    assert_eq!(held(hopper, &Context::leave_out_cudnn), [out]);
    for kernels in [Kernels::Cuda(8, 0), Kernels::Cuda(10, 0), Kernels::Rocm, Kernels::Uncounted] {
        assert_eq!(held(kernels, &|_| ()), [out], "{kernels:?}");
    }
}

/// A recording that says how filters move comes to what the operator itself holds, one gradient after the other; one that does not, or
/// whose filters have gaps or make more of less, holds nothing.
#[test]
fn a_convolution_that_is_told_of_holds_what_the_operator_does() {
    let hopper = || {
        let cx = forward();
        cx.set_machine(Machine { kernels: Kernels::Cuda(9, 0), ..cx.machine() });
        cx
    };
    let workspaces = |events: Vec<String>| {
        events.into_iter().filter(|e| e.starts_with('+') && e.ends_with("uint8")).collect::<Vec<_>>()
    };
    let cx = hopper();
    let (x, w) = (ops::neg(&activation(&cx, &[8, 128, 28, 28])), weight(&cx, &[128, 128, 3, 3]));
    let (events, out) = watch(&cx, || ops::conv2d(&x, &w, None, ops::Window { kernel: 3, stride: 1, padding: 1 }));
    let mut direct = workspaces(events);
    drop(x);
    direct.extend(workspaces(backward_of(out)));
    assert_eq!(direct.len(), 3);

    let given = |sizes: &[u64]| Given { geometry: Geometry::contiguous(sizes), dtype: DType::Float32 };
    let (image, filters) = ([8, 128, 28, 28], [128, 128, 3, 3]);
    let told = |moves: &[u32]| {
        let cx = hopper();
        let run = |name: &str, given: &[Given], which: &[u32], made: &[u64]| {
            let kernel = ToldKernel::of(name, given.to_vec(), [which, moves].concat()).unwrap();
            workspaces(watch(&cx, || kernel.run(&cx, &Geometry::contiguous(made))).0)
        };
        let of_backward = [given(&image), given(&image), given(&filters)];
        [
            run("convolution", &of_backward[1..], &[], &image),
            run("convolution_backward", &of_backward, &[1], &image),
            run("convolution_backward", &of_backward, &[2], &filters),
            run("convolution_backward", &of_backward, &[3], &[128]),
        ]
        .concat()
    };
    assert_eq!(told(&[1, 1, 0]), direct);
    for nothing in [&[][..], &[1, 1, 1], &[1, 1, 2]] {
        assert!(told(nothing).is_empty(), "{nothing:?}");
    }
}

/// What makes cuDNN take its part of the process: any convolution but those of a filter for each channel, for which PyTorch has kernels
/// of its own.
#[test]
fn cudnn_runs_all_but_filters_of_one_channel() {
    let ran = |channels: [u64; 2], groups: u64, dtype, last| {
        let cx = forward();
        let sizes = [&[2, channels[0], 14, 14][..], &[channels[1], channels[0] / groups, 3, 3]];
        let convolved = Convolved::of(sizes, &[2, channels[1], 14, 14], [1, 1], last, dtype);
        drop(convolution::convolution(&cx, Op::Convolution, convolved, Product::Forward));
        cx.recorder.borrow().ledger().ran.has(Op::CudnnConvolution.id())
    };
    assert!(ran([64, 64], 1, DType::Float32, false) && ran([64, 64], 8, DType::BFloat16, false));
    assert!(!ran([64, 64], 64, DType::Float32, false) && !ran([64, 64], 64, DType::BFloat16, false));
    assert!(ran([64, 64], 64, DType::Float16, false) && !ran([16, 16], 16, DType::Float16, false));
    assert!(ran([64, 64], 64, DType::Float32, true));
    // Filters of 3 x 3 that move by one place are cuDNN's in float16, by two places those of many channels.
    let cudnns = |channels, kernel, stride| {
        let made = [8, channels, 56 / stride, 56 / stride];
        let sizes = [&[8, channels, 56, 56][..], &[channels, 1, kernel, kernel]];
        Convolved::of(sizes, &made, [stride, kernel / 2], false, DType::Float16).is_cudnns()
    };
    assert_eq!([1, 3, 5, 7].map(|kernel| cudnns(96, kernel, 1)), [true, true, true, false]);
    assert_eq!([96, 256, 512].map(|channels| cudnns(channels, 3, 2)), [false, true, true]);
}
