//! What optimizers, clipping and the scaler keep and allocate (`torch/optim/{adam,sgd}.py`, `nn/utils/clip_grad.py`,
//! `amp/grad_scaler.py`, transformers' `optimization.py`).

use crate::Op;
use std::rc::Rc;

use plimsoll_ledger::PhaseName;
use plimsoll_scenario::{Optimizer as Name, OptimizerImpl, Training};

use super::{GradScaler, Norm, Share, build, clip_grad_norm, has_gradient, set_gradient};
use crate::ops;
use crate::tensor::testing::{alive, forward, frozen_of, input, made, watch, weight, weight_of};
use crate::tensor::{Context, DType, Kind, Tensor, backward};

fn recipe(optimizer: Name, optimizer_impl: OptimizerImpl) -> Training {
    Training { optimizer, optimizer_impl, ..Training::default() }
}

/// Weights of these sizes with a gradient each, the optimizer's phase begun.
fn trained(cx: &Rc<Context>, sizes: &[&[u64]], dtype: DType) -> Vec<Tensor> {
    let weights: Vec<Tensor> = sizes.iter().map(|s| weight_of(cx, s, dtype)).collect();
    cx.begin(PhaseName::Backward, Some(1), Some(1));
    weights.iter().for_each(|w| backward(&ops::tanh(w)));
    cx.begin(PhaseName::Optimizer, Some(1), None);
    weights
}

/// `optimizer.step()` of each.
fn step(cx: &Rc<Context>, optimizers: &mut [Share]) {
    optimizers.iter_mut().for_each(|optimizer| optimizer.step(cx));
}

const SIZES: [&[u64]; 3] = [&[64, 32], &[64], &[32]];
const NUMBERS: u64 = 64 * 32 + 64 + 32;

/// Bytes of optimizer state after a step, and the ops of the first and of the second step.
fn steps(name: Name, implementation: OptimizerImpl, dtype: DType) -> (u64, [Vec<String>; 2]) {
    let cx = forward();
    let weights = trained(&cx, &SIZES, dtype);
    let mut optimizer = build(&recipe(name, implementation), &weights);
    let made_by = |events: &[String]| made(events).into_iter().map(str::to_owned).collect();
    let (first, ()) = watch(&cx, || step(&cx, &mut optimizer));
    let (second, ()) = watch(&cx, || step(&cx, &mut optimizer));
    let bytes = crate::tensor::testing::live(&cx);
    let (made_first, made_second) = (made_by(&first), made_by(&second));
    let weights_and_gradients = 2 * NUMBERS * dtype.size();
    (bytes - weights_and_gradients, [made_first, made_second])
}

const IMPLEMENTATIONS: &[OptimizerImpl] = OptimizerImpl::ALL;

/// Two moments in the parameter's dtype; fused alone keeps its step count on the device, a float32 a parameter.
#[test]
fn adam_keeps_two_moments_a_parameter() {
    for name in [Name::Adam, Name::AdamW] {
        for dtype in [DType::Float32, DType::BFloat16, DType::Float16] {
            for &implementation in IMPLEMENTATIONS {
                let counters = if implementation == OptimizerImpl::Fused { 3 * 4 } else { 0 };
                let (state, _) = steps(name, implementation, dtype);
                assert_eq!(state, 2 * NUMBERS * dtype.size() + counters, "{name:?} {implementation:?} {dtype:?}");
            }
        }
    }
}

/// State is created lazily, parameter by parameter, in the first step (`_init_group`).
#[test]
fn adam_creates_its_state_in_the_first_step() {
    let (_, [first, second]) = steps(Name::AdamW, OptimizerImpl::Fused, DType::Float32);
    assert_eq!(first, ["zeros", "zeros_like", "zeros_like"].repeat(3));
    assert!(second.is_empty(), "fused updates in place: {second:?}");
}

/// `exp_avg_sq_sqrt = torch._foreach_sqrt(device_exp_avg_sqs)`: one more copy of every parameter, all at once.
#[test]
fn foreach_adam_makes_a_copy_of_every_parameter_at_once() {
    let cx = forward();
    let weights = trained(&cx, &SIZES, DType::Float32);
    let mut optimizer = build(&recipe(Name::AdamW, OptimizerImpl::Foreach), &weights);
    step(&cx, &mut optimizer);
    let (events, ()) = watch(&cx, || step(&cx, &mut optimizer));
    assert_eq!(
        events,
        [
            "+_foreach_sqrt [64, 32] float32",
            "+_foreach_sqrt [64] float32",
            "+_foreach_sqrt [32] float32",
            "-_foreach_sqrt [32] float32",
            "-_foreach_sqrt [64] float32",
            "-_foreach_sqrt [64, 32] float32"
        ]
    );
}

