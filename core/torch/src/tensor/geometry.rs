//! Sizes and strides, and PyTorch's rules for them.
//!
//! Strides matter to memory: whether `reshape` copies, whether `contiguous()` is free, whether a gradient can be
//! added in place. The rules follow `c10/core/TensorImpl`, `ATen/TensorUtils.cpp` (`computeStride`) and
//! `ATen/TensorIterator.cpp`.

use std::rc::Rc;

/// The most dimensions a tensor of ours has.
pub const MAX_RANK: usize = 6;

/// Sizes and strides (both in elements) of a tensor. Shared: most ops hand on the geometry they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry(Rc<Layout>);

/// Unused places hold 1, so that equal geometries compare equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    rank: u8,
    dims: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
}

impl Geometry {
    /// Contiguous (row-major) sizes; at most six of them.
    pub fn contiguous(sizes: &[u64]) -> Self {
        debug_assert!(sizes.len() <= MAX_RANK);
        let mut g = Layout { rank: sizes.len() as u8, dims: [1; MAX_RANK], strides: [1; MAX_RANK] };
        let mut next = 1;
        for i in (0..sizes.len()).rev() {
            g.dims[i] = sizes[i];
            g.strides[i] = next;
            next = next.saturating_mul(sizes[i].max(1));
        }
        Self(Rc::new(g))
    }

    /// These sizes and strides; `None` where there are more than six, or not as many of both.
    pub fn strided(sizes: &[u64], strides: &[u64]) -> Option<Self> {
        if sizes.len() > MAX_RANK || sizes.len() != strides.len() {
            return None;
        }
        let mut g = Layout { rank: sizes.len() as u8, dims: [1; MAX_RANK], strides: [1; MAX_RANK] };
        g.dims[..sizes.len()].copy_from_slice(sizes);
        g.strides[..strides.len()].copy_from_slice(strides);
        Some(Self(Rc::new(g)))
    }

