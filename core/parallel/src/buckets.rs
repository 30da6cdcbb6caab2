//! Which tensors share a bucket: `compute_bucket_assignment_by_size` (`torch/csrc/distributed/c10d/reducer.cpp`).

use plimsoll_torch::tensor::DType;

use crate::broadcast::Sent;

/// A bucket in the making: its type, its members, their bytes, and which limit it goes by.
struct Open {
    dtype: DType,
    members: Vec<usize>,
    bytes: u64,
    limit: usize,
}

/// Buckets of `tensors`, which are taken one after the other; a bucket closes when it has reached its limit, and the next one
/// of its type goes by the next limit, or the last. `order` are the tensors' own numbers where they are not taken in the order
/// in which they were registered; else buckets come in the order of their first members.
pub fn assign(tensors: &[Sent], limits: &[u64], order: Option<&[usize]>) -> Vec<Vec<usize>> {
    let mut open: Vec<Open> = Vec::new();
    let mut closed: Vec<Vec<usize>> = Vec::new();
    for (place, sent) in tensors.iter().enumerate() {
        let number = order.map_or(Some(place), |order| order.get(place).copied()).unwrap_or(place);
        let at = open.iter().position(|bucket| bucket.dtype == sent.dtype).unwrap_or_else(|| {
            open.push(Open { dtype: sent.dtype, members: Vec::new(), bytes: 0, limit: 0 });
            open.len() - 1
        });
        let bucket = &mut open[at];
        bucket.members.push(number);
        bucket.bytes = bucket.bytes.saturating_add(sent.bytes());
        let limit = limits.get(bucket.limit).copied().unwrap_or(u64::MAX);
        if bucket.bytes >= limit {
            closed.push(std::mem::take(&mut bucket.members));
            bucket.bytes = 0;
            bucket.limit = (bucket.limit + 1).min(limits.len().saturating_sub(1));
        }
    }
    // What is left is in an `unordered_map`, which libstdc++ walks from the key that was inserted last.
    closed.extend(open.into_iter().rev().map(|bucket| bucket.members).filter(|members| !members.is_empty()));
    if order.is_none() {
        closed.sort_by_key(|members| members.iter().copied().min());
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(numel: u64, dtype: DType) -> Sent {
        Sent { numel, dtype }
    }

    #[test]
    fn a_bucket_closes_when_it_has_reached_its_limit() {
        let tensors = [10, 10, 10, 100, 1].map(|n| sent(n, DType::Float32));
        assert_eq!(assign(&tensors, &[40, 80], None), [vec![0], vec![1, 2], vec![3], vec![4]]);
        assert_eq!(assign(&tensors, &[u64::MAX], None), [vec![0, 1, 2, 3, 4]]);
        assert_eq!(assign(&tensors, &[50, 400], Some(&[4, 3, 2, 1, 0])), [vec![4, 3], vec![2, 1], vec![0]]);
    }

    #[test]
    fn types_do_not_share_a_bucket() {
        let tensors = [sent(10, DType::BFloat16), sent(10, DType::Float32), sent(10, DType::BFloat16)];
        assert_eq!(assign(&tensors, &[1000], None), [vec![0, 2], vec![1]]);
    }
}
