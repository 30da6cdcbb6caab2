//! Work that falls into pieces, on as many threads as the machine has.

/// `work` of each item, in the items' order. What it answers must not depend on the other items: a grid has the same
/// bytes on one thread and on many, and in the browser there is but one.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    #[cfg(not(target_family = "wasm"))]
    if items.len() > 1 {
        return threaded(items, &work);
    }
    items.into_iter().map(work).collect()
}

#[cfg(not(target_family = "wasm"))]
fn threaded<T: Send, R: Send>(items: Vec<T>, work: &(impl Fn(T) -> R + Sync)) -> Vec<R> {
    use std::num::NonZero;
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    let helpers = thread::available_parallelism().map_or(1, NonZero::get).min(items.len()) - 1;
    let left = Mutex::new(items.into_iter().enumerate());
    let take = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let some = || {
        let mut done = Vec::new();
        while let Some((place, item)) = take() {
            done.push((place, work(item)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        // A system that has no thread to give leaves the work to this one.
        let others: Vec<_> =
            (0..helpers).map_while(|_| thread::Builder::new().spawn_scoped(scope, some).ok()).collect();
        let mut done = some();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn answers_come_in_the_order_of_the_items() {
        let squares = map((0..1000_u64).collect(), |n| n * n);
        assert!(squares.iter().enumerate().all(|(n, square)| *square == (n * n) as u64) && squares.len() == 1000);
        assert!(map(Vec::<u8>::new(), |n| n).is_empty());
    }
}