/// `denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)`: two buffers of one parameter; the name `denom`
/// holds the last one until the next parameter's is made.
#[test]
fn for_loop_adam_makes_two_buffers_of_one_parameter() {
    let cx = forward();
    let weights = trained(&cx, &SIZES[..2], DType::Float32);
    let mut optimizer = build(&recipe(Name::Adam, OptimizerImpl::ForLoop), &weights);
    step(&cx, &mut optimizer);
    let (events, ()) = watch(&cx, || step(&cx, &mut optimizer));
    assert_eq!(
        events,
        [
            "+sqrt [64, 32] float32",
            "+div.Tensor [64, 32] float32",
            "-sqrt [64, 32] float32",
            "+sqrt [64] float32",
            "+div.Tensor [64] float32",
            "-sqrt [64] float32",
            "-div.Tensor [64, 32] float32",
            "-div.Tensor [64] float32"
        ]
    );
}

#[test]
fn plain_sgd_keeps_and_allocates_nothing() {
    for &implementation in IMPLEMENTATIONS {
        assert_eq!(steps(Name::Sgd, implementation, DType::Float32), (0, [vec![], vec![]]));
    }
}

/// `momentum_buffer = torch.clone(grad)`, in the first step only; fused makes an empty one and fills it.
#[test]
fn momentum_is_the_first_gradient_cloned() {
    for (implementation, op) in
        [(OptimizerImpl::Foreach, "clone"), (OptimizerImpl::ForLoop, "clone"), (OptimizerImpl::Fused, "empty_like")]
    {
        for dtype in [DType::Float32, DType::BFloat16] {
            let (state, [first, second]) = steps(Name::SgdMomentum, implementation, dtype);
            assert_eq!(state, NUMBERS * dtype.size());
            assert_eq!((first, second), (vec![op.to_owned(); 3], vec![]));
        }
    }
}

/// Rows and columns of a matrix, a whole second moment of a vector, and the parameter's RMS; all in float32.
#[test]
fn adafactor_keeps_rows_and_columns() {
    let float32 = |numbers: u64| 4 * numbers;
    let expected = float32(64 + 32 + 1) + float32(64 + 1) + float32(32 + 1);
    for dtype in [DType::Float32, DType::BFloat16] {
        assert_eq!(steps(Name::Adafactor, OptimizerImpl::ForLoop, dtype).0, expected, "{dtype:?}");
    }
    // The last two dimensions are factored, whatever stands before them.
    let cx = forward();
    let weights = trained(&cx, &[&[5, 8, 4]], DType::Float32);
    step(&cx, &mut build(&recipe(Name::Adafactor, OptimizerImpl::ForLoop), &weights));
}

/// Half parameters are updated through float32 copies of the gradient and of the parameter.
#[test]
fn adafactor_works_in_float32() {
    let casts = |dtype| {
        let (_, [_, second]) = steps(Name::Adafactor, OptimizerImpl::ForLoop, dtype);
        second.iter().filter(|op| *op == "_to_copy").count()
    };
    assert_eq!((casts(DType::Float32), casts(DType::BFloat16)), (0, 6));
}

/// `for p in group["params"]: if p.grad is not None`.
#[test]
fn a_parameter_without_a_gradient_gets_no_state() {
    for name in [Name::AdamW, Name::SgdMomentum, Name::Adafactor, Name::AdamW8bit, Name::Lion, Name::Muon] {
        let cx = forward();
        let mut weights = trained(&cx, &[&[8, 8]], DType::Float32);
        weights.push(frozen_of(&cx, &[100, 100], DType::Float32));
        let unused = weight_of(&cx, &[100, 100], DType::Float32);
        weights.push(unused);
        let implementation = name.implementations()[0];
        step(&cx, &mut build(&recipe(name, implementation), &weights));
        assert!(alive(&cx, Kind::OptimizerState).iter().all(|s| !s.contains("100")), "{name:?}");
    }
}

/// A norm a gradient and seven scalars; gradients are scaled in place.
#[test]
fn clipping_makes_a_scalar_a_gradient() {
    let cx = forward();
    let weights = trained(&cx, &SIZES, DType::Float32);
    let (events, _) = watch(&cx, || drop(clip_grad_norm(&cx, &weights, Norm::Plain, None)));
    assert_eq!(
        made(&events),
        [
            "_foreach_norm.Scalar",
            "_foreach_norm.Scalar",
            "_foreach_norm.Scalar",
            "stack",
            "linalg_vector_norm",
            "add.Tensor",
            "reciprocal",
            "mul.Tensor",
            "clamp"
        ]
    );
    assert_eq!(events.len() % 2, 0, "nothing stays");
    assert!(events.contains(&"+stack [3] float32".to_owned()));
}

