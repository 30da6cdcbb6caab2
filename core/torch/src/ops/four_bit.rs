//! bitsandbytes' four-bit weights and the product with one (`functional.py`, `autograd/_functions.py`,
//! `backends/cuda/ops.py` of bitsandbytes 0.50; what older versions did otherwise is in `software/rules/`).

use std::cell::OnceCell;
use std::rc::Rc;

use plimsoll_catalog::software::rules;
use smallvec::SmallVec;

use super::cast::to;
use super::four_bit_kernel::is_fused;
use super::inside;
use super::matmul::{linear, linear_flops};
use super::view::contiguous;
use crate::tensor::{Context, DType, Kernels, Kind, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// Numbers a scale stands for (`Params4bit`'s `blocksize`).
pub const BLOCK: u64 = 64;

/// Scales that share a scale of their own, where they are quantized once more (`quantize_4bit`).
pub const NESTED_BLOCK: u64 = 256;

/// The scales of the scales (`QuantState.state2`), their code and the mean of the scales.
type Nested = [Tensor; 3];

/// The map of the scales' eight-bit numbers, where weights share one (`name2qmap["dynamic"]`).
pub type SharedMap = Rc<OnceCell<Tensor>>;

/// `Params4bit` on the device with its `QuantState`: a matrix in two numbers a byte and a scale a block.
#[derive(Clone, Debug)]
pub struct FourBit {
    data: Tensor,
    absmax: Tensor,
    code: Tensor,
    nested: Option<Nested>,
    /// What the library keeps for itself: the map its own copy was made of.
    #[allow(dead_code, reason = "held alive, as the library holds it")]
    kept: Option<Tensor>,
    sizes: [u64; 2],
    dtype: DType,
}

impl FourBit {
    /// A matrix `[out, in]` quantized from `dtype`, two numbers a byte; `double` quantizes the scales too.
    #[cfg(test)]
    pub fn new(cx: &Rc<Context>, sizes: [u64; 2], dtype: DType, double: Option<&SharedMap>) -> Self {
        Self::of(cx, Self::numbers(cx, sizes, DType::UInt8), sizes, dtype, double)
    }

    /// What peft makes adapters of a layer in, before it widens them: in what the layer says it computes in
    /// (`_get_base_layer_device_and_dtype`), before that was asked in what it is packed in, where that is a float.
    pub fn adapted_in(cx: &Context, compute: DType, storage: DType) -> DType {
        match cx.machine().rules.has(&rules::ADAPTERS_ASK_COMPUTE_DTYPE) {
            true => compute,
            false if storage.is_float() => storage,
            false => DType::Float32,
        }
    }

    /// The sizes of a matrix `[out, in]` as it is packed in numbers of `storage`.
    pub fn packed(sizes: [u64; 2], storage: DType) -> [u64; 2] {
        let numbers = sizes[0].saturating_mul(sizes[1]);
        [numbers.div_ceil(storage.size().saturating_mul(2)), 1]
    }

    /// Its packed numbers.
    pub fn numbers(cx: &Rc<Context>, sizes: [u64; 2], storage: DType) -> Tensor {
        cx.empty_sizes(Op::Quantize4bit, &Self::packed(sizes, storage), storage)
    }

    /// A matrix `[out, in]`, packed in `data`, with its scales.
    pub fn of(cx: &Rc<Context>, data: Tensor, sizes: [u64; 2], dtype: DType, double: Option<&SharedMap>) -> Self {
        let numbers = sizes[0].saturating_mul(sizes[1]);
        let blocks = numbers.div_ceil(BLOCK);
        let make = |op, sizes: &[u64], dtype| cx.empty_sizes(op, sizes, dtype);
        // The sixteen numbers of NF4.
        let code = || make(Op::ToCopy, &[16], DType::Float32);
        let Some(shared) = double else {
            let absmax = make(Op::Quantize4bit, &[blocks], DType::Float32);
            return Self { data, absmax, code: code(), nested: None, kept: None, sizes, dtype }.copied_twice(cx);
        };
        let code = code();
        let offset = make(Op::Mean, &[], DType::Float32);
        let absmax = make(Op::QuantizeBlockwise, &[blocks], DType::UInt8);
        let scales = make(Op::QuantizeBlockwise, &[blocks.div_ceil(NESTED_BLOCK)], DType::Float32);
        // Every weight has a copy of its own of the map of eight-bit numbers; before 0.46 they shared one.
        let make_map = || make(Op::ToCopy, &[256], DType::Float32);
        let own = cx.machine().rules.has(&rules::OWN_MAPS);
        // The copies are made of one that stays on the card (`name2qmap`), a library's own: it is counted as workspaces are.
        let counted = own && cx.machine().kernels != Kernels::Uncounted;
        let kept = counted.then(|| shared.get_or_init(|| cx.counting_as(Kind::Workspace, make_map)).clone());
        let map = if own { make_map() } else { shared.get_or_init(make_map).clone() };
        Self { data, absmax, code, nested: Some([scales, map, offset]), kept, sizes, dtype }.copied_twice(cx)
    }

    /// The same, of which a deep copy has two `QuantState`s: the layer's own, and that of `Params4bit`, whose `__deepcopy__` does
    /// not look at what was copied already.
    fn copied_twice(self, cx: &Rc<Context>) -> Self {
        for state in [&self.absmax, &self.code].into_iter().chain(self.nested.iter().flatten()) {
            cx.copies_twice(state);
        }
        self
    }

    /// `dequantize_4bit`: the whole weight in the dtype it was quantized from.
    pub fn dequantize(&self, cx: &Rc<Context>) -> Tensor {
        // The scales in float32; their mean is added in place.
        let scales = self.nested.as_ref().map(|nested| self.scales(cx, nested));
        if let (Some(scales), Some([_, _, offset])) = (&scales, &self.nested) {
            cx.in_place(Op::AddInPlace, scales, &[offset]);
        }
        let weight = self.unpack(cx, scales.as_ref(), self.dtype);
        drop(scales);
        weight
    }

    /// Scales that were quantized, in float32: without their mean and, out of place, with it.
    fn added_scales(&self, cx: &Rc<Context>) -> Option<(Tensor, Tensor)> {
        let nested = self.nested.as_ref()?;
        let scales = self.scales(cx, nested);
        let added = cx.launch(Op::AddTensor, &[&scales, &nested[2]]).make_like(&scales);
        Some((scales, added))
    }

    /// The scales, which were quantized themselves, in float32.
    fn scales(&self, cx: &Rc<Context>, [scales, map, _]: &Nested) -> Tensor {
        let mut launch = cx.launch(Op::DequantizeBlockwise, &[&self.absmax, scales, map]);
        launch.make_sizes(self.absmax.dims(), DType::Float32)
    }

    /// The whole weight in `dtype`.
    fn unpack(&self, cx: &Rc<Context>, scales: Option<&Tensor>, dtype: DType) -> Tensor {
        let operands = [&self.data, scales.unwrap_or(&self.absmax), &self.code];
        cx.launch(Op::Dequantize4bit, &operands).make_sizes(&self.sizes, dtype)
    }

    /// A product with the weight as it is packed.
    fn packed_product(&self, op: Op, x: &Tensor, scales: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        let mut operands = vec![x, &self.data, scales.unwrap_or(&self.absmax), &self.code];
        operands.extend(bias);
        let flops = linear_flops(x, self.sizes[0]);
        x.cx().launch(op, &operands).flops(flops).make_sizes(&with_last(x, self.sizes[0]), x.dtype())
    }
}

/// `matmul_4bit(x, weight, bias)`; the weight is frozen. Nothing of the input is kept: its gradient needs
/// the weight alone, which is dequantized again. Before 0.43.2 it was kept all the same, as a plain attribute of the node
/// (`ctx.tensors = (A, B)`).
pub fn matmul_4bit(x: &Tensor, weight: &FourBit, bias: Option<&Tensor>) -> Tensor {
    // A bias wants a gradient only as a view of a flat parameter that does.
    let bias_of = bias.filter(|bias| bias.requires_grad()).map(Tensor::dtype);
    let taped: SmallVec<[&Tensor; 2]> = std::iter::once(x).chain(bias.filter(|_| bias_of.is_some())).collect();
    let mut tape = Tape::new(x.cx(), GradFn::MatMul4BitBackward, &taped);
    let rules = x.cx().machine().rules;
    let mut out = x.cx().no_grad(|| {
        if rules.has(&rules::FUSED_FOUR_BIT) {
            x.cx().inside_operator(|| gemm_4bit(x, weight, bias))
        } else {
            linear_4bit(x, weight, bias)
        }
    });
    if !rules.has(&rules::INPUT_LET_GO) {
        tape.keep(x);
    } else if x.requires_grad()
        && let Some(held) = x.cx().held(&weight.data)
    {
        // `ctx.tensors = (None, B)`, of which B is a view: what was gathered for it stays.
        tape.keep(&held);
    }
    let weight = weight.clone();
    tape.record([&mut out], move |g| {
        // `grad_output.sum(0)`: over the samples, and by autograd over the rest.
        let summed = bias_of.filter(|_| g.needs(1)).map(|dtype| {
            let sizes = g.grad().dims().get(1..).unwrap_or_default();
            drop(inside::sum(g.cx(), Op::SumDimIntList, g.grad().geometry(), |dim| dim == 0, dtype));
            g.cx().launch(Op::SumDimIntList, &[g.grad()]).make_sizes(sizes, dtype)
        });
        let of_input = g.needs(0).then(|| {
            let whole = to(&weight.dequantize(g.cx()), g.grad().dtype());
            super::matmul::matmul_cast(g.grad(), &whole)
        });
        if bias_of.is_some() { grads([of_input, summed]) } else { grads([of_input]) }
    });
    out
}

/// `_dequant_linear_fallback`, or the fused kernel, which needs nothing but its output and the input in one piece.
fn gemm_4bit(x: &Tensor, weight: &FourBit, bias: Option<&Tensor>) -> Tensor {
    let cx = x.cx();
    let rows = x.numel() / weight.sizes[1].max(1);
    if is_fused(&cx.machine(), x.dtype(), rows, weight.sizes) {
        let x = &contiguous(x);
        return weight.packed_product(Op::Gemm4bit, x, None, bias);
    }
    let scales = weight.added_scales(cx);
    let whole = weight.unpack(cx, scales.as_ref().map(|(_, added)| added), x.dtype());
    let out = linear(x, &whole, bias);
    drop((scales, whole));
    out
}

/// What stood in its place before 0.50: for one row that wants no gradient `gemv_4bit`, which rebuilds the scales (in place
/// before 0.46, which is not followed) and adds the bias in place; else `MatMul4Bit.forward`.
fn linear_4bit(x: &Tensor, weight: &FourBit, bias: Option<&Tensor>) -> Tensor {
    let (cx, [_, inputs]) = (x.cx(), weight.sizes);
    if x.numel() == inputs && inputs.is_multiple_of(BLOCK) && !x.requires_grad() {
        let scales = weight.added_scales(cx).map(|(_, added)| added);
        let out = weight.packed_product(Op::Gemv4bit, x, scales.as_ref(), None);
        drop(scales);
        return out;
    }
    // A statement of its own: what the weight was cast from is gone before the product.
    let whole = to(&weight.dequantize(cx), x.dtype());
    linear(x, &whole, bias)
}

fn with_last(x: &Tensor, outputs: u64) -> Vec<u64> {
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = outputs;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use plimsoll_catalog::software::{Rules, Software, Version};

    use super::{FourBit, SharedMap, matmul_4bit};
    use crate::tensor::testing::{activation_of, alive, backward_of, forward, input_of, live, made, watch};
    use crate::tensor::{DType, Kind, Machine, Tensor, checkpoint};

    fn bitsandbytes(version: &str) -> Rules {
        Rules::of(&Software { bitsandbytes: Version::parse_patch(version).unwrap(), ..Software::default() })
    }

    const HALF: DType = DType::BFloat16;

    /// `QuantState.as_dict`: half a byte a number and 4 bytes a block of 64; with double quantization one byte a block, 4
    /// bytes for every 256 blocks, and two maps and a mean a weight.
    #[test]
    fn a_weight_takes_half_a_byte_a_number_and_its_scales() {
        let cx = forward();
        let plain = FourBit::new(&cx, [512, 256], HALF, None);
        let numbers = 512 * 256;
        assert_eq!(live(&cx), numbers / 2 + numbers / 64 * 4 + 64);
        drop(plain);
        assert_eq!(live(&cx), 0);
        let _double = FourBit::new(&cx, [512, 256], HALF, Some(&SharedMap::default()));
        assert_eq!(live(&cx), numbers / 2 + numbers / 64 + numbers / 64 / 256 * 4 + 64 + 1024 + 4);
        // A last block that is not full has a scale all the same.
        let odd = FourBit::new(&forward(), [5, 13], HALF, None);
        assert_eq!(odd.absmax.numel(), 2);
    }

    /// `MatMul4Bit`: the whole weight lives while the product runs, in either direction; the input is not kept.
    #[test]
    fn a_product_unpacks_the_weight_forward_and_backward() {
        let cx = forward();
        let weight = FourBit::new(&cx, [32, 64], HALF, None);
        let x = activation_of(&cx, &[2, 8, 64], HALF);
        let (events, out) = watch(&cx, || matmul_4bit(&crate::ops::neg(&x), &weight, None));
        assert_eq!(
            events,
            [
                "+neg [2, 8, 64] bfloat16",
                "+dequantize_4bit [32, 64] bfloat16",
                "+mm [16, 32] bfloat16",
                "-dequantize_4bit [32, 64] bfloat16",
                "-neg [2, 8, 64] bfloat16"
            ]
        );
        assert_eq!(out.dims(), [2, 8, 32]);
        assert!(alive(&cx, Kind::Saved).is_empty());
        assert_eq!(made(&backward_of(out)), ["ones_like", "dequantize_4bit", "mm", "neg"]);
    }

    /// Double quantization rebuilds the scales first: twice their size in the forward (the mean is added out of place),
    /// once in the backward.
    #[test]
    fn scales_that_are_quantized_are_rebuilt_first() {
        let cx = forward();
        let weight = FourBit::new(&cx, [64, 64], HALF, Some(&SharedMap::default()));
        let x = activation_of(&cx, &[8, 64], HALF);
        let (events, out) = watch(&cx, || matmul_4bit(&x, &weight, None));
        assert_eq!(made(&events), ["dequantize_blockwise", "add.Tensor", "dequantize_4bit", "mm"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "dequantize_blockwise", "dequantize_4bit", "mm"]);
    }

    /// What was quantized from another dtype than it computes in is cast as well.
    #[test]
    fn a_gradient_of_another_dtype_has_the_weight_cast_to_it() {
        let cx = forward();
        let weight = FourBit::new(&cx, [64, 64], DType::Float32, None);
        let out = matmul_4bit(&activation_of(&cx, &[8, 64], HALF), &weight, None);
        assert_eq!(made(&backward_of(out)), ["ones_like", "dequantize_4bit", "_to_copy", "mm"]);
    }

    /// `ctx.tensors = (A, B)` before 0.43.2: the input is kept where a gradient is asked for, as an attribute, which no
    /// checkpoint sees and which backward does not let go of; where none is asked for, it is not.
    #[test]
    fn older_versions_keep_the_input() {
        let of = |version: &str| {
            let cx = forward();
            cx.set_machine(Machine { rules: bitsandbytes(version), ..Machine::default() });
            let weight = FourBit::new(&cx, [64, 64], HALF, None);
            let nothing = matmul_4bit(&input_of(&cx, &[8, 64], HALF), &weight, None);
            assert!(alive(&cx, Kind::Saved).is_empty(), "{version}: of what wants no gradient");
            let run = Rc::new(move |x: &[Tensor]| matmul_4bit(&crate::ops::neg(&x[0]), &weight, None));
            let out = checkpoint(&cx, vec![activation_of(&cx, &[8, 64], HALF)], run);
            let graph = out.clone();
            let before = alive(&cx, Kind::Saved);
            backward_of(out);
            let after = alive(&cx, Kind::Saved);
            drop((graph, nothing));
            assert!(alive(&cx, Kind::Saved).is_empty());
            (before, after)
        };
        let kept = vec!["neg [8, 64] bfloat16".to_owned()];
        for version in ["0.41.1", "0.43.1"] {
            assert_eq!(of(version), (kept.clone(), kept.clone()), "{version}");
        }
        for version in ["0.43.2", "0.50.2"] {
            assert_eq!(of(version), (Vec::new(), Vec::new()), "{version}");
        }
    }

    /// `name2qmap["dynamic"]` served every weight before 0.46.
    #[test]
    fn older_weights_share_a_map() {
        let of = |version: &str| {
            let cx = forward();
            cx.set_machine(Machine { rules: bitsandbytes(version), ..Machine::default() });
            let shared = SharedMap::default();
            let weights = [(); 3].map(|()| FourBit::new(&cx, [64, 64], HALF, Some(&shared)));
            let taken = live(&cx);
            drop(weights);
            taken
        };
        assert_eq!(of("0.46.0") - of("0.45.5"), 2 * 1024);
    }

    /// Before 0.50 the weight comes out in the dtype it was quantized from, beside its copy in the input's; scales are added
    /// up in place. One row is read from the packed weight.
    #[test]
    fn older_versions_unpack_and_cast() {
        let cx = forward();
        cx.set_machine(Machine { rules: bitsandbytes("0.49.2"), ..Machine::default() });
        let weight = FourBit::new(&cx, [32, 64], HALF, Some(&SharedMap::default()));
        let run = |rows: u64, dtype| watch(&cx, || matmul_4bit(&input_of(&cx, &[rows, 64], dtype), &weight, None)).0;
        assert_eq!(made(&run(4, HALF))[1..], ["dequantize_blockwise", "dequantize_4bit", "mm"]);
        let float = ["dequantize_blockwise", "dequantize_4bit", "_to_copy", "mm"];
        assert_eq!(made(&run(4, DType::Float32))[1..], float);
        assert_eq!(made(&run(1, HALF))[1..], ["dequantize_blockwise", "add.Tensor", "gemv_4bit"]);
    }

    /// A token or four go through the fused kernel, which reads the packed weight.
    #[test]
    fn a_few_rows_need_no_unpacked_weight() {
        let cx = forward();
        let weight = FourBit::new(&cx, [32, 64], HALF, Some(&SharedMap::default()));
        let one =
            |rows: u64| made(&watch(&cx, || matmul_4bit(&input_of(&cx, &[rows, 64], HALF), &weight, None)).0).len();
        assert_eq!((one(4), one(5)), (2, 5));
    }
}