    /// Sizes.
    pub fn dims(&self) -> &[u64] {
        &self.0.dims[..usize::from(self.0.rank)]
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[u64] {
        &self.0.strides[..usize::from(self.0.rank)]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        usize::from(self.0.rank)
    }

    /// Number of elements; stops at 2^64 - 1, which is refused as too large later.
    pub fn numel(&self) -> u64 {
        self.dims().iter().fold(1, |n, &d| n.saturating_mul(d))
    }

    /// Number of elements that lie in memory: one for all that an expansion repeats.
    pub fn distinct(&self) -> u64 {
        let sizes = self.dims().iter().zip(self.strides());
        sizes.fold(1, |n, (&size, &stride)| if stride == 0 && size > 0 { n } else { n.saturating_mul(size) })
    }

    /// Size of dimension `i`; negative counts from the end.
    pub fn size(&self, i: isize) -> u64 {
        self.0.dims[self.axis(i)]
    }

    /// Index of dimension `i`; negative counts from the end.
    pub fn axis(&self, i: isize) -> usize {
        if i < 0 { (self.0.rank as isize + i) as usize } else { i as usize }
    }

    /// These sizes, contiguous, with the strides a fresh tensor has (those of size-1 dimensions may differ in a view).
    pub fn made_contiguous(&self) -> Self {
        let mut expected = 1;
        for i in (0..self.rank()).rev() {
            if self.0.strides[i] != expected {
                return Self::contiguous(self.dims());
            }
            expected = self.0.dims[i].max(1).saturating_mul(expected);
        }
        self.clone()
    }

    /// Row-major without gaps; strides of size-1 dimensions do not count.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for i in (0..self.rank()).rev() {
            if self.0.dims[i] != 1 {
                if self.0.strides[i] != expected {
                    return false;
                }
                expected = expected.saturating_mul(self.0.dims[i]);
            }
        }
        true
    }

    /// `is_non_overlapping_and_dense`: some permutation of it is contiguous.
    pub fn is_dense(&self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        let mut order: [usize; MAX_RANK] = [0, 1, 2, 3, 4, 5];
        let rank = self.rank();
        // Insertion sort by stride, size-1 dimensions last, as compute_non_overlapping_and_dense does.
        order[..rank].sort_by_key(|&i| if self.0.dims[i] < 2 { u64::MAX } else { self.0.strides[i] });
        let mut expected = 1;
        for &i in &order[..rank] {
            if self.0.dims[i] < 2 {
                return true;
            }
            if self.0.strides[i] != expected {
                return false;
            }
            expected = expected.saturating_mul(self.0.dims[i]);
        }
        true
    }

    /// Whether no other tensor was given this very geometry: handles of one tensor share theirs, a view is mostly made with one
    /// of its own.
    pub fn is_unshared(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Same sizes and, where a size exceeds 1, same strides: what `AccumulateGrad` asks before it steals a gradient.
    pub fn same_layout(&self, other: &Self) -> bool {
        self.dims() == other.dims()
            && (0..self.rank()).all(|i| self.0.dims[i] < 2 || self.0.strides[i] == other.0.strides[i])
    }

    /// `transpose(a, b)`.
    pub fn transposed(&self, a: isize, b: isize) -> Self {
        let (a, b) = (self.axis(a), self.axis(b));
        let mut g = *self.0;
        g.dims.swap(a, b);
        g.strides.swap(a, b);
        Self(Rc::new(g))
    }

    /// `permute(order)`.
    pub fn permuted(&self, order: &[usize]) -> Self {
        let mut g = *self.0;
        for (to, &from) in order.iter().enumerate() {
            (g.dims[to], g.strides[to]) = (self.0.dims[from], self.0.strides[from]);
        }
        Self(Rc::new(g))
    }

    /// `unsqueeze(at)`.
    pub fn unsqueezed(&self, at: isize) -> Self {
        let at = if at < 0 { (self.0.rank as isize + 1 + at) as usize } else { at as usize };
        let stride = if at < self.rank() { self.0.dims[at].saturating_mul(self.0.strides[at]) } else { 1 };
        let mut g = *self.0;
        g.rank += 1;
        for i in (at + 1..usize::from(g.rank)).rev() {
            g.dims[i] = self.0.dims[i - 1];
            g.strides[i] = self.0.strides[i - 1];
        }
        g.dims[at] = 1;
        g.strides[at] = stride;
        Self(Rc::new(g))
    }

    /// `squeeze(at)` of a dimension of size 1.
    pub fn squeezed(&self, at: isize) -> Self {
        let at = self.axis(at);
        let mut g = *self.0;
        for i in at..self.rank() - 1 {
            g.dims[i] = self.0.dims[i + 1];
            g.strides[i] = self.0.strides[i + 1];
        }
        g.rank -= 1;
        let end = usize::from(g.rank);
        (g.dims[end], g.strides[end]) = (1, 1);
        Self(Rc::new(g))
    }

    /// `narrow(axis, start, length)` / slicing with step 1.
    pub fn narrowed(&self, axis: isize, length: u64) -> Self {
        let mut g = *self.0;
        g.dims[self.axis(axis)] = length;
        Self(Rc::new(g))
    }

    /// Every `step`-th element of `axis`, from the first or a later one.
    pub fn stepped(&self, axis: isize, step: u64) -> Self {
        let mut g = *self.0;
        let axis = self.axis(axis);
        g.dims[axis] = g.dims[axis].div_ceil(step);
        g.strides[axis] = g.strides[axis].saturating_mul(step);
        Self(Rc::new(g))
    }

    /// `view_as_complex`: a last dimension of two is one number, of twice the width.
    pub fn paired(&self) -> Self {
        let mut g = *self.squeezed(-1).0;
        for stride in g.strides.iter_mut().take(usize::from(g.rank)) {
            *stride /= 2;
        }
        Self(Rc::new(g))
    }

    /// `view_as_real`: every number is a last dimension of two, of half its width.
    pub fn unpaired(&self) -> Self {
        let mut g = *self.0;
        let rank = self.rank();
        for stride in g.strides.iter_mut().take(rank) {
            *stride = stride.saturating_mul(2);
        }
        (g.dims[rank], g.strides[rank]) = (2, 1);
        g.rank += 1;
        Self(Rc::new(g))
    }

    /// `select(axis, _)`: the dimension goes.
    pub fn selected(&self, axis: isize) -> Self {
        let mut g = *self.0;
        g.dims[self.axis(axis)] = 1;
        Self(Rc::new(g)).squeezed(axis)
    }

    /// `expand(sizes)`: sizes of 1 grow with stride 0; leading dimensions may be added.
    pub fn expanded(&self, sizes: &[u64]) -> Self {
        let mut g = Layout { rank: sizes.len() as u8, dims: [1; MAX_RANK], strides: [1; MAX_RANK] };
        let offset = sizes.len() - self.rank();
        for (i, &size) in sizes.iter().enumerate() {
            (g.dims[i], g.strides[i]) = (size, 0);
            if i >= offset && (self.0.dims[i - offset] == size) {
                g.strides[i] = self.0.strides[i - offset];
            }
        }
        Self(Rc::new(g))
    }

    /// `view(sizes)` where it is possible without a copy (`at::detail::computeStride`).
    pub fn viewed(&self, sizes: &[u64]) -> Option<Self> {
        if self.dims() == sizes {
            return Some(self.clone());
        }
        if self.is_contiguous() {
            return Some(Self::contiguous(sizes));
        }
        if self.numel() == 0 {
            return None;
        }
        let mut g = Layout { rank: sizes.len() as u8, dims: [1; MAX_RANK], strides: [1; MAX_RANK] };
        g.dims[..sizes.len()].copy_from_slice(sizes);
        let mut view_d = sizes.len() as isize - 1;
        let mut chunk_base = self.0.strides[self.rank() - 1];
        let (mut old_numel, mut new_numel): (u64, u64) = (1, 1);
        for d in (0..self.rank()).rev() {
            old_numel = self.0.dims[d].saturating_mul(old_numel);
            let chunk_ends =
                d == 0 || (self.0.dims[d - 1] != 1 && self.0.strides[d - 1] != chunk_base.saturating_mul(old_numel));
            if chunk_ends {
                while view_d >= 0 && (new_numel < old_numel || sizes[view_d as usize] == 1) {
                    g.strides[view_d as usize] = chunk_base.saturating_mul(new_numel);
                    new_numel = sizes[view_d as usize].saturating_mul(new_numel);
                    view_d -= 1;
                }
                if new_numel != old_numel {
                    return None;
                }
                if d > 0 {
                    chunk_base = self.0.strides[d - 1];
                    old_numel = 1;
                    new_numel = 1;
                }
            }
        }
        (view_d == -1).then(|| Self(Rc::new(g)))
    }

    /// The geometry of a fresh tensor with `preserve_format`: these strides where dense, else what an elementwise op
    /// would give.
    pub fn preserved(&self) -> Self {
        if self.is_dense() { self.clone() } else { Self::elementwise(&[self]) }
    }

    /// Sizes two shapes broadcast to.
    pub fn broadcast_dims(a: &Self, b: &Self) -> ([u64; MAX_RANK], usize) {
        let rank = a.rank().max(b.rank());
        let mut out = [1; MAX_RANK];
        for (i, slot) in out.iter_mut().enumerate().take(rank) {
            let x = (i + a.rank()).checked_sub(rank).map_or(1, |k| a.0.dims[k]);
            let y = (i + b.rank()).checked_sub(rank).map_or(1, |k| b.0.dims[k]);
            *slot = if x == 1 { y } else { x };
        }
        (out, rank)
    }

    /// The output geometry `TensorIterator` gives an elementwise op over `operands` (one or two of them).
    pub fn elementwise(operands: &[&Self]) -> Self {
        let (dims, rank) = match operands {
            [a] => (a.0.dims, a.rank()),
            [a, b] => Self::broadcast_dims(a, b),
            _ => unreachable!("elementwise ops have one or two operands that decide the layout"),
        };
        let same_shape = operands.iter().all(|o| o.dims() == &dims[..rank]);
        if same_shape && operands.iter().all(|o| o.is_contiguous()) {
            return operands[0].made_contiguous();
        }
        if same_shape && operands.iter().all(|o| o.is_dense() && o.strides() == operands[0].strides()) {
            return (*operands[0]).clone();
        }
        // reorder_dimensions(): insertion sort of the dimensions, fastest first, over the operands' strides; a
        // broadcast dimension (stride 0) has no say.
        let stride = |o: &Self, dim: usize| -> u64 {
            match (dim + o.rank()).checked_sub(rank) {
                Some(k) if o.0.dims[k] != 1 || dims[dim] == 1 => o.0.strides[k],
                _ => 0,
            }
        };
        let compare = |a: usize, b: usize| -> i8 {
            for o in operands {
                let (x, y) = (stride(o, a), stride(o, b));
                if x == 0 || y == 0 {
                    continue;
                }
                if x != y {
                    return if x < y { -1 } else { 1 };
                }
                if dims[a] > dims[b] {
                    return 1;
                }
            }
            0
        };
        let mut perm: [usize; MAX_RANK] = [0; MAX_RANK];
        for (i, p) in perm.iter_mut().enumerate().take(rank) {
            *p = rank - 1 - i;
        }
        for i in 1..rank {
            let mut dim1 = i;
            for dim0 in (0..i).rev() {
                match compare(perm[dim0], perm[dim1]) {
                    1 => {
                        perm.swap(dim0, dim1);
                        dim1 = dim0;
                    }
                    -1 => break,
                    _ => {}
                }
            }
        }
        let mut g = Layout { rank: rank as u8, dims, strides: [1; MAX_RANK] };
        let mut next = 1;
        for &d in &perm[..rank] {
            g.strides[d] = next;
            next = next.saturating_mul(dims[d]);
        }
        Self(Rc::new(g))
    }
}

