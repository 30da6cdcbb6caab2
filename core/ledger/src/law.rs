//! Storages whose size is no line over the micro-batch, and what it is instead.
//!
//! Nearly every storage grows evenly with the micro-batch: a fixed part, and one for each sample. Where a kernel rounds, or
//! where it makes no more rows than there are, whoever makes the storage says so.

/// How a storage's size follows from another one's.
///
/// An embedding's backward over many tokens sums rows of its gradient in parts: one part for every ten tokens and one for
/// every row that occurs. A tenth of the tokens is rounded down, and no more rows occur than the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// The storage it is about.
    pub storage: u32,
    /// The storage that holds one 8-byte number a token.
    pub tokens: u32,
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of a row or part.
    pub unit: u64,
    /// Tokens for which there is one part more; 0 where there is none.
    pub tokens_per_part: u64,
}

impl Law {
    /// How many tokens a storage of 8-byte numbers holds.
    pub const fn tokens(bytes: u64) -> u64 {
        bytes / 8
    }

    /// Its bytes for so many tokens.
    pub const fn bytes(&self, tokens: u64) -> u64 {
        let rows = if tokens < self.rows { tokens } else { self.rows };
        let parts = match tokens.checked_div(self.tokens_per_part) {
            Some(parts) => parts,
            None => 0,
        };
        self.unit.saturating_mul(parts.saturating_add(rows))
    }

    /// Puts right what `sizes` say of storages with a law, where those of the tokens are right already.
    pub fn patch(laws: &[Self], sizes: &mut [u64]) {
        for law in laws {
            sizes[law.storage as usize] = law.bytes(Self::tokens(sizes[law.tokens as usize]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Law;

    #[test]
    fn rows_end_where_the_table_does_and_parts_are_whole() {
        let law = Law { storage: 1, tokens: 0, rows: 100, unit: 8, tokens_per_part: 10 };
        assert_eq!(law.bytes(59), 8 * (5 + 59));
        assert_eq!(law.bytes(1005), 8 * (100 + 100));
        let plain = Law { tokens_per_part: 0, ..law };
        assert_eq!((plain.bytes(59), plain.bytes(1005)), (8 * 59, 8 * 100));
        let mut sizes = [1005 * 8, 7];
        Law::patch(&[law], &mut sizes);
        assert_eq!(sizes, [1005 * 8, 1600]);
    }
}