/// Norms have their gradient's dtype; gradients of a half model and its float32 adapters meet in float32.
#[test]
fn clipping_promotes_mixed_gradients() {
    let norm_dtype = |dtypes: &[DType]| {
        let cx = forward();
        let weights: Vec<Tensor> = dtypes.iter().flat_map(|&d| trained(&cx, &[&[8]], d)).collect();
        let (events, _) = watch(&cx, || drop(clip_grad_norm(&cx, &weights, Norm::Plain, None)));
        events.iter().find(|e| e.starts_with("+linalg_vector_norm")).cloned().unwrap_or_default()
    };
    assert_eq!(norm_dtype(&[DType::BFloat16]), "+linalg_vector_norm [] bfloat16");
    assert_eq!(norm_dtype(&[DType::BFloat16, DType::Float32]), "+linalg_vector_norm [] float32");
}

#[test]
fn clipping_without_gradients_does_nothing() {
    let cx = forward();
    let weights = vec![weight_of(&cx, &[8], DType::Float32)];
    let (events, _) = watch(&cx, || drop(clip_grad_norm(&cx, &weights, Norm::Plain, None)));
    assert!(events.is_empty());
}

/// The scale and the growth counter are made by the first `scale()` and stay.
#[test]
fn the_scaler_keeps_two_scalars() {
    let cx = forward();
    let mut scaler = GradScaler::default();
    let loss = || cx.empty_sizes(Op::NllLossForward, &[], DType::Float32);
    let (first, _) = watch(&cx, || scaler.scale(&loss()));
    let (second, _) = watch(&cx, || scaler.scale(&loss()));
    assert_eq!(
        (made(&first), made(&second)),
        (vec!["nll_loss_forward", "full", "full", "mul.Tensor"], vec!["nll_loss_forward", "mul.Tensor"])
    );
    assert_eq!(alive(&cx, Kind::OptimizerState), ["full [] float32", "full [] int32"]);
}

/// `unscale_` keeps the flag of infinities found until `update()`; it touches the gradients in place.
#[test]
fn unscaling_keeps_a_flag_until_the_update() {
    let cx = forward();
    let weights = trained(&cx, &SIZES, DType::Float32);
    let mut scaler = GradScaler::default();
    drop(scaler.scale(&cx.empty_sizes(Op::NllLossForward, &[], DType::Float32)));
    let (events, ()) = watch(&cx, || scaler.unscale(&cx, &[]));
    assert!(events.iter().all(|e| e.contains("[]")), "scalars only: {events:?}");
    let count = |sign: char| events.iter().filter(|e| e.starts_with(sign)).count();
    assert_eq!(count('+') - count('-'), 1, "{events:?}");
    let (events, ()) = watch(&cx, || scaler.update());
    assert_eq!(events, ["-_to_copy [] float32"]);
    drop(weights);
}

/// `zero_grad(set_to_none=True)`.
#[test]
fn a_gradient_set_to_none_is_freed() {
    let cx = forward();
    let weights = trained(&cx, &[&[8]], DType::Float32);
    let (events, ()) = watch(&cx, || set_gradient(&weights[0], None));
    assert_eq!(events, ["-tanh_backward [8] float32"]);
    assert!(!has_gradient(&weights[0]));
}

/// `_multi_tensor_sgd` with `weight_decay`: a list of sums first, of which the buffers are copies; in later steps the list alone.
#[test]
fn sgd_that_decays_makes_a_sum_of_every_gradient() {
    let cx = forward();
    let weights = [weight(&cx, &[64, 8]), weight(&cx, &[8])];
    for w in &weights {
        set_gradient(w, Some(input(&cx, w.dims())));
    }
    let mut sgd = super::sgd::Sgd::new(true, true, OptimizerImpl::Foreach);
    let (first, ()) = watch(&cx, || super::Optimizer::step(&mut sgd, &cx, &weights));
    let sums = ["_foreach_add.List [64, 8] float32", "_foreach_add.List [8] float32"];
    let told: Vec<String> = first.iter().filter(|e| e.contains("foreach_add.List")).cloned().collect();
    let expected = [format!("+{}", sums[0]), format!("+{}", sums[1]), format!("-{}", sums[1]), format!("-{}", sums[0])];
    assert_eq!(told, expected);
    assert_eq!(first[2..4], ["+clone [64, 8] float32", "+clone [8] float32"]);
    let (second, ()) = watch(&cx, || super::Optimizer::step(&mut sgd, &cx, &weights));
    assert_eq!(second, expected);
}
