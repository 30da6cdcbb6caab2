//! Numbers that look like chance and are the same every time.

/// A sequence of numbers (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of an input by its number: each can be made again alone, without those before it.
    pub const fn of(seed: u64, number: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014), so that neighbours have nothing in common.
        let mut z = seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Of 0 nothing would follow but 0.
        Self((z ^ (z >> 31)) | 1)
    }

    /// A number below `limit`, or 0 where there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(number).unwrap_or_default() % limit.max(1)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of some things.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_its_numbers_whatever_came_before() {
        let numbers = |number| {
            let mut chance = Chance::of(7, number);
            [chance.below(1000), chance.below(1000), chance.below(1000)]
        };
        assert_eq!(numbers(3), numbers(3));
        assert_ne!(numbers(3), numbers(4));
        assert_eq!(Chance::of(0, 0).below(0), 0);
        assert_eq!(Chance::of(0, 0).one_of::<u8>(&[]), None);
    }
}
