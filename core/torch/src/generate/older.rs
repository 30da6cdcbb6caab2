//! What the loop of `_sample` did before positions were counted ahead of it: `GenerationMixin._get_initial_cache_position` and
//! `prepare_inputs_for_generation` as transformers 4.46 to 5.3 have them. Read in 4.51.3 and 5.3.0.

use plimsoll_catalog::software::rules;

use super::{Generate, Sampler, position_sizes};
use crate::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use crate::tensor::{DType, Tensor};

impl Sampler<'_> {
    /// `torch.ones_like(input_ids[0, :]).cumsum(0) - 1`.
    pub(super) fn count_cache_positions(&mut self) {
        let sizes = [self.ids.size(1)];
        let ones = ops::fill(self.cx, Fill::OnesLike, &sizes, DType::Int64);
        let sums = ops::reduction(Reduction::Cumsum, &ones, &sizes, DType::Int64);
        drop(ones);
        self.cache_position = Some(ops::each(Pointwise::SubTensor, &sums, DType::Int64));
    }

    /// Whether `cache_position` says which tokens go into a forward, before [`rules::CACHE_POSITION_GROWS`].
    pub(super) fn picks_by_cache_position(&self) -> bool {
        self.cache_position.is_some() && !self.cx.machine().rules.has(&rules::CACHE_POSITION_GROWS)
    }

    /// `cache_position[-1:] + 1`, or with that behind what there is.
    pub(super) fn count_on(&mut self) {
        let Some(positions) = &self.cache_position else { return };
        let add = |x: &Tensor| ops::pointwise(Pointwise::AddTensor, x, &[], &[1], DType::Int64);
        self.cache_position = Some(if self.picks_by_cache_position() {
            add(positions)
        } else {
            let _next = {
                let behind = {
                    let range = ops::arange(self.cx, 1);
                    add(&range)
                };
                add(&behind)
            };
            ops::rearrangement(self.cx, Rearrangement::Cat, &[positions.numel() + 1], DType::Int64)
        });
    }

    /// `prepare_inputs_for_generation` and the forward.
    pub(super) fn older_logits(&mut self, model: &dyn Generate, first: bool) -> Tensor {
        let cx = self.cx;
        let (size, seq) = (self.ids.size(0), if first { self.ids.size(1) } else { 1 });
        let latest = |sizes: &[u64]| ops::rearrangement(cx, Rearrangement::Clone, sizes, DType::Int64);
        let tuples = model.returns_tuples();
        // Without a cache nothing is picked out at first: what is given is None there.
        let prepares = !(tuples && first);
        let ids = {
            if let Some(positions) = self.cache_position.as_ref().filter(|_| prepares) {
                drop(ops::pointwise(Pointwise::GeScalar, positions, &[], &[], DType::Bool));
            }
            let _picked =
                (!first).then(|| ops::rearrangement(cx, Rearrangement::IndexTensor, &[size, 1], DType::Int64));
            latest(&[size, seq])
        };
        let counts = self.masks_tokens() && model.takes_positions() && self.positions.is_none();
        let counted = self.mask.as_ref().filter(|_| counts).map(|mask| {
            let all = {
                let sums = ops::reduction(Reduction::Cumsum, mask, mask.dims(), DType::Int64);
                ops::each(Pointwise::SubTensor, &sums, DType::Int64)
            };
            drop(ops::each(Pointwise::EqScalar, mask, DType::Bool));
            // Written into in place; only what belongs to the ids is handed on.
            if prepares { latest(&[size, seq]) } else { all }
        });
        // What was counted before the loop is picked out of.
        let positions =
            counted.or_else(|| self.positions.is_some().then(|| latest(&position_sizes(self.axes, size, seq))));
        let handed = self.cache_position.clone().filter(|_| !tuples);
        self.inputs = [handed, Some(ids.clone()), positions.clone(), self.mask.clone()].into_iter().flatten().collect();
        if !first {
            cx.let_go_of_given_past();
            cx.rewind_past();
        }
        let logits = model.logits(self.step(&ids, positions.as_ref()));
        if first && cx.machine().rules.has(&rules::PROMPT_READ_APART) {
            self.inputs.clear();
        }
        logits
    }
}
