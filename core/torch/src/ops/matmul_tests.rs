//! Matrix products: what they keep, what their backward makes, and how higher ranks come down to them.

use plimsoll_catalog::device::Workspace;
use plimsoll_ground::Bytes;

use super::matmul::{addmm, bmm, linear, matmul, t};
use crate::ops::{add, neg, transpose};
use crate::tensor::testing::{
    activation, activation_of, alive, backward_of, forward, frozen_of, gradient, input, made, watch, weight,
};
use crate::tensor::{DType, Kind, Tensor};

fn births(events: &[String]) -> Vec<&str> {
    events.iter().filter_map(|e| e.strip_prefix('+')).collect()
}

/// `derivatives.yaml`: `mm_mat1_grad(grad, mat2, ...)` and `mm_mat2_grad(grad, self, ...)`: an operand is kept only for
/// the other one's gradient.
#[test]
fn a_product_keeps_an_operand_only_for_the_others_gradient() {
    let kept = |x_wanted: bool, w_wanted: bool| {
        let cx = forward();
        let x = neg(&if x_wanted { activation(&cx, &[4, 8]) } else { input(&cx, &[4, 8]) });
        let w = if w_wanted { weight(&cx, &[8, 2]) } else { frozen_of(&cx, &[8, 2], DType::Float32) };
        let out = matmul(&x, &w);
        drop(x);
        (!alive(&cx, Kind::Saved).is_empty(), made(&backward_of(out)).iter().filter(|op| **op == "mm").count())
    };
    assert_eq!(kept(true, true), (true, 2));
    assert_eq!(kept(false, true), (true, 1), "the weight's gradient needs x");
    assert_eq!(kept(true, false), (false, 1), "a frozen weight: x is let go");
    assert_eq!(kept(false, false), (false, 0));
}

/// The generated `MmBackward0` sorts its gradients by argument name: `mat2` before `self`.
#[test]
fn mm_makes_the_weights_gradient_first() {
    let cx = forward();
    let (x, w) = (activation(&cx, &[4, 8]), weight(&cx, &[8, 2]));
    let events = backward_of(matmul(&x, &w));
    assert_eq!(births(&events), ["ones_like [4, 2] float32", "mm [8, 2] float32", "mm [4, 8] float32"]);
}

/// `AddmmBackward0` sorts `mat1`, `mat2`, `self`: the input's gradient first; the bias's is a sum over the rows.
#[test]
fn addmm_makes_the_inputs_gradient_first() {
    let cx = forward();
    let (b, x, w) = (weight(&cx, &[2]), activation(&cx, &[4, 8]), weight(&cx, &[8, 2]));
    let events = backward_of(addmm(&b, &x, &w));
    assert_eq!(
        births(&events),
        ["ones_like [4, 2] float32", "mm [4, 8] float32", "mm [8, 2] float32", "sum.dim_IntList [1, 2] float32"]
    );
    assert_eq!(gradient(&b).unwrap().dims(), [2]);
}

/// `nn.Linear`'s weight lies `[out, in]`: its gradient is made in that order, as `mm(grad.t(), x)`.
#[test]
fn a_linears_gradient_has_the_weights_own_order() {
    let cx = forward();
    let w = weight(&cx, &[2, 8]);
    let events = backward_of(linear(&input(&cx, &[4, 8]), &w, None));
    assert_eq!(births(&events), ["ones_like [4, 2] float32", "mm [2, 8] float32"]);
    assert!(gradient(&w).unwrap().geometry().is_contiguous());
}

/// `Linear.cpp`: with a bias, rank 2 goes to `addmm`; so does a contiguous higher rank, flattened.
#[test]
fn a_linear_with_bias_is_one_addmm() {
    let cx = forward();
    let (w, b) = (weight(&cx, &[2, 8]), weight(&cx, &[2]));
    for sizes in [&[4u64, 8][..], &[3, 4, 8], &[2, 3, 4, 8]] {
        let (events, out) = watch(&cx, || linear(&activation(&cx, sizes), &w, Some(&b)));
        assert_eq!(made(&events)[1..], ["addmm"], "{sizes:?}");
        assert_eq!((out.dims().len(), out.size(-1)), (sizes.len(), 2));
    }
}

/// ... but a strided input is multiplied first and the bias added after: one result more.
#[test]
fn a_linear_with_bias_over_a_strided_input_adds_the_bias_after() {
    let cx = forward();
    let (w, b) = (weight(&cx, &[2, 8]), weight(&cx, &[2]));
    let x = transpose(&activation(&cx, &[4, 3, 8]), 0, 1);
    let (events, _) = watch(&cx, || linear(&x, &w, Some(&b)));
    assert_eq!(births(&events), ["clone [3, 4, 8] float32", "mm [12, 2] float32", "add.Tensor [3, 4, 2] float32"]);
}

