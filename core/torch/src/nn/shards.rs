//! A model whose parameters are cut over several cards: each keeps a shard, and the whole is there only while it is used.

use std::collections::BTreeSet;
use std::rc::Rc;

use smallvec::SmallVec;

use super::scope::Scope;
use crate::ops;
use crate::tensor::{Context, DType, ModuleId, Tensor};

/// How parameters are cut, as `FSDPParam` has it.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// Cards that share a parameter.
    pub ranks: u64,
    /// What it is gathered in, where that is not its own dtype (`MixedPrecisionPolicy.param_dtype`).
    pub gathered: Option<DType>,
    /// Whether shards lie in the machine's own memory (`CPUOffloadPolicy`).
    pub offloaded: bool,
    /// Whether buffers stay in float32 beside parameters in 16 bits: DeepSpeed casts parameters alone (`buffer_dtype`).
    pub wide_buffers: bool,
    /// Blocks, and as `None` the rest of the model, whose parameters are views of one that takes a gradient: so do they all,
    /// those too that are not trained (`FullyShardedDataParallel` with `use_orig_params`).
    pub flat: BTreeSet<Option<ModuleId>>,
    /// Whether a parameter's part is a tensor of its own: DeepSpeed lays the parts of all into one, and what is asked of a part
    /// is answered by the whole.
    pub parts: bool,
    /// Whether parameters and buffers lie on another card, and what the model computes with are views of what comes from there for
    /// one forward (`torch.nn.DataParallel`).
    pub passing: bool,
}

/// A parameter that is cut along its first dimension.
#[derive(Clone, Debug)]
pub struct Sharded {
    /// What the model computes with. Its storage is empty: who gathers it, holds the bytes (`untyped_storage().resize_`).
    pub whole: Tensor,
    /// The first rank's part, which no other exceeds; what an optimizer works on. The whole, where parts are no tensors of their
    /// own.
    pub shard: Tensor,
    /// The entry of a list of modules that it belongs to, the outermost one; `None` of the rest of the model.
    pub block: Option<ModuleId>,
    /// The module it is a parameter of.
    pub module: ModuleId,
    /// Whether it is a table that is looked up: no gradient flows back into its module.
    pub indexed: bool,
}

impl ShardPlan {
    /// The sizes of the first rank's part: `torch.chunk` along dimension 0.
    pub fn local(&self, sizes: &[u64]) -> SmallVec<[u64; 4]> {
        let mut local: SmallVec<[u64; 4]> = SmallVec::from_slice(sizes);
        if let Some(rows) = local.first_mut() {
            *rows = rows.div_ceil(self.ranks.max(1));
        }
        local
    }

    /// Makes a parameter of `sizes`: its shard is allocated, as `to_empty` does it on a model that was cut on the meta device.
    pub(super) fn make(&self, scope: &Scope, sizes: &[u64], dtype: DType, trainable: bool) -> Sharded {
        self.cut(scope.cx(), scope.module(), scope.block(), sizes, dtype, trainable)
    }

    /// The same of a parameter of this module, in this block.
    pub fn cut(
        &self,
        cx: &Rc<Context>,
        module: ModuleId,
        block: Option<ModuleId>,
        sizes: &[u64],
        dtype: DType,
        trainable: bool,
    ) -> Sharded {
        let leaf = |tensor: Tensor, takes| if takes { tensor.into_leaf(false) } else { tensor };
        let takes_gradient = trainable || self.flat.contains(&block);
        let shard = self.parts.then(|| {
            let local = self.local(sizes);
            cx.put_down_to(module, || {
                if self.offloaded || self.passing {
                    ops::unallocated(cx, &local, dtype)
                } else {
                    ops::loaded(cx, &local, dtype)
                }
            })
        });
        let gathered = self.gathered.filter(|_| dtype.is_float()).unwrap_or(dtype);
        let whole = ops::unallocated(cx, sizes, gathered);
        let whole = leaf(if self.passing { whole.view_as(whole.geometry().clone()) } else { whole }, takes_gradient);
        let shard = shard.map_or_else(|| whole.clone(), |shard| leaf(shard, trainable));
        Sharded { whole, shard, block, module, indexed: false }
    }
}
