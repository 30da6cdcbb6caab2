//! The driver's addresses: where a segment lies.

use std::collections::BTreeMap;

use super::free_list::MAX_ADDRESS;

/// What the driver has given out, in units of 512 bytes from its first.
///
/// What was given back is given out again before anything new, where it is large enough the first that is: a hollow card's driver does it
/// so. It decides between blocks of one size alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    next: u64,
    /// What was given back: where it begins, and how much it is.
    gaps: BTreeMap<u64, u64>,
    /// Whether from above.
    pub falling: bool,
}

impl Addresses {
    /// Whether there are so many more.
    pub fn has_room(&self, units: u64) -> bool {
        self.next + units <= MAX_ADDRESS
    }

    /// Where the next segment of so many lies.
    pub fn take(&mut self, units: u64) -> u64 {
        let fits = self.gaps.iter().find(|(_, len)| **len >= units).map(|(begin, len)| (*begin, *len));
        let begin = match fits {
            Some((begin, len)) => {
                self.gaps.remove(&begin);
                if len > units {
                    self.gaps.insert(begin + units, len - units);
                }
                begin
            }
            None => {
                let begin = self.next;
                self.next += units;
                begin
            }
        };
        self.turned(begin, units)
    }

    /// A segment goes back.
    pub fn give_back(&mut self, address: u64, units: u64) {
        let mut begin = self.turned(address, units);
        let mut len = units;
        if let Some(behind) = self.gaps.remove(&(begin + len)) {
            len += behind;
        }
        if let Some((&before, &size)) = self.gaps.range(..begin).next_back()
            && before + size == begin
        {
            begin = before;
            len += size;
        }
        if begin + len == self.next {
            self.gaps.remove(&begin);
            self.next = begin;
        } else {
            self.gaps.insert(begin, len);
        }
    }

    /// From below and from above.
    const fn turned(&self, begin: u64, units: u64) -> u64 {
        if self.falling { MAX_ADDRESS - begin - units } else { begin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_given_out_first() {
        for falling in [false, true] {
            let mut driver = Addresses { falling, ..Addresses::default() };
            let [a, b, c, d] = [4, 8, 4, 2].map(|units| driver.take(units));
            driver.give_back(b, 8);
            driver.give_back(a, 4);
            // Both lie beside one another.
            let again = driver.take(12);
            assert_eq!(again, if falling { b } else { a });
            driver.give_back(c, 4);
            assert_eq!((driver.take(2), driver.take(2)), if falling { (c + 2, c) } else { (c, c + 2) });
            driver.give_back(d, 2);
            assert_eq!(driver.take(1), if falling { d + 1 } else { d });
        }
    }
}