/// `_matmul_impl`: against a matrix the left operand's rows are folded; against more, both are flattened to `bmm`.
#[test]
fn matmul_folds_rows_or_batches() {
    let cx = forward();
    let product = |a: &[u64], b: &[u64]| {
        let (a, b) = (input(&cx, a), input(&cx, b));
        let (events, out): (_, Tensor) = watch(&cx, || matmul(&a, &b));
        (births(&events).into_iter().map(str::to_owned).collect::<Vec<_>>(), out.dims().to_vec())
    };
    assert_eq!(product(&[4, 8], &[8, 2]), (vec!["mm [4, 2] float32".into()], vec![4, 2]));
    assert_eq!(product(&[3, 4, 8], &[8, 2]), (vec!["mm [12, 2] float32".into()], vec![3, 4, 2]));
    assert_eq!(product(&[5, 3, 4, 8], &[5, 3, 8, 2]), (vec!["bmm [15, 4, 2] float32".into()], vec![5, 3, 4, 2]));
    // Expanding one row of a batch costs no copy; several rows do.
    assert_eq!(product(&[1, 4, 8], &[1, 8, 2]), (vec!["bmm [1, 4, 2] float32".into()], vec![1, 4, 2]));
}

/// Transposed keys are flattened where strides allow: heads laid out by sequence must be copied first.
#[test]
fn heads_laid_out_by_sequence_are_copied_for_bmm() {
    let cx = forward();
    let q = transpose(&input(&cx, &[2, 16, 4, 8]), 1, 2);
    let k = transpose(&input(&cx, &[2, 16, 4, 8]), 1, 2);
    let (events, _) = watch(&cx, || matmul(&q, &transpose(&k, 2, 3)));
    assert_eq!(
        births(&events),
        ["clone [2, 4, 16, 8] float32", "clone [2, 4, 8, 16] float32", "bmm [8, 16, 16] float32"]
    );
}

/// `BmmBackward0`: `mat2` before `self`, both kept.
#[test]
fn bmm_keeps_both_and_makes_the_right_ones_gradient_first() {
    let cx = forward();
    let (a, b) = (neg(&activation(&cx, &[3, 4, 8])), neg(&activation(&cx, &[3, 8, 2])));
    let out = matmul(&a, &b);
    drop((a, b));
    assert_eq!(alive(&cx, Kind::Saved).len(), 2);
    let events = backward_of(out);
    let bmm: Vec<&str> = births(&events).into_iter().filter(|e| e.starts_with("bmm")).collect();
    assert_eq!(bmm, ["bmm [3, 8, 2] float32", "bmm [3, 4, 8] float32"]);
}

/// Autocast's wrapper casts inside the call of `linear(input, weight, bias)`, whose arguments the compiler evaluates from
/// the last.
#[test]
fn a_linears_arguments_are_cast_from_the_last() {
    let cx = forward();
    let (w, b, x) = (weight(&cx, &[2, 8]), weight(&cx, &[2]), activation(&cx, &[4, 8]));
    let (events, _) = watch(&cx, || cx.with_autocast(Some(DType::BFloat16), || drop(linear(&x, &w, Some(&b)))));
    assert_eq!(births(&events)[..3], ["_to_copy [2] bfloat16", "_to_copy [2, 8] bfloat16", "_to_copy [4, 8] bfloat16"]);
}

/// cuBLAS' own, as before PyTorch 2.15.
const KEPT: Workspace = Workspace { bytes: Bytes::new(8_519_680), kept: true };

/// `CublasHandlePool.cpp`: one workspace for the thread of the forward, one for autograd's, made by the first product.
#[test]
fn the_first_product_of_each_thread_makes_a_workspace() {
    let cx = forward();
    cx.set_blas_workspace(KEPT, Workspace::NONE);
    let (w, x) = (weight(&cx, &[2, 8]), activation_of(&cx, &[4, 8], DType::Float32));
    let (events, out) = watch(&cx, || linear(&linear(&x, &w, None), &weight(&cx, &[8, 2]), None));
    assert_eq!(made(&events).iter().filter(|op| **op == "cublas_workspace").count(), 1);
    let events = backward_of(out);
    assert_eq!(made(&events).iter().filter(|op| **op == "cublas_workspace").count(), 1);
    assert_eq!(alive(&cx, Kind::Workspace).len(), 2, "kept");
}

