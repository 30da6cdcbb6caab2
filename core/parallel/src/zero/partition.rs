//! Where the parameters of a flat buffer lie, and which parts of them a rank owns.

/// A flat buffer of parameters, one behind the other, cut evenly over the cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where each parameter begins.
    begins: Vec<u64>,
    /// Numbers of each parameter.
    numels: Vec<u64>,
    /// Numbers of the whole buffer, its end padded.
    pub total: u64,
    /// Numbers of one rank's part.
    pub part: u64,
}

impl Layout {
    /// Of parameters of these sizes over `ranks` cards; the whole is a multiple of `alignment`.
    pub fn new(numels: Vec<u64>, ranks: u64, alignment: u64) -> Self {
        let mut total = 0u64;
        let mut begins = Vec::with_capacity(numels.len());
        for numel in &numels {
            begins.push(total);
            total = total.saturating_add(*numel);
        }
        let alignment = alignment.max(1);
        let total = total.div_ceil(alignment).saturating_mul(alignment);
        Self { begins, numels, total, part: total / ranks.max(1) }
    }

    /// Numbers of padding at the end.
    pub fn padding(&self) -> u64 {
        let last = self.begins.last().zip(self.numels.last()).map_or(0, |(begin, numel)| begin.saturating_add(*numel));
        self.total.saturating_sub(last)
    }

    /// Whether a part of this parameter belongs to the first rank.
    pub fn is_first_ranks(&self, index: usize) -> bool {
        self.begins.get(index).is_some_and(|begin| *begin < self.part)
    }

    /// The first rank's parts of parameters.
    pub fn first_ranks(&self) -> impl Iterator<Item = u64> {
        let places = self.begins.iter().zip(&self.numels);
        places.take_while(|(begin, _)| **begin < self.part).map(|(begin, numel)| (*numel).min(self.part - begin))
    }

    /// All numbers of the parameters of which the first rank has a part.
    pub fn first_ranks_whole(&self) -> u64 {
        let places = self.begins.iter().zip(&self.numels);
        places.take_while(|(begin, _)| **begin < self.part).fold(0, |sum, (_, numel)| sum.saturating_add(*numel))
    }

    /// The parts of these parameters by rank, those that follow one another on one rank as one.
    pub fn slices(&self, of: &[usize]) -> Vec<u64> {
        let (mut slices, mut last): (Vec<u64>, Option<u64>) = (Vec::new(), None);
        let part = self.part.max(1);
        for index in of {
            let (Some(begin), Some(numel)) = (self.begins.get(*index), self.numels.get(*index)) else { continue };
            let end = begin.saturating_add(*numel);
            let mut at = *begin;
            while at < end {
                let rank = at / part;
                let next = rank.saturating_add(1).saturating_mul(part).min(end);
                match slices.last_mut().filter(|_| last == Some(rank)) {
                    Some(slice) => *slice = slice.saturating_add(next - at),
                    None => slices.push(next - at),
                }
                last = Some(rank);
                at = next;
            }
        }
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn parameters_are_cut_where_a_rank_ends() {
        let layout = Layout::new(vec![10, 3, 4], 2, 4);
        assert_eq!((layout.total, layout.part, layout.padding()), (20, 10, 3));
        assert_eq!(layout.first_ranks().collect::<Vec<u64>>(), [10]);
        let layout = Layout::new(vec![3, 10, 4], 2, 4);
        assert_eq!(layout.first_ranks().collect::<Vec<u64>>(), [3, 7]);
        assert_eq!(layout.first_ranks_whole(), 13);
        assert_eq!(layout.slices(&[2, 1]), [4, 7, 3]);
        assert_eq!(layout.slices(&[1, 2]), [7, 7], "what follows on one rank is one");
        assert!(layout.is_first_ranks(1) && !layout.is_first_ranks(2));
    }
}