#[cfg(test)]
mod tests {
    use super::Geometry;

    #[test]
    fn heads_view_and_transpose_keep_their_memory_order_through_broadcasting() {
        let heads = Geometry::contiguous(&[2, 128, 8, 64]).transposed(1, 2);
        let cos = Geometry::contiguous(&[1, 1, 128, 64]);
        let product = Geometry::elementwise(&[&heads, &cos]);
        assert_eq!(product.dims(), [2, 8, 128, 64]);
        assert_eq!(product.strides(), heads.strides());
        // ... so going back to [batch, seq, heads, dim] is free.
        assert!(product.transposed(1, 2).is_contiguous());
    }

    #[test]
    fn a_view_merges_only_adjacent_dimensions() {
        let g = Geometry::contiguous(&[2, 3, 4]);
        assert!(g.viewed(&[6, 4]).is_some());
        assert!(g.transposed(0, 1).viewed(&[6, 4]).is_none());
        assert!(g.transposed(0, 1).viewed(&[3, 2, 2, 2]).is_some());
    }

    #[test]
    fn expanded_and_narrowed_tensors_are_not_dense() {
        let g = Geometry::contiguous(&[2, 1, 4]);
        assert!(!g.expanded(&[2, 3, 4]).is_dense());
        assert!(!Geometry::contiguous(&[2, 8]).narrowed(1, 4).is_dense());
        assert!(Geometry::contiguous(&[2, 8]).transposed(0, 1).is_dense());
    }

    #[test]
    fn unsqueeze_and_squeeze_are_inverse() {
        let g = Geometry::contiguous(&[5, 7]);
        assert_eq!(g.unsqueezed(1).dims(), [5, 1, 7]);
        assert_eq!(g.unsqueezed(1).squeezed(1), g);
        assert_eq!(g.unsqueezed(-1).dims(), [5, 7, 1]);
    }
}
