//! A recording at the sizes that are asked, with its parameters loaded: what is worked out before it is played.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_catalog::Gpu;
use plimsoll_ground::{Error, Result};
use plimsoll_ledger::hull::{Hull, Kernel, Operand, Parameter, Step, Tape, values};
use plimsoll_ledger::{DType, Kind, ModuleId};
use plimsoll_scenario::{HullModel, Scenario, at};
use plimsoll_torch::nn::ShardPlan;
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, Geometry, Kernels, Tensor, Told, ToldShape};

use super::{Now, Player, choose, spread};

/// What a recording calls the scales beside a quantized weight.
const QUANT_STATE: &str = "quant_state";

/// An element type by PyTorch's name; one that the ledger has no name for is counted in bytes.
fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap_or(DType::UInt8)
}

impl Player {
    /// Loads the parameters and buffers of a scenario's hull.
    ///
    /// # Errors
    /// Sizes or a card that it was not recorded for.
    pub fn load(
        cx: &Rc<Context>,
        model: &HullModel,
        scenario: &Scenario,
        gpu: &Gpu,
        plan: Option<&ShardPlan>,
    ) -> Result<Self> {
        let hull = Arc::clone(model.file()?);
        let axes = model.values_from_one(scenario.input.batch)?;
        let played = choose::tape(&hull, scenario, gpu)?;
        let tape = played.tape();
        let blocks = if scenario.parallel.gpus > 1 { spread::blocks(&hull, tape, scenario)? } else { Vec::new() };
        let values = values(&hull.exprs, &axes);
        let value = |expr: u32| values.get(expr as usize).copied().flatten();
        let of_exprs = |shape: &[u32]| ToldShape::new(shape.iter().map(|expr| value(*expr).unwrap_or(0)));
        let mut shapes: Vec<ToldShape> = hull.shapes.iter().map(|shape| of_exprs(shape)).collect();
        shapes.push(of_exprs(&[]));
        let mut all_bytes = Vec::with_capacity(tape.storages.len());
        for born in &tape.storages {
            let bytes = value(born.bytes).ok_or_else(|| {
                let op = hull.ops.get(born.op as usize).map_or("", String::as_str);
                let problem = format!("at these sizes a tensor of {op} would have no whole number of bytes");
                Error::new(at::model::hull, problem, "ask for sizes that the model takes")
            })?;
            all_bytes.push(bytes);
        }
        let ops = hull.ops.iter().map(|name| cx.name_op(name)).collect();
        let nodes = hull.nodes.iter().map(|name| cx.name_grad_fn(name)).collect();
        let modules = modules(cx, &hull.modules);
        let dtypes = hull.dtypes.iter().map(|name| dtype(name)).collect();
        let mut player = Self {
            tape: played.clone(),
            bytes: all_bytes,
            shapes,
            modules,
            ops,
            nodes,
            dtypes,
            loaded: Vec::new(),
            parameters: Vec::new(),
            listed: Vec::new(),
            packed: 0,
            trained: Vec::new(),
            sharded: Vec::new(),
            left: Vec::new(),
            kept: Vec::new(),
            kernels: kernels(&hull, tape, &values),
            attention: hull.ops.iter().map(|name| ops::Kernel::of_backward(name)).collect(),
            shared: shared_gradients(tape),
            begun: false,
            now: Now::default(),
        };
        let mut parameters: Vec<Option<&Parameter>> = vec![None; tape.loaded as usize];
        for parameter in &tape.parameters {
            parameters[parameter.storage as usize] = Some(parameter);
        }
        for storage in 0..tape.loaded {
            let parameter = parameters[storage as usize];
            if let (Some(plan), Some(parameter)) = (plan, parameter) {
                let block = spread::block_of(&hull, &blocks, &parameter.name);
                let (born, sizes) = (tape.storages[storage as usize], player.sizes(storage));
                let module = player.modules[born.module as usize];
                let block = block.and_then(|block| player.modules.get(block as usize).copied());
                let dtype = player.dtypes[born.dtype as usize];
                let cut = plan.cut(cx, module, block, sizes, dtype, parameter.trained);
                player.loaded.push(Some(cut.whole.clone()));
                player.sharded.push(cut);
                continue;
            }
            let op = hull.ops.get(tape.storages[storage as usize].op as usize).map_or("", String::as_str);
            // A quantized weight's scales are no buffers of its module: who sends those over does not see them.
            let kind = if parameter.is_some() || op == QUANT_STATE { Kind::Parameter } else { Kind::Buffer };
            let tensor = player.come(cx, storage, Some(kind));
            let trains = parameter.is_some_and(|parameter| parameter.trained);
            player.loaded.push(Some(if trains { tensor.into_leaf(false) } else { tensor }));
        }
        spread::check_flat(&player.sharded, scenario)?;
        if tape.variant.quantization.as_deref() == Some("nf4-double") && cx.machine().kernels != Kernels::Uncounted {
            player.kept.push(table_of_scales(cx));
        }
        let tensor = |storage: u32| player.loaded.get(storage as usize).cloned().flatten();
        let replaced = replaced(tape);
        let listed = tape.parameters.iter().filter_map(|p| tensor(p.storage)).collect();
        let trained = |p: &Parameter| tensor(p.storage).filter(|_| p.trained);
        player.trained = tape.parameters.iter().map(trained).collect();
        let (gone, stay): (Vec<&Parameter>, Vec<&Parameter>) =
            tape.parameters.iter().partition(|p| !p.trained && replaced.binary_search(&p.storage).is_ok());
        let numbers = |p: &&Parameter| player.sizes(p.storage).iter().fold(1u64, |all, size| all.saturating_mul(*size));
        let by_two = |p: &&&Parameter| {
            let dtype = player.dtypes[tape.storages[p.storage as usize].dtype as usize];
            dtype == DType::UInt8 && tape.variant.quantization.is_some()
        };
        let beside = gone.iter().chain(stay.iter().filter(by_two));
        player.packed = beside.map(numbers).fold(0, u64::saturating_add);
        player.parameters = stay.iter().filter_map(|p| tensor(p.storage)).collect();
        player.listed = listed;
        Ok(player)
    }
}

