//! Where a model is being built: the dotted path, the weight dtype, and every parameter in registration order.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_catalog::families::ExpertPart;
use plimsoll_scenario::Lora;

use super::adapter_plan::AdapterPlan;
use super::quantization_plan::QuantizationPlan;
use super::shards::{ShardPlan, Sharded};
use crate::ops;
use crate::tensor::{Context, DType, Kind, ModuleId, Tensor};

#[derive(Debug)]
struct Shared {
    cx: Rc<Context>,
    dtype: DType,
    adapters: Option<AdapterPlan>,
    quantization: Option<QuantizationPlan>,
    parameters: RefCell<Vec<Tensor>>,
    /// Those among them that are not counted as parameters: of quantized linears the packed weights and the biases.
    unlisted: RefCell<BTreeSet<u32>>,
    packed: Cell<u64>,
    adapted: RefCell<u32>,
    /// Which of the names of modules to save have been found.
    saved: RefCell<Vec<bool>>,
    /// A quantized linear among the modules to save: nothing could train its copy.
    untrainable: RefCell<Option<String>>,
    /// The end of the path of a linear that is not quantized, since its weight is the last parameter of the model.
    last: RefCell<Option<String>>,
    /// How parameters are cut over several cards, where they are, and those that were.
    shards: Option<ShardPlan>,
    sharded: RefCell<Vec<Sharded>>,
    /// Modules that use a parameter of another one, where parameters are cut.
    sharing: RefCell<Vec<(ModuleId, Tensor)>>,
    /// Modules that are gathered with all that lies in them, where parameters are cut.
    leaves: RefCell<Vec<ModuleId>>,
}

/// A place in the module tree.
#[derive(Clone, Debug)]
pub struct Scope {
    shared: Rc<Shared>,
    module: ModuleId,
    /// The outermost entry of a list of modules that it lies in.
    block: Option<ModuleId>,
}

impl Scope {
    /// The root of a model with weights of `dtype`, some of them quantized where there is a plan for that.
    pub fn root(
        cx: &Rc<Context>,
        dtype: DType,
        adapters: Option<AdapterPlan>,
        quantization: Option<QuantizationPlan>,
        shards: Option<ShardPlan>,
    ) -> Self {
        let module = match &adapters {
            // peft's wrappers.
            Some(_) => cx.module(cx.module(ModuleId::ROOT, "base_model".into(), None), "model".into(), None),
            None => ModuleId::ROOT,
        };
        let saved = adapters.as_ref().map(|plan| vec![false; plan.lora.modules_to_save.len()]);
        let shared = Shared {
            cx: Rc::clone(cx),
            dtype,
            adapters,
            quantization,
            parameters: RefCell::default(),
            unlisted: RefCell::default(),
            packed: Cell::default(),
            adapted: RefCell::default(),
            saved: RefCell::new(saved.unwrap_or_default()),
            untrainable: RefCell::default(),
            last: RefCell::default(),
            shards,
            sharded: RefCell::default(),
            sharing: RefCell::default(),
            leaves: RefCell::default(),
        };
        Self { shared: Rc::new(shared), module, block: None }
    }

    /// The child `name`.
    pub fn child(&self, name: impl Into<Cow<'static, str>>) -> Self {
        self.below(name.into(), None)
    }

    /// The `i`-th entry of the `ModuleList` `name`.
    pub fn item(&self, name: &'static str, i: u64) -> Self {
        self.below(name.into(), u32::try_from(i).ok())
    }

    fn below(&self, name: Cow<'static, str>, item: Option<u32>) -> Self {
        let module = self.shared.cx.module(self.module, name, item);
        let block = self.block.or_else(|| item.map(|_| module));
        Self { shared: Rc::clone(&self.shared), module, block }
    }

    /// Its dotted path.
    fn path(&self) -> String {
        self.shared.cx.path(self.module)
    }

    /// Whether a norm here is Liger's, and if so, whether it writes over the gradient.
    pub(super) fn liger_norm(&self) -> Option<bool> {
        let liger = self.shared.cx.liger()?;
        let path = self.path();
        liger.norm(path.rsplit('.').next().unwrap_or(&path))
    }

    /// The run.
    pub fn cx(&self) -> &Rc<Context> {
        &self.shared.cx
    }

