//! What of a recording is worked out before it is played.

use std::rc::Rc;

use plimsoll_ledger::hull::{Hull, Kernel, Operand, Step, Tape};
use plimsoll_ledger::{DType, Kind, ModuleId};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, Geometry, Tensor, Told, ToldShape};

use super::dtype;

/// Of each storage of a tape the kernel that is told of, at the sizes that the hull's expressions come to.
pub(super) fn kernels(hull: &Hull, tape: &Tape, values: &[Option<u64>]) -> Vec<Option<Rc<ops::ToldKernel>>> {
    let list = |shape: u32| -> Option<Vec<u64>> {
        let exprs = hull.shapes.get(shape as usize)?;
        exprs.iter().map(|expr| values.get(*expr as usize).copied().flatten()).collect()
    };
    let given = |Operand(sizes, strides, name): &Operand| {
        let geometry = Geometry::strided(&list(*sizes)?, &list(*strides)?)?;
        Some(ops::Given { geometry, dtype: dtype(hull.dtypes.get(*name as usize)?) })
    };
    let kernel = |kernel: &Kernel| {
        let operands = kernel.operands.iter().map(given).collect::<Option<Vec<_>>>()?;
        ops::ToldKernel::of(hull.ops.get(kernel.op as usize)?, operands, kernel.numbers.clone()).map(Rc::new)
    };
    let all: Vec<Option<Rc<ops::ToldKernel>>> = hull.kernels.iter().map(kernel).collect();
    let of = |number: u32| all.get((number as usize).checked_sub(1)?).cloned().flatten();
    tape.storages.iter().map(|born| of(born.kernel)).collect()
}

/// The map of eight-bit numbers that bitsandbytes keeps on the card for itself once scales are quantized too (`name2qmap["dynamic"]` in its
/// `functional.py`): every weight has a copy of it. A library's own, counted as workspaces are.
pub(super) fn table_of_scales(cx: &Rc<Context>) -> Tensor {
    let shape = ToldShape::new([256]);
    cx.told(Told {
        bytes: 256 * DType::Float32.size(),
        op: cx.name_op("_to_copy"),
        grad_fn: cx.name_grad_fn(""),
        module: ModuleId::ROOT,
        dtype: DType::Float32,
        shape: &shape,
        kind: Some(Kind::Workspace),
    })
}

/// Loaded storages that Python lets go of, in order.
pub(super) fn replaced(tape: &Tape) -> Vec<u32> {
    let steps = tape.segments.iter().flat_map(|segment| &segment.steps);
    let dropped = |step: &Step| match step {
        Step::Dropped(storage) if *storage < tape.loaded => Some(*storage),
        _ => None,
    };
    let mut all: Vec<u32> = steps.filter_map(dropped).collect();
    all.sort_unstable();
    all
}
