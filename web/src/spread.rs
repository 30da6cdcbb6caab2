//! Labels that must not touch: moves them apart as little as possible.

/// A run of labels that touch: the sum of where its members want the run to start, and their number.
struct Block {
    wish: f64,
    size: usize,
}

impl Block {
    fn start(&self, gap: f64, low: f64, high: f64) -> f64 {
        let room = (self.size.saturating_sub(1)) as f64 * gap;
        (self.wish / self.size as f64).min(high - room).max(low)
    }
}

/// New positions for `wishes`, in the same order, at least `gap` apart and within `low..=high`, with the least sum of
/// squared moves. When they cannot all fit they start at `low` and run over `high`.
pub fn spread(wishes: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = wishes.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));

    // Pool adjacent violators: a block that would touch the one before it joins it.
    let mut blocks: Vec<Block> = Vec::new();
    for &(_, wish) in &order {
        let mut block = Block { wish, size: 1 };
        while let Some(before) = blocks.pop() {
            let end = before.start(gap, low, high) + before.size as f64 * gap;
            if end <= block.start(gap, low, high) {
                blocks.push(before);
                break;
            }
            // Every member of `block` stands `before.size` gaps further from the joint start.
            let shift = (before.size * block.size) as f64 * gap;
            block = Block { wish: before.wish + block.wish - shift, size: before.size + block.size };
        }
        blocks.push(block);
    }

    let mut sorted = Vec::with_capacity(order.len());
    for block in &blocks {
        let start = block.start(gap, low, high);
        sorted.extend((0..block.size).map(|i| start + i as f64 * gap));
    }
    let mut placed = wishes.to_vec();
    for (&(index, _), position) in order.iter().zip(sorted) {
        if let Some(slot) = placed.get_mut(index) {
            *slot = position;
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::spread;

    #[test]
    fn what_is_apart_stays() {
        assert_eq!(spread(&[10.0, 90.0, 50.0], 20.0, 0.0, 100.0), [10.0, 90.0, 50.0]);
    }

    #[test]
    fn what_touches_moves_evenly() {
        assert_eq!(spread(&[50.0, 50.0], 20.0, 0.0, 100.0), [40.0, 60.0]);
        assert_eq!(spread(&[50.0, 50.0, 50.0], 20.0, 0.0, 100.0), [30.0, 50.0, 70.0]);
    }

    #[test]
    fn the_edges_hold() {
        assert_eq!(spread(&[-5.0, 0.0], 20.0, 0.0, 100.0), [0.0, 20.0]);
        assert_eq!(spread(&[100.0, 130.0], 20.0, 0.0, 100.0), [80.0, 100.0]);
    }

    proptest! {
        #[test]
        fn labels_never_touch_and_keep_their_order(wishes in prop::collection::vec(-50.0..450.0f64, 0..12)) {
            let placed = spread(&wishes, 24.0, 0.0, 400.0);
            prop_assert_eq!(placed.len(), wishes.len());
            for (i, a) in placed.iter().enumerate() {
                prop_assert!((-0.001..=400.001).contains(a));
                for (j, b) in placed.iter().enumerate().skip(i + 1) {
                    prop_assert!((a - b).abs() > 23.999);
                    if wishes[i] < wishes[j] {
                        prop_assert!(a < b);
                    }
                }
            }
        }
    }
}
