//! What the optimizers beside PyTorch's classics keep and allocate (bitsandbytes' `optim/optimizer.py`, lion-pytorch's
//! `lion_pytorch.py` and `foreach.py`, `torch/optim/_muon.py`, `torch/optim/swa_utils.py`).

use std::rc::Rc;

use plimsoll_ledger::PhaseName;
use plimsoll_scenario::{Optimizer as Name, OptimizerImpl, Training};

use super::{Ema, Share, build};
use crate::Op;
use crate::ops;
use crate::tensor::testing::{alive, forward, frozen_of, made, watch, weight_of};
use crate::tensor::{Context, DType, Kind, Tensor, backward};

fn recipe(optimizer: Name, optimizer_impl: OptimizerImpl) -> Training {
    Training { optimizer, optimizer_impl, ..Training::default() }
}

fn trained(cx: &Rc<Context>, sizes: &[&[u64]], dtype: DType) -> Vec<Tensor> {
    let weights: Vec<Tensor> = sizes.iter().map(|s| weight_of(cx, s, dtype)).collect();
    cx.begin(PhaseName::Backward, Some(1), Some(1));
    weights.iter().for_each(|w| backward(&ops::tanh(w)));
    cx.begin(PhaseName::Optimizer, Some(1), None);
    weights
}

fn step(cx: &Rc<Context>, optimizers: &mut [Share]) -> Vec<String> {
    watch(cx, || optimizers.iter_mut().for_each(|optimizer| optimizer.step(cx))).0
}

/// Bytes for both moments, a float32 scale for each begun block of 256, one pair of maps for all parameters; whatever
/// the weights' dtype.
#[test]
fn adamw_8bit_keeps_bytes_and_scales() {
    for dtype in [DType::Float32, DType::BFloat16] {
        let cx = forward();
        let weights = trained(&cx, &[&[64, 64], &[64, 65]], dtype);
        let mut optimizers = build(&recipe(Name::AdamW8bit, OptimizerImpl::ForLoop), &weights);
        let first = step(&cx, &mut optimizers);
        assert_eq!(
            first,
            [
                "+_to_copy [256] float32",
                "+_to_copy [256] float32",
                "+zeros_like [64, 64] uint8",
                "+zeros_like [64, 64] uint8",
                "+zeros [16] float32",
                "+zeros [16] float32",
                "+zeros_like [64, 65] uint8",
                "+zeros_like [64, 65] uint8",
                "+zeros [17] float32",
                "+zeros [17] float32",
            ]
        );
        assert_eq!(alive(&cx, Kind::OptimizerState).len(), 10);
        assert!(step(&cx, &mut optimizers).is_empty(), "the kernel works in place");
    }
}

/// `min_8bit_size=4096`: one number fewer stays in float32, in a model of half weights too.
#[test]
fn adamw_8bit_leaves_small_parameters_in_float32() {
    let cx = forward();
    let weights = trained(&cx, &[&[4095]], DType::BFloat16);
    let first = step(&cx, &mut build(&recipe(Name::AdamW8bit, OptimizerImpl::ForLoop), &weights));
    assert_eq!(first, ["+zeros_like [4095] float32", "+zeros_like [4095] float32"]);
}

/// `exp_avg.clone().mul_(beta1).add(grad)`: two buffers of one parameter at a time.
#[test]
fn lion_makes_two_buffers_of_one_parameter() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32], &[64]], DType::BFloat16);
    let mut optimizers = build(&recipe(Name::Lion, OptimizerImpl::ForLoop), &weights);
    let first = step(&cx, &mut optimizers);
    assert_eq!(made(&first), ["zeros_like", "clone", "add.Tensor", "zeros_like", "clone", "add.Tensor"]);
    assert_eq!(alive(&cx, Kind::OptimizerState), ["zeros_like [64, 32] bfloat16", "zeros_like [64] bfloat16"]);
    assert_eq!(
        step(&cx, &mut optimizers)[..4],
        [
            "+clone [64, 32] bfloat16",
            "+add.Tensor [64, 32] bfloat16",
            "-clone [64, 32] bfloat16",
            "-add.Tensor [64, 32] bfloat16"
        ]
    );
}

