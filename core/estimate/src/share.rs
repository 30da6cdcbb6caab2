//! Parts of sizes, in whole numbers: a size takes all of 64 bits.

use plimsoll_ground::Bytes;

/// It, times one over the other.
pub fn scaled(bytes: Bytes, times: u64, over: u64) -> Bytes {
    let product = u128::from(bytes.get()) * u128::from(times);
    Bytes::new(u64::try_from(product / u128::from(over.max(1))).unwrap_or(u64::MAX))
}

/// So many thousandths of it.
pub fn thousandths(bytes: Bytes, number: u64) -> Bytes {
    scaled(bytes, number, 1000)
}