/// Of each storage of a tape the kernel that is told of, at the sizes that the hull's expressions come to.
fn kernels(hull: &Hull, tape: &Tape, values: &[Option<u64>]) -> Vec<Option<Rc<ops::ToldKernel>>> {
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
fn table_of_scales(cx: &Rc<Context>) -> Tensor {
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
fn replaced(tape: &Tape) -> Vec<u32> {
    let steps = tape.segments.iter().flat_map(|segment| &segment.steps);
    let dropped = |step: &Step| match step {
        Step::Dropped(storage) if *storage < tape.loaded => Some(*storage),
        _ => None,
    };
    let mut all: Vec<u32> = steps.filter_map(dropped).collect();
    all.sort_unstable();
    all
}

/// Storages that are the gradients of several parameters, in order.
fn shared_gradients(tape: &Tape) -> Vec<u32> {
    let mut all: Vec<u32> =
        tape.segments.iter().flat_map(|segment| segment.gradients.iter().flatten().copied()).collect();
    all.sort_unstable();
    let mut shared: Vec<u32> = all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    shared.dedup();
    shared
}

/// The tree of modules, parents before their children; a number is an entry of the list it stands in.
fn modules(cx: &Rc<Context>, names: &[String]) -> Vec<ModuleId> {
    let mut known: BTreeMap<String, ModuleId> = BTreeMap::new();
    names
        .iter()
        .map(|name| {
            let (mut path, mut parent) = (String::new(), ModuleId::ROOT);
            for piece in name.split('.').filter(|piece| !piece.is_empty()) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(piece);
                parent = *known.entry(path.clone()).or_insert_with(|| match piece.parse::<u32>() {
                    Ok(item) => cx.module(parent, String::new().into(), Some(item)),
                    Err(_) => cx.module(parent, piece.to_owned().into(), None),
                });
            }
            parent
        })
        .collect()
}