/// `updates = [t.clone() for t in exp_avgs]`.
#[test]
fn foreach_lion_copies_every_moment_at_once() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32], &[64]], DType::Float32);
    let mut optimizers = build(&recipe(Name::Lion, OptimizerImpl::Foreach), &weights);
    step(&cx, &mut optimizers);
    let second = step(&cx, &mut optimizers);
    assert_eq!(second[..2], ["+clone [64, 32] float32", "+clone [64] float32"]);
    assert_eq!(second.len(), 4);
}

/// bitsandbytes' 32-bit states are float32 beside half weights, and its kernel works in place.
#[test]
fn fused_lion_keeps_float32() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32]], DType::BFloat16);
    let mut optimizers = build(&recipe(Name::Lion, OptimizerImpl::Fused), &weights);
    assert_eq!(step(&cx, &mut optimizers), ["+zeros_like [64, 32] float32"]);
    assert!(step(&cx, &mut optimizers).is_empty());
}

/// Five iterations on the wide side of the matrix, in bfloat16: a Gram matrix, its polynomial and the next iterate.
#[test]
fn muon_works_on_the_smaller_gram_matrix() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32]], DType::Float32);
    let mut optimizers = build(&recipe(Name::Muon, OptimizerImpl::Foreach), &weights);
    let first = step(&cx, &mut optimizers);
    assert_eq!(
        first[..3],
        ["+zeros_like [64, 32] float32", "+lerp.Scalar [64, 32] float32", "+_to_copy [64, 32] bfloat16"]
    );
    let count = |what: &str| first.iter().filter(|e| *e == what).count();
    assert_eq!([count("+mm [32, 32] bfloat16"), count("+addmm [32, 32] bfloat16")], [5, 5]);
    assert_eq!(count("+addmm [32, 64] bfloat16"), 5, "the tall matrix lies on its side");
    assert_eq!(alive(&cx, Kind::OptimizerState), ["zeros_like [64, 32] float32"]);
}

/// Embeddings, the output head, and all that is no matrix are AdamW's.
#[test]
fn muon_leaves_the_rest_to_adamw() {
    let cx = forward();
    let weights = trained(&cx, &[&[8, 4], &[100, 4], &[4]], DType::Float32);
    cx.mark_outer(&weights[1]);
    let mut optimizers = build(&recipe(Name::Muon, OptimizerImpl::Fused), &weights);
    let shares: Vec<_> = optimizers.iter().map(|share| (share.parameters.len(), share.scales_itself)).collect();
    assert_eq!(shares, [(1, false), (2, true)]);
    step(&cx, &mut optimizers);
    let state = alive(&cx, Kind::OptimizerState);
    assert_eq!(state.iter().filter(|s| s.contains("[8, 4]")).count(), 1, "one momentum: {state:?}");
    assert_eq!(state.iter().filter(|s| s.contains("[100, 4]")).count(), 2, "two moments: {state:?}");
}

/// PyTorch refuses an optimizer without parameters.
#[test]
fn muon_makes_no_empty_optimizer() {
    let cx = forward();
    let weights = trained(&cx, &[&[8, 4]], DType::Float32);
    assert_eq!(build(&recipe(Name::Muon, OptimizerImpl::Foreach), &weights).len(), 1);
    let vectors = trained(&cx, &[&[8]], DType::Float32);
    assert_eq!(build(&recipe(Name::Muon, OptimizerImpl::Foreach), &vectors).len(), 1);
}

/// `deepcopy(model)` copies frozen parameters and buffers too. The first update copies, each later one takes the count
/// of averages to the device, once a dtype.
#[test]
fn an_average_copies_all_there_is() {
    let cx = forward();
    cx.begin(PhaseName::Load, None, None);
    let parameters = [weight_of(&cx, &[8, 8], DType::Float32), frozen_of(&cx, &[16], DType::BFloat16)];
    let _buffer = cx.counting_as(Kind::Buffer, || cx.empty_sizes(Op::EmptyStrided, &[3], DType::Float32));
    let (events, mut average) = watch(&cx, || Ema::new(&cx, &parameters, cx.next_storage()));
    assert_eq!(events, ["+clone [8, 8] float32", "+clone [16] bfloat16", "+clone [3] float32"]);
    cx.begin(PhaseName::Optimizer, Some(1), None);
    assert!(watch(&cx, || average.update(&cx)).0.is_empty());
    let second = watch(&cx, || average.update(&cx)).0;
    assert_eq!(made(&second), ["_to_copy", "_to_copy"]);
    assert_eq!(second.len(), 4, "and let go of");
    drop(parameters);
}