    /// The weights' dtype.
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }

    /// What a buffer is in that is made in the weights' dtype: of a quantized base as it was loaded, for what prepares it for training
    /// makes parameters float32 and leaves buffers.
    pub fn buffer_dtype(&self) -> DType {
        let shared = &self.shared;
        if shared.shards.as_ref().is_some_and(|plan| plan.wide_buffers) {
            DType::Float32
        } else {
            shared.quantization.as_ref().map_or(shared.dtype, |plan| plan.compute)
        }
    }

    /// The module that ops are attributed to.
    pub const fn module(&self) -> ModuleId {
        self.module
    }

    /// The outermost entry of a list of modules that it lies in.
    pub(super) const fn block(&self) -> Option<ModuleId> {
        self.block
    }

    /// Takes out the parameters that were cut, in the order in which their shards were made: the model is built.
    pub fn take_sharded(&self) -> Vec<Sharded> {
        self.shared.sharded.take()
    }

    /// Takes out modules that use a parameter of another one, each with the parameter, where parameters are cut.
    pub fn take_sharing(&self) -> Vec<(ModuleId, Tensor)> {
        self.shared.sharing.take()
    }

    /// Takes out the modules that are gathered with all that lies in them, where parameters are cut.
    pub fn take_leaves(&self) -> Vec<ModuleId> {
        self.shared.leaves.take()
    }

    /// Says that DeepSpeed gathers the module here with all that lies in it.
    pub fn is_leaf(&self) {
        if self.shared.shards.is_some() {
            self.shared.leaves.borrow_mut().push(self.module);
        }
    }

    /// Says that the module here uses a parameter of another one.
    pub fn shares(&self, parameter: &Tensor) {
        if self.shared.shards.is_some() {
            self.shared.sharing.borrow_mut().push((self.module, parameter.clone()));
        }
    }

    /// Says that the parameter that was made last is a table that is looked up.
    pub(super) fn indexes(&self) {
        if let Some(last) = self.shared.sharded.borrow_mut().last_mut() {
            last.indexed = true;
        }
    }

    /// A parameter; frozen when the model carries adapters. Of a module that is trained whole beside them, the copy.
    pub fn parameter(&self, sizes: &[u64]) -> Tensor {
        let original = self.original(sizes);
        self.copy_of(&original).unwrap_or(original)
    }

    /// As [`Scope::parameter`], one that stays in float32 whatever the others are in (`_keep_in_fp32_modules_strict`).
    pub fn wide_parameter(&self, sizes: &[u64]) -> Tensor {
        let original = self.register(sizes, DType::Float32, self.shared.adapters.is_none());
        self.copy_of(&original).unwrap_or(original)
    }

    /// The parameter a module is made with.
    pub fn original(&self, sizes: &[u64]) -> Tensor {
        self.register(sizes, self.shared.dtype, self.shared.adapters.is_none())
    }

    /// The copy of a parameter that is trained in its place, where the module is one to save (`ModulesToSaveWrapper`). The
    /// original stays.
    pub fn copy_of(&self, original: &Tensor) -> Option<Tensor> {
        (!original.requires_grad() && self.is_saved()).then(|| self.register(original.dims(), original.dtype(), true))
    }

    /// Whether the module here is trained whole, in a copy of its own.
    pub fn is_saved(&self) -> bool {
        let Some(name) = self.shared.adapters.as_ref().and_then(|plan| plan.saving(&self.path())) else { return false };
        if let Some(found) = self.shared.saved.borrow_mut().get_mut(name) {
            *found = true;
        }
        true
    }

    /// The first of the names of modules to save that no module has.
    pub fn unknown_saved(&self) -> Option<String> {
        let missing = self.shared.saved.borrow().iter().position(|found| !found)?;
        self.shared.adapters.as_ref()?.lora.modules_to_save.get(missing).cloned()
    }

    /// A module to save that is quantized, if there is one.
    pub fn untrainable(&self) -> Option<String> {
        self.shared.untrainable.borrow().clone()
    }

    /// A parameter of an adapter on a layer that computes in `base`, which is trained.
    pub fn adapter_parameter(&self, sizes: &[u64], base: DType) -> Tensor {
        self.register(sizes, self.adapter_dtype(base), true)
    }

    /// What adapters are in: peft keeps those on layers in 16 bits in float32, unless `autocast_adapter_dtype` is off.
    fn adapter_dtype(&self, base: DType) -> DType {
        let plan = self.shared.adapters.as_ref();
        if let Some(cast) = plan.and_then(|plan| plan.cast) {
            return cast;
        }
        let widens = plan.is_none_or(|plan| plan.lora.autocast_adapter_dtype);
        if widens && base.is_half() { DType::Float32 } else { base }
    }

    /// Where the next parameter will stand in the list, for [`Scope::own_parameter`].
    pub fn place(&self) -> usize {
        self.shared.parameters.borrow().len()
    }

    /// A parameter of a module that has children as well: `.to(device)` moves it after theirs, `parameters()` lists it
    /// before them, at `place`.
    pub fn own_parameter(&self, place: usize, sizes: &[u64]) -> Tensor {
        let tensor = self.allocate(sizes, self.shared.dtype, self.shared.adapters.is_none());
        self.shared.parameters.borrow_mut().insert(place, tensor.clone());
        self.copy_of(&tensor).unwrap_or(tensor)
    }

    fn register(&self, sizes: &[u64], dtype: DType, trainable: bool) -> Tensor {
        let tensor = self.allocate(sizes, dtype, trainable);
        self.shared.parameters.borrow_mut().push(tensor.clone());
        tensor
    }

    fn allocate(&self, sizes: &[u64], dtype: DType, trainable: bool) -> Tensor {
        if let Some(plan) = &self.shared.shards {
            let sharded = plan.make(self, sizes, dtype, trainable);
            let whole = sharded.whole.clone();
            self.shared.sharded.borrow_mut().push(sharded);
            return whole;
        }
        let tensor = self.shared.cx.within(self.module, || ops::loaded(&self.shared.cx, sizes, dtype));
        if trainable { tensor.into_leaf(false) } else { tensor }
    }

    /// A float32 buffer; the module holds it.
    pub fn buffer(&self, sizes: &[u64]) -> Tensor {
        self.buffer_of(sizes, DType::Float32)
    }

    /// A buffer of `dtype`; the module holds it.
    pub fn buffer_of(&self, sizes: &[u64], dtype: DType) -> Tensor {
        let cx = &self.shared.cx;
        let passing = self.shared.shards.as_ref().is_some_and(|plan| plan.passing);
        let make = || {
            if passing {
                let whole = ops::unallocated(cx, sizes, dtype);
                return whole.view_as(whole.geometry().clone());
            }
            ops::loaded(cx, sizes, dtype)
        };
        cx.within(self.module, || cx.counting_as(Kind::Buffer, make))
    }

    /// A parameter with `requires_grad_(False)`.
    pub fn frozen_parameter(&self, sizes: &[u64]) -> Tensor {
        self.register(sizes, self.shared.dtype, false)
    }

    /// A frozen parameter that no list has: a quantized linear's bias. Count it with [`Scope::count_packed`].
    pub fn unlisted_parameter(&self, sizes: &[u64]) -> Tensor {
        self.unlisted(self.allocate(sizes, self.shared.dtype, false))
    }

    /// A quantized weight as it is packed, likewise: cut where parameters are, else as `make` makes it.
    pub fn packed_parameter(&self, sizes: &[u64], dtype: DType, make: impl FnOnce() -> Tensor) -> Tensor {
        let cut = self.shared.shards.is_some();
        self.unlisted(if cut { self.allocate(sizes, dtype, false) } else { make() })
    }

    fn unlisted(&self, tensor: Tensor) -> Tensor {
        self.shared.unlisted.borrow_mut().insert(tensor.storage_id());
        self.shared.parameters.borrow_mut().push(tensor.clone());
        tensor
    }

    /// How the linear here is quantized, if it is. `head` linears never are.
    pub fn quantization(&self, head: bool) -> Option<&QuantizationPlan> {
        let plan = self.shared.quantization.as_ref()?;
        let skipped = || {
            let path = self.path();
            let last = self.shared.last.borrow();
            plan.skipped.iter().any(|name| path.ends_with(name))
                || last.as_ref().is_some_and(|last| path.ends_with(last))
        };
        if head || skipped() {
            return None;
        }
        if self.is_saved() {
            self.shared.untrainable.borrow_mut().get_or_insert_with(|| self.path());
        }
        Some(plan)
    }

    /// Says which linear has the model's last parameter, where that is none of the output head's and of no norm:
    /// `get_keys_to_not_convert` leaves it alone.
    pub fn ends_with(&self, path: String) {
        self.shared.last.replace(Some(path));
    }

    /// Counts numbers of the model that are not among [`Scope::parameters`].
    pub fn count_packed(&self, numbers: u64) {
        self.shared.packed.set(self.shared.packed.get().saturating_add(numbers));
    }

    /// How many there are.
    pub fn packed(&self) -> u64 {
        self.shared.packed.get()
    }

    /// The adapter the linear here should carry, if any.
    pub fn adapter(&self, head: bool) -> Option<&Lora> {
        let plan = self.shared.adapters.as_ref().filter(|p| p.targets(&self.path(), head))?;
        *self.shared.adapted.borrow_mut() += 1;
        Some(&plan.lora)
    }

    /// The rank of the adapter that this parameter of a mixture should carry, if any.
    pub fn expert_adapter(&self, part: ExpertPart) -> Option<u64> {
        let plan = self.shared.adapters.as_ref().filter(|plan| plan.targets_part(part))?;
        *self.shared.adapted.borrow_mut() += 1;
        Some(plan.lora.rank)
    }

    /// How many linears and parameters of experts carry an adapter.
    pub fn adapted(&self) -> u32 {
        *self.shared.adapted.borrow()
    }

    /// The parameters from `place` in the list on.
    pub fn parameters_since(&self, place: usize) -> Vec<Tensor> {
        self.counted(self.shared.parameters.borrow().get(place..).unwrap_or_default())
    }

    fn counted(&self, of: &[Tensor]) -> Vec<Tensor> {
        let unlisted = self.shared.unlisted.borrow();
        of.iter().filter(|tensor| !unlisted.contains(&tensor.storage_id())).cloned().collect()
    }

    /// Every parameter in registration order; tied ones once.
    pub fn parameters(&self) -> Vec<Tensor> {
        self.counted(&self.shared.parameters.borrow())
    }

    /// As [`Scope::parameters`], with the packed weights and the biases of quantized linears: what `model.parameters()` lists.
    pub fn all_parameters(&self) -> Vec<Tensor> {
        self.shared.parameters.borrow().clone()
    }
}
