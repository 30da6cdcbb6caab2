//! A recording of a whole model, whose sizes are learnt from recordings of the same with fewer of the modules that repeat in it.
//!
//! The program is the whole model's own: nothing of it is made up. Each of its storages is one of the shorter model's, which at the
//! point where both were recorded came of the same operator in the same place of a module, for the same element type, shape and
//! bytes; from there it has its expression. Modules of a list are alike where everything that comes in them is.

use std::collections::{BTreeMap, HashMap};

use super::kernel::Run;
use super::recording::{Apart, Recording};

/// What a storage comes as: the micro-batch, the module within the list's, operator, autograd's function, type, bytes, shape, what its
/// kernel was given.
type Come<'r> = (usize, &'r str, &'r str, &'r str, &'r str, u64, &'r [u64], Option<&'r Run>);

/// Storages of one place, in the order they come.
#[derive(Default)]
struct Place<'r> {
    come: Vec<Come<'r>>,
    storages: Vec<usize>,
}

/// Storages by list and place in it, and those of no list by the micro-batch and module they are of.
struct Places<'r> {
    listed: BTreeMap<(usize, u32), Place<'r>>,
    others: BTreeMap<(usize, &'r str), Place<'r>>,
}

/// The list that a module is in, its place there, and its name below that.
fn place<'n>(lists: &[(String, u32, Vec<u32>)], name: &'n str) -> Option<(usize, u32, &'n str)> {
    lists.iter().enumerate().find_map(|(list, (path, _, _))| {
        let rest = match path.is_empty() {
            true => name,
            false => name.strip_prefix(path.as_str())?.strip_prefix('.')?,
        };
        let (index, below) = rest.split_once('.').unwrap_or((rest, ""));
        index.parse().ok().map(|index| (list, index, below))
    })
}

impl<'r> Places<'r> {
    fn of(recording: &'r Recording, apart: &Apart, lists: &[(String, u32, Vec<u32>)]) -> Self {
        let mut places = Self { listed: BTreeMap::new(), others: BTreeMap::new() };
        let named: Vec<Option<(usize, u32, &str)>> = recording.modules.iter().map(|name| place(lists, name)).collect();
        let mut born = recording.storages.iter().enumerate();
        // What is loaded, and then micro-batch by micro-batch.
        let counts = [recording.loaded].into_iter().chain(apart.segments.iter().map(|segment| segment.born));
        for (part, count) in counts.enumerate() {
            for (storage, (bytes, shape, dtype, op, module, node)) in born.by_ref().take(count as usize) {
                let name = recording.modules.get(*module as usize).map_or("", String::as_str);
                let (place, below) = match named.get(*module as usize).copied().flatten() {
                    Some((list, index, below)) => (places.listed.entry((list, index)).or_default(), below),
                    None => (places.others.entry((part, name)).or_default(), name),
                };
                let run = recording.kernels.get(&(storage as u32));
                place.come.push((part, below, op, node, dtype, *bytes, shape, run));
                place.storages.push(storage);
            }
        }
        places
    }
}

/// For each storage of a whole model the one of the shorter that it goes by, where every one has one: both recorded at one point.
pub(super) fn matched(whole: (&Recording, &Apart), short: (&Recording, &Apart)) -> Option<Vec<usize>> {
    let lists = &whole.0.repeats;
    let (many, few) = (Places::of(whole.0, whole.1, lists), Places::of(short.0, short.1, lists));
    let mut alike: HashMap<(usize, &[Come<'_>]), &Place<'_>> = HashMap::new();
    for ((list, _), place) in &few.listed {
        alike.entry((*list, &place.come)).or_insert(place);
    }
    let count = many.listed.values().chain(many.others.values()).map(|place| place.storages.len()).sum();
    let mut matched = vec![usize::MAX; count];
    let listed = many.listed.iter().map(|((list, _), place)| (place, alike.get(&(*list, &place.come[..])).copied()));
    let others = many.others.iter().map(|(key, place)| (place, few.others.get(key)));
    for (place, other) in listed.chain(others) {
        let other = other.filter(|other| other.come == place.come)?;
        for (storage, by) in place.storages.iter().zip(&other.storages) {
            *matched.get_mut(*storage)? = *by;
        }
    }
    Some(matched)
}