/// `get_state_buffer`: from 100,000 numbers on both moments are in managed memory; scales and maps never are.
#[test]
fn paged_moments_of_large_parameters_are_not_the_allocators() {
    let cx = forward();
    let weights = trained(&cx, &[&[100_000], &[99_999]], DType::BFloat16);
    let first = step(&cx, &mut build(&recipe(Name::PagedAdamW, OptimizerImpl::ForLoop), &weights));
    assert_eq!(first, ["+zeros_like [99999] float32", "+zeros_like [99999] float32"]);
    let cx = forward();
    let weights = trained(&cx, &[&[102_400]], DType::Float32);
    let first = step(&cx, &mut build(&recipe(Name::PagedAdamW8bit, OptimizerImpl::ForLoop), &weights));
    assert_eq!(
        first,
        ["+_to_copy [256] float32", "+_to_copy [256] float32", "+zeros [400] float32", "+zeros [400] float32"]
    );
}

/// `state["sum"]` is there before the first step; foreach makes the roots and the scaled gradients of all.
#[test]
fn adagrad_has_its_state_from_the_beginning() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32], &[64]], DType::Float32);
    let (made, mut optimizers) = watch(&cx, || build(&recipe(Name::Adagrad, OptimizerImpl::Foreach), &weights));
    assert_eq!(made, ["+full_like [64, 32] float32", "+full_like [64] float32"]);
    let first = step(&cx, &mut optimizers);
    assert_eq!(
        first[..4],
        [
            "+_foreach_sqrt [64, 32] float32",
            "+_foreach_sqrt [64] float32",
            "+_foreach_mul.ScalarList [64, 32] float32",
            "+_foreach_mul.ScalarList [64] float32",
        ]
    );
    assert_eq!(step(&cx, &mut optimizers), first);
}

/// Mean squares, and with momentum and centred a buffer and a mean each; a root that goes over to the next parameter.
#[test]
fn rmsprop_keeps_what_it_is_asked_for() {
    for (name, states) in
        [(Name::RmsProp, 1), (Name::RmsPropMomentum, 2), (Name::RmsPropCentered, 2), (Name::RmsPropCenteredMomentum, 3)]
    {
        let cx = forward();
        let weights = trained(&cx, &[&[64, 32], &[64]], DType::BFloat16);
        let mut optimizers = build(&recipe(name, OptimizerImpl::ForLoop), &weights);
        step(&cx, &mut optimizers);
        assert_eq!(alive(&cx, Kind::OptimizerState).len(), 2 * states, "{name}");
        let root = if states == 3 || name == Name::RmsPropCentered { "addcmul" } else { "sqrt" };
        let line = |sign: &str, sizes: &str| format!("{sign}{root} {sizes} bfloat16");
        assert_eq!(
            step(&cx, &mut optimizers),
            [line("+", "[64, 32]"), line("+", "[64]"), line("-", "[64, 32]"), line("-", "[64]")]
        );
    }
}

/// The largest second moments beside the moments; what a step makes for itself stays.
#[test]
fn amsgrad_is_a_third_state() {
    for implementation in [OptimizerImpl::Foreach, OptimizerImpl::ForLoop, OptimizerImpl::Fused] {
        let second = |amsgrad| {
            let cx = forward();
            let weights = trained(&cx, &[&[64, 32], &[64]], DType::BFloat16);
            let mut optimizers = build(&Training { amsgrad, ..recipe(Name::AdamW, implementation) }, &weights);
            step(&cx, &mut optimizers);
            (alive(&cx, Kind::OptimizerState).len(), step(&cx, &mut optimizers))
        };
        let ((states, without), (more, with)) = (second(false), second(true));
        assert_eq!(more, states + 2, "{implementation}");
        assert_eq!(with, without, "{implementation}");
    }
}

