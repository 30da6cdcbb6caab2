//! What a mixture of experts needs to send tokens to experts and back.

use plimsoll_ground::{Error, Reason};

use super::elementwise::binary;
use super::inside;
use super::matmul::linear_flops;
use crate::tensor::{DType, Geometry, Gradients, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x.sum(dim=0)` of `[k, rows, columns]`, as [`sum_middle`].
pub fn sum_first(x: &Tensor) -> Tensor {
    sum_of_three(x, 0)
}

/// `x.sum(dim=1)` of `[rows, k, columns]`; float32 under autocast, which asks the kernel for it (`fp32_set_opt_dtype`) and
/// makes no copy of what is summed.
pub fn sum_middle(x: &Tensor) -> Tensor {
    sum_of_three(x, 1)
}

fn sum_of_three(x: &Tensor, axis: usize) -> Tensor {
    let dtype = x.cx().summed(x.dtype());
    let (rows, columns) = (x.size(1 - axis as isize), x.size(2));
    let tape = Tape::new(x.cx(), GradFn::SumBackward1, &[x]);
    let mut out = x.cx().launch(Op::SumDimIntList, &[x]).make_sizes(&[rows, columns], dtype);
    drop(inside::sum(x.cx(), Op::SumDimIntList, x.geometry(), |i| i == axis, x.dtype()));
    let from = x.geometry().clone();
    let kept = Geometry::contiguous(&[rows, columns]).unsqueezed(axis as isize);
    tape.record([&mut out], move |g| grads([Some(g.grad().view_as(kept.expanded(from.dims())))]));
    out
}

/// `x.scatter_(-1, index, source)` of an x that wants no gradient: keeps the index; the source's gradient is gathered.
pub fn scatter_in_place(x: Tensor, index: &Tensor, source: &Tensor) -> Tensor {
    if source.dtype() != x.dtype() {
        x.cx().refuse(|| {
            let (module, was, wanted) = (x.cx().path(x.cx().current_module()), source.dtype().name(), x.dtype().name());
            let problem = format!(
                "{module} scatters {was} into {wanted}, and PyTorch fails there: \"scatter(): Expected self.dtype to be equal to src.dtype\""
            );
            let hint = "use a precision without autocast, or ask for transformers 5";
            Error::new("training.precision", problem, hint).because(Reason::ScatteredDtype)
        });
    }
    let tape = Tape::new(x.cx(), GradFn::ScatterBackward0, &[source]);
    let saved = tape.save(index);
    x.cx().in_place(Op::ScatterInPlace, &x, &[index, source]);
    let mut out = x.detach();
    drop(x);
    tape.record([&mut out], move |g| {
        let index = saved.unpack();
        grads([Some(g.make(Op::Gather, &[&index], Geometry::contiguous(index.dims()), g.grad().dtype()))])
    });
    out
}

/// `x.index_add_(0, rows, source)` of an x that wants no gradient, but where others were added to it: keeps the rows' numbers and
/// the source, of which the gradient asks nothing but its sizes (`expand_as` in `tools/autograd/derivatives.yaml`).
pub fn index_add_in_place(x: Tensor, rows: &Tensor, source: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::IndexAddBackward0, &[&x, source]);
    let saved = [tape.save_if(tape.needs(1), rows), tape.save_if(tape.needs(1), source)];
    drop(x.cx().launch(Op::IndexAddInPlace, &[rows, source]).reads(source.touched()).of(x.dtype()).over(source));
    let mut out = x.detach();
    drop(x);
    tape.record([&mut out], move |g| {
        let [rows, source] = &saved;
        let (rows, source) = (rows.get(), source.get());
        let of_source = match (&rows, &source) {
            (Some(rows), Some(source)) => {
                Some(g.make(Op::IndexSelect, &[g.grad(), rows], Geometry::contiguous(source.dims()), g.grad().dtype()))
            }
            _ => None,
        };
        grads([g.needs(0).then(|| g.grad().clone()), of_source])
    });
    out
}

/// `torch.topk(x, k, dim=-1)`: values and indices; keeps the indices.
pub fn topk(x: &Tensor, k: u64) -> (Tensor, Tensor) {
    let tape = Tape::new(x.cx(), GradFn::TopkBackward0, &[x]);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = k;
    }
    let [mut values, indices] = x.cx().kept(Op::Topk, || {
        let mut launch = x.cx().launch(Op::Topk, &[x]);
        let values = launch.make_sizes(&sizes, x.dtype());
        let indices = launch.make_sizes(&sizes, DType::Int64);
        [values, indices]
    });
    let saved = tape.save(&indices);
    let from = x.geometry().clone();
    tape.record([&mut values], move |g| grads([Some(scattered(g, &saved.unpack(), &from))]));
    (values, indices)
}

/// `x.max(dim=-1, keepdim=True).values`; keeps the indices.
pub fn max_last(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MaxBackward0, &[x]);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = 1;
    }
    let mut launch = x.cx().launch(Op::MaxDim, &[x]);
    let mut values = launch.make_sizes(&sizes, x.dtype());
    let indices = launch.make_sizes(&sizes, DType::Int64);
    drop(launch);
    let saved = tape.save(&indices);
    drop(indices);
    let from = x.geometry().clone();
    tape.record([&mut values], move |g| grads([Some(scattered(g, &saved.unpack(), &from))]));
    values
}

/// The gradient put where `indices` say, into zeros as large as what they were chosen from.
fn scattered(g: &Gradients<'_>, indices: &Tensor, from: &Geometry) -> Tensor {
    let zeros = g.make(Op::Zeros, &[], Geometry::contiguous(from.dims()), g.grad().dtype());
    drop(g.cx().launch(Op::ScatterInPlace, &[g.grad(), indices]).over(g.grad()));
    zeros
}

/// `x /= divisor`: in place, but the divisor's gradient needs what x was, so that is copied first.
pub fn div_in_place(x: Tensor, divisor: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::DivBackward0, &[&x, divisor]);
    let saved_divisor = tape.save(divisor);
    let original = tape.needs(1).then(|| x.cx().launch(Op::Clone, &[&x]).make_like(&x));
    let saved_x = original.as_ref().map_or(crate::tensor::Saved::Nothing, |o| tape.save(o));
    drop(original);
    x.cx().in_place(Op::DivInPlace, &x, &[divisor]);
    let mut out = x.view_as(x.geometry().clone());
    drop(x);
    tape.record([&mut out], move |g| {
        let (divisor, x) = (saved_divisor.unpack(), saved_x.get());
        let divisor_grad = x.map(|x| {
            // div_tensor_other_backward: -grad * ((self / other) / other)
            let quotient = binary(Op::DivTensor, &x, &divisor);
            let twice = binary(Op::DivTensor, &quotient, &divisor);
            let negative = g.like(Op::Neg, g.grad(), &[]);
            let product = binary(Op::MulTensor, &negative, &twice);
            drop((negative, twice, quotient));
            product
        });
        let x_grad = g.needs(0).then(|| binary(Op::DivTensor, g.grad(), &divisor));
        grads([x_grad, divisor_grad])
    });
    out
}

/// `x[rows]` for a list of row numbers, of which there are more where x has more rows; keeps the list, and its gradient is as
/// large as x.
pub fn index_rows(x: &Tensor, rows: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::IndexBackward0, &[x]);
    let saved = tape.save(rows);
    let mut sizes = x.dims().to_vec();
    if let Some(first) = sizes.first_mut() {
        *first = rows.numel();
    }
    let mut out = super::select::picked(x, &sizes, &[rows]);
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        let rows = saved.unpack();
        let whole = Geometry::contiguous(from.dims());
        let gradient = g.make(Op::NewZeros, &[], whole.clone(), g.grad().dtype());
        let values = (g.grad().geometry(), g.grad().dtype());
        drop(inside::accumulate_rows(
            g.cx(),
            Op::IndexPut,
            inside::Rows::numbered(rows.numel(), 1),
            (&whole, true),
            values,
        ));
        super::select::put_back(g, &[&rows]);
        grads([Some(gradient)])
    });
    out
}

/// `_grouped_linear` of transformers' `integrations/moe.py`: x `[rows, in]`, weight `[experts, out, in]` seen transposed,
/// offsets one for each expert. Autocast leaves it alone.
pub fn grouped_linear(x: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
    grouped_mm(x, &super::view::transpose(weight, -2, -1), offsets)
}

/// `_grouped_mm` of the same file: as [`grouped_linear`], the weight `[experts, in, out]`.
pub fn grouped_mm(x: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
    if x.cx().machine().one_expert_at_a_time { one_by_one(x, weight, offsets) } else { grouped(x, weight, offsets) }
}

/// `_grouped_mm_fallback`, an operator made in Python: it keeps both operands and makes both gradients, whether or not they
/// are asked for.
fn one_by_one(x: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
    let mut tape =
        Tape::new(x.cx(), GradFn::GeneratedBackwardForTransformersGroupedMmFallbackDefaultBackward, &[x, weight]);
    let (saved_x, saved_weight) = (tape.save(x), tape.save(weight));
    tape.keep(offsets);
    let mut out = x.cx().launch(Op::Zeros, &[]).make_sizes(&[x.size(0), weight.size(2)], x.dtype());
    // An expert's rows at a time, into the whole; together all rows, and every expert's weight.
    let flops = linear_flops(x, weight.size(2));
    drop(x.cx().launch(Op::MmOut, &[x, weight]).flops(flops).over(&out));
    x.cx().blas();
    tape.record([&mut out], move |g| {
        let (x, weight) = (saved_x.unpack(), saved_weight.unpack());
        let zeros = |like: &Tensor| g.cx().launch(Op::ZerosLike, &[]).make_like(like);
        let gradients = [zeros(&x), zeros(&weight)];
        for (gradient, other) in gradients.iter().zip([&weight, &x]) {
            drop(g.cx().launch(Op::MmOut, &[g.grad(), other]).flops(flops).over(gradient));
        }
        g.cx().blas();
        grads(gradients.map(Some))
    });
    out
}

/// What rows of an operand are a multiple of, in bytes (`check_valid_strides_and_return_transposed` of
/// `aten/src/ATen/native/GroupedMMUtils.h`).
const ALIGNMENT: u64 = 16;

/// Refuses operands whose rows, or columns where they lie one after the other, are not aligned: PyTorch takes none such.
fn check_rows(x: &Tensor, weight: &Tensor) {
    let lying = if weight.geometry().is_contiguous() { weight.size(2) } else { weight.size(1) };
    let unaligned = |numbers: &u64| !numbers.saturating_mul(x.dtype().size()).is_multiple_of(ALIGNMENT);
    if let Some(numbers) = [x.size(1), lying].into_iter().find(unaligned) {
        x.cx().refuse(|| {
            let (module, bytes) = (x.cx().path(x.cx().current_module()), numbers.saturating_mul(x.dtype().size()));
            let problem = format!(
                "{module} multiplies its experts together, with rows of {numbers} numbers, {bytes} bytes: PyTorch fails there \
                 (\"strides should be multiple of 16 bytes\")"
            );
            Error::new("model", problem, "give it hidden and intermediate sizes that are multiples of 8")
                .because(Reason::UnalignedRows)
        });
    }
}

/// `torch.nn.functional.grouped_mm(x, weight, offs)`.
fn grouped(x: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
    check_rows(x, weight);
    let tape = Tape::new(x.cx(), GradFn::GroupedMmBackward0, &[x, weight]);
    let saved_weight = tape.save_if(tape.needs(0), weight);
    let saved_offsets = tape.save(offsets);
    let saved_x = tape.save_if(tape.needs(1), x);
    let flops = linear_flops(x, weight.size(2));
    let mut launch = x.cx().launch(Op::GroupedMm, &[x, weight, offsets]).flops(flops);
    let mut out = launch.make_sizes(&[x.size(0), weight.size(2)], x.dtype());
    drop(launch);
    let (groups, dtype) = (offsets.numel(), x.dtype());
    // `M / group_count`: a mean group's.
    let of_group = move |whole: u64| whole.checked_div(groups).unwrap_or(0);
    inside::grouped_mm(x.cx(), groups, [of_group(x.size(0)), weight.size(2)], dtype);
    let turned = !weight.geometry().is_contiguous();
    let stored = if turned { weight.geometry().transposed(-2, -1) } else { weight.geometry().clone() };
    let rows = x.geometry().clone();
    tape.record([&mut out], move |g| {
        let (weight, offsets, x) = (saved_weight.get(), saved_offsets.unpack(), saved_x.get());
        // The gradient of a transposed operand is made in the order it is stored in.
        let weight_grad = x.as_ref().map(|x| {
            let mut launch = g.cx().launch(Op::GroupedMm, &[g.grad(), x, &offsets]).flops(flops);
            let product = launch.make_sizes(stored.dims(), x.dtype());
            inside::grouped_mm(g.cx(), groups, [stored.size(1), stored.size(2)], dtype);
            if turned { product.view_as(product.geometry().transposed(-2, -1)) } else { product }
        });
        let x_grad = weight.as_ref().map(|w| {
            let mut launch = g.cx().launch(Op::GroupedMm, &[g.grad(), w, &offsets]).flops(flops);
            let product = launch.make_sizes(rows.dims(), w.dtype());
            inside::grouped_mm(g.cx(), groups, [of_group(rows.size(0)), rows.size(1)], dtype);
            product
        });
        grads([x_grad, weight_grad])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{masked_fill, masked_fill_in_place, neg, sum_last};
    use crate::tensor::testing::{
        activation, activation_of, alive, backward_of, forward, gradient, input_of, made, watch, weight,
    };
    use crate::tensor::{DType, Kind, Machine};

    /// `value_selecting_reduction_backward`: zeros of the input's size, the chosen places filled in place.
    #[test]
    fn topk_keeps_the_indices_and_its_gradient_is_as_large_as_its_input() {
        let cx = forward();
        let x = activation(&cx, &[16, 8]);
        let (values, indices) = topk(&neg(&x), 2);
        assert_eq!((values.dims(), indices.dtype()), ([16, 2].as_slice(), DType::Int64));
        drop(indices);
        assert_eq!(alive(&cx, Kind::Saved), ["topk [16, 2] int64"]);
        assert!(backward_of(values).contains(&"+zeros [16, 8] float32".to_owned()));
    }

    /// "scatter(): Expected self.dtype to be equal to src.dtype": Qwen3-VL-MoE's router of transformers 4 under autocast.
    #[test]
    fn what_is_scattered_has_the_dtype_of_what_it_goes_into() {
        let scattered = |source| {
            let cx = forward();
            let indices = input_of(&cx, &[3, 2], DType::Int64);
            let into = crate::ops::zeros_like(&activation_of(&cx, &[3, 4], DType::BFloat16));
            drop(scatter_in_place(into, &indices, &activation_of(&cx, &[3, 2], source)));
            cx.refusal().map(|why| why.problem)
        };
        assert_eq!(scattered(DType::BFloat16), None);
        assert!(scattered(DType::Float32).unwrap().contains("scatters float32 into bfloat16"));
    }

    /// As `topk`: the chosen places are filled in zeros.
    #[test]
    fn a_maximum_keeps_its_indices_and_its_gradient_is_as_large_as_its_input() {
        let cx = forward();
        let x = activation(&cx, &[4, 3, 8]);
        let most = max_last(&neg(&x));
        assert_eq!(most.dims(), [4, 3, 1]);
        assert_eq!(alive(&cx, Kind::Saved), ["max.dim [4, 3, 1] int64"]);
        assert!(backward_of(most).contains(&"+zeros [4, 3, 8] float32".to_owned()));
    }

    /// `derivatives.yaml`: `src: grad.gather(dim, index)`; what is written over wants no gradient.
    #[test]
    fn what_is_scattered_has_its_gradient_gathered() {
        let cx = forward();
        let (values, indices) = (neg(&activation(&cx, &[16, 2])), input_of(&cx, &[16, 2], DType::Int64));
        let whole = input_of(&cx, &[16, 8], DType::Float32);
        let (events, out) = watch(&cx, || scatter_in_place(whole, &indices, &values));
        assert!(events.is_empty() && out.dims() == [16, 8]);
        drop(values);
        assert_eq!(made(&backward_of(out)), ["ones_like", "gather", "neg"]);
    }

    /// `index: grad.index_select(0, index).expand_as(source)`: the source is kept for its sizes; what it is added to goes back as it is.
    #[test]
    fn rows_that_are_added_keep_themselves_and_are_picked_out_of_the_gradient() {
        let cx = forward();
        let rows = input_of(&cx, &[3], DType::Int64);
        let whole = input_of(&cx, &[8, 4], DType::Float32);
        let (first, second) = (neg(&activation(&cx, &[3, 4])), neg(&activation(&cx, &[3, 4])));
        let (events, out) = watch(&cx, || index_add_in_place(whole, &rows, &first));
        assert!(events.is_empty());
        let out = index_add_in_place(out, &rows, &second);
        drop((first, second));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [3, 4] float32", "neg [3, 4] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "index_select", "index_select", "neg", "neg"]);
    }

    /// `sum_backward` expands: the gradient is a view.
    #[test]
    fn the_gradient_of_a_sum_over_the_first_dimension_is_a_view() {
        let cx = forward();
        let x = neg(&activation(&cx, &[4, 16, 8]));
        let (events, out) = watch(&cx, || sum_first(&x));
        assert_eq!(events.first().map(String::as_str), Some("+sum.dim_IntList [16, 8] float32"));
        assert_eq!(made(&backward_of(out)), ["ones_like", "neg"]);
    }

    /// The generated in-place code saves `self.clone()` when `other` needs a gradient.
    #[test]
    fn an_in_place_division_copies_what_it_overwrites() {
        let cx = forward();
        let x = neg(&activation(&cx, &[16, 2]));
        let sum = sum_last(&x);
        let (events, out) = watch(&cx, || div_in_place(x, &sum));
        assert_eq!(events, ["+clone [16, 2] float32"]);
        drop(sum);
        let events = backward_of(out);
        let backward = made(&events);
        assert_eq!(backward[..6], ["ones_like", "div.Tensor", "div.Tensor", "neg", "mul.Tensor", "div.Tensor"]);
    }

    /// `index_backward`: `new_zeros` of the whole, then `index_put_`.
    #[test]
    fn the_gradient_of_rows_is_as_large_as_the_whole() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8, 4]));
        let out = index_rows(&x, &input_of(&cx, &[32], DType::Int64));
        assert_eq!(out.dims(), [32, 4]);
        assert!(backward_of(out).contains(&"+new_zeros [8, 4] float32".to_owned()));
    }

    /// `masked_fill_` allocates nothing; the mask is kept, the filled tensor is not.
    #[test]
    fn filling_keeps_the_mask_alone() {
        let cx = forward();
        let mask = input_of(&cx, &[8, 1], DType::Bool);
        let x = neg(&activation(&cx, &[8, 4]));
        let (events, filled) = watch(&cx, || masked_fill_in_place(x, &mask));
        assert!(events.is_empty());
        let out = masked_fill(&filled, &mask);
        drop(filled);
        assert!(alive(&cx, Kind::Saved).is_empty(), "{:?}", alive(&cx, Kind::Saved));
        assert_eq!(made(&backward_of(out)), ["ones_like", "masked_fill.Scalar", "masked_fill.Scalar", "neg"]);
    }

    /// Both gradients are grouped products; the weight's is made as the weight is stored, so that it is stolen.
    #[test]
    fn a_grouped_products_weight_gradient_needs_no_copy() {
        let cx = forward();
        let experts = weight(&cx, &[4, 6, 8]);
        let offsets = input_of(&cx, &[4], DType::Int32);
        let out = grouped_linear(&neg(&activation(&cx, &[32, 8])), &experts, &offsets);
        assert_eq!(out.dims(), [32, 6]);
        let events = backward_of(out);
        assert_eq!(made(&events), ["ones_like", "_grouped_mm", "_grouped_mm", "neg"]);
        assert_eq!(gradient(&experts).unwrap().dims(), [4, 6, 8]);
    }

    /// "strides should be multiple of 16 bytes".
    #[test]
    fn grouped_products_take_aligned_rows_only() {
        let refused = |[inputs, outputs]: [u64; 2], dtype| {
            let cx = forward();
            let experts = input_of(&cx, &[4, outputs, inputs], dtype);
            let offsets = input_of(&cx, &[4], DType::Int32);
            drop(grouped_linear(&input_of(&cx, &[32, inputs], dtype), &experts, &offsets));
            cx.refusal().and_then(|why| why.reason)
        };
        assert_eq!(refused([172, 9], DType::BFloat16), Some(Reason::UnalignedRows));
        assert_eq!(refused([172, 9], DType::Float32), None);
        assert_eq!(refused([176, 9], DType::BFloat16), None);
    }

    /// On cards without the kernel a frozen weight has its gradient made all the same, and the input is kept for it.
    #[test]
    fn one_expert_at_a_time_keeps_and_makes_everything() {
        let cx = forward();
        cx.set_machine(Machine { one_expert_at_a_time: true, ..Machine::default() });
        let experts = input_of(&cx, &[4, 6, 8], DType::Float32);
        let offsets = input_of(&cx, &[4], DType::Int32);
        let out = grouped_linear(&neg(&activation(&cx, &[32, 8])), &experts, &offsets);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [32, 8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "zeros_like", "zeros_like", "neg"]);
    }
}