/// `isInputCompliesAddmmCudaLt`: cuBLASLt adds a bias, but not to a single column, and has a workspace of its own. The
/// backward of a biased product adds none.
#[test]
fn the_first_biased_product_makes_a_second_workspace() {
    let cx = forward();
    cx.set_blas_workspace(KEPT, Workspace { bytes: Bytes::from_mib(1), kept: true });
    let x = activation_of(&cx, &[4, 8], DType::Float32);
    let biased = |columns| linear(&x, &weight(&cx, &[columns, 8]), Some(&weight(&cx, &[columns])));
    let second = |events: &[String]| made(events).iter().filter(|op| **op == "cublaslt_workspace").count();
    let (events, _column) = watch(&cx, || biased(1));
    assert_eq!(second(&events), 0);
    let (events, out) = watch(&cx, || add(&biased(2), &biased(2)));
    assert_eq!(second(&events), 1);
    assert_eq!(second(&backward_of(out)), 0);
    assert_eq!(alive(&cx, Kind::Workspace).len(), 3, "kept");
}

/// Before PyTorch 2.9 every biased product took one and gave it back.
#[test]
fn a_workspace_that_is_not_kept_is_made_by_every_biased_product() {
    let cx = forward();
    cx.set_blas_workspace(KEPT, Workspace { bytes: Bytes::from_mib(1), kept: false });
    let x = activation_of(&cx, &[4, 8], DType::Float32);
    let biased = |columns| linear(&x, &weight(&cx, &[columns, 8]), Some(&weight(&cx, &[columns])));
    let (events, _out) = watch(&cx, || add(&biased(2), &biased(2)));
    assert_eq!(made(&events).iter().filter(|op| **op == "cublaslt_workspace").count(), 2);
    assert_eq!(alive(&cx, Kind::Workspace).len(), 1, "cuBLAS's own");
}

/// From PyTorch 2.15 on every product takes one and gives it back: cuBLAS', or cuBLASLt's where a bias is added.
#[test]
fn from_2_15_on_every_product_takes_one_workspace() {
    let cx = forward();
    let passing = |bytes| Workspace { bytes, kept: false };
    cx.set_blas_workspace(passing(Bytes::new(8_519_680)), passing(Bytes::from_mib(1)));
    let x = activation_of(&cx, &[4, 8], DType::Float32);
    let count = |events: &[String], name: &str| made(events).iter().filter(|op| **op == name).count();
    let (events, out) = watch(&cx, || {
        linear(&linear(&x, &weight(&cx, &[8, 8]), None), &weight(&cx, &[2, 8]), Some(&weight(&cx, &[2])))
    });
    assert_eq!([count(&events, "cublas_workspace"), count(&events, "cublaslt_workspace")], [1, 1]);
    // The gradients of input and weight, of each.
    let events = backward_of(out);
    assert_eq!([count(&events, "cublas_workspace"), count(&events, "cublaslt_workspace")], [4, 0]);
    assert!(alive(&cx, Kind::Workspace).is_empty() && alive(&cx, Kind::Scratch).is_empty());
}

/// `cached_cast` keeps the copy of a leaf that is no view: a transposed weight is cast at every use.
#[test]
fn autocast_does_not_cache_the_copy_of_a_transposed_weight() {
    let cx = forward();
    let (x, w) = (input(&cx, &[4, 8]), weight(&cx, &[2, 8]));
    let casts = |events: &[String]| births(events).iter().filter(|b| b.starts_with("_to_copy [8, 2]")).count();
    cx.with_autocast(Some(DType::BFloat16), || {
        let (events, outs) = watch(&cx, || (matmul(&x, &t(&w)), matmul(&x, &t(&w))));
        assert_eq!(casts(&events), 2, "{events:?}");
        drop(outs);
    });
}

/// `bmm` itself makes no views: its gradients are plain tensors.
#[test]
fn a_batched_product_keeps_both_and_makes_two() {
    let cx = forward();
    let (a, b) = (neg(&activation(&cx, &[3, 4, 8])), neg(&activation(&cx, &[3, 8, 2])));
    let out = bmm(&a, &b);
    drop((a, b));
    assert_eq!(out.dims(), [3, 4, 2]);
    assert_eq!(alive(&cx, Kind::Saved), ["neg [3, 4, 8] float32", "neg [3, 8, 2] float32"]);
    assert_eq!(made(&backward_of(out)).iter().filter(|op| **op == "bmm").count(), 2);
}