/// A root that goes over to the next parameter, its quotient gone before; over lists one copy of every parameter.
#[test]
fn nadam_takes_roots() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32], &[64]], DType::BFloat16);
    let mut optimizers = build(&recipe(Name::NAdam, OptimizerImpl::ForLoop), &weights);
    step(&cx, &mut optimizers);
    assert_eq!(alive(&cx, Kind::OptimizerState).len(), 4);
    assert_eq!(
        step(&cx, &mut optimizers),
        [
            "+div.Tensor [64, 32] bfloat16",
            "+sqrt [64, 32] bfloat16",
            "-div.Tensor [64, 32] bfloat16",
            "+div.Tensor [64] bfloat16",
            "+sqrt [64] bfloat16",
            "-div.Tensor [64] bfloat16",
            "-sqrt [64, 32] bfloat16",
            "-sqrt [64] bfloat16",
        ]
    );
}

/// The sizes of the gradients: over lists a copy of one dtype's at a time, in a loop one parameter's.
#[test]
fn adamax_takes_the_gradients_sizes() {
    let cx = forward();
    let weights = [trained(&cx, &[&[512]], DType::Float32), trained(&cx, &[&[512]], DType::BFloat16)].concat();
    let mut optimizers = build(&recipe(Name::Adamax, OptimizerImpl::Foreach), &weights);
    step(&cx, &mut optimizers);
    let lines = |op: &str| ["+", "-"].map(|sign| format!("{sign}{op} [512] bfloat16"));
    let [made, gone] = lines("_foreach_abs");
    let [next, last] = [made.replace("bfloat16", "float32"), gone.replace("bfloat16", "float32")];
    assert_eq!(step(&cx, &mut optimizers), [made, gone, next, last]);
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32], &[512]], DType::BFloat16);
    let mut optimizers = build(&recipe(Name::Adamax, OptimizerImpl::ForLoop), &weights);
    step(&cx, &mut optimizers);
    assert_eq!(alive(&cx, Kind::OptimizerState).len(), 4);
    assert_eq!(step(&cx, &mut optimizers)[2..], lines("abs"));
}

/// A list of one dtype outlives the making of the next one's: `std` and `avg` are names.
#[test]
fn lists_of_two_dtypes_overlap() {
    let cx = forward();
    let weights = [trained(&cx, &[&[512]], DType::Float32), trained(&cx, &[&[512]], DType::BFloat16)].concat();
    let mut optimizers = build(&recipe(Name::RmsProp, OptimizerImpl::Foreach), &weights);
    step(&cx, &mut optimizers);
    assert_eq!(
        step(&cx, &mut optimizers),
        [
            "+_foreach_sqrt [512] bfloat16",
            "+_foreach_sqrt [512] float32",
            "-_foreach_sqrt [512] bfloat16",
            "-_foreach_sqrt [512] float32"
        ]
    );
}

/// PyTorch's own Adafactor: a row and a column in the weight's dtype; the estimate of one parameter goes when the next one's
/// is there.
#[test]
fn torchs_adafactor_keeps_rows_and_columns() {
    let cx = forward();
    let weights = trained(&cx, &[&[64, 32], &[64]], DType::BFloat16);
    let mut optimizers = build(&recipe(Name::AdafactorTorch, OptimizerImpl::ForLoop), &weights);
    step(&cx, &mut optimizers);
    assert_eq!(
        alive(&cx, Kind::OptimizerState),
        ["new_zeros [64, 1] bfloat16", "new_zeros [1, 32] bfloat16", "zeros_like [64] bfloat16"]
    );
    let second = step(&cx, &mut optimizers);
    let at = |line: &str| second.iter().position(|l| l == line).unwrap_or_else(|| panic!("{line}: {second:?}"));
    assert!(at("+clone [64] bfloat16") < at("-mm [64, 32] bfloat16"));
}
