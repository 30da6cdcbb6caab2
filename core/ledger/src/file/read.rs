//! From the columns of a file to a ledger, with everything checked.

use std::borrow::Cow;

use plimsoll_ground::{Error, Result};

use super::columns::WorkColumns;
use super::columns::{EventColumns, File, LaunchColumns, LawColumns, ModuleColumns, PhaseColumns, StorageColumns};
use super::{FORMAT, VERSION};
use crate::{
    DType, Event, GradFnId, Kind, Launch, Law, Ledger, ModuleId, Modules, Names, OpId, OpSet, Owner, PhaseMark,
    ShapeId, Shapes, Storage, Stream, What, Work, WorkId,
};

/// The most text that is read: the ledger of a model of 126 layers takes some ten million bytes.
pub const MOST_TEXT: u64 = 1 << 27;
/// The most bytes of one storage (1 PiB).
const LARGEST_STORAGE: u64 = 1 << 50;
/// The most bytes of all storages together (4 EiB): sums of them, whatever their order, stay below 2^64.
const LARGEST_SUM: u64 = 1 << 62;
/// The longest name.
const LONGEST_NAME: usize = 256;
/// The longest name of a module, the deepest that modules lie within one another, and the most of them: paths are made of all.
const LONGEST_MODULE: usize = 64;
const DEEPEST: u32 = 32;
const MOST_MODULES: usize = 1 << 17;
/// The most phases: a run has some dozens.
const MOST_PHASES: usize = 1 << 12;
/// The most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 64;

/// What is wrong with a file, in one of its columns.
pub fn wrong(column: &str, problem: impl Into<String>) -> Error {
    let key = if column.is_empty() { "ledger".to_owned() } else { format!("ledger.{column}") };
    Error::new(key, problem, "write it again with `plimsoll estimate SCENARIO --ledger FILE`")
}

/// The ledger of these columns.
pub fn ledger(file: File) -> Result<Ledger> {
    if file.format != FORMAT {
        return Err(wrong("format", format!("it is {:?}, not {FORMAT:?}", cut(&file.format))));
    }
    if file.version == 0 || file.version > VERSION {
        let problem = format!("it is {}, and this program reads up to {VERSION}", file.version);
        return Err(Error::new("ledger.version", problem, "read it with the program that wrote it, or a newer one"));
    }
    let ops = names("ops", file.ops)?;
    let grad_fns = names("grad_fns", file.grad_fns)?;
    let kinds = known("kinds", &file.kinds, &Kind::ALL, Kind::name)?;
    let dtypes = known("dtypes", &file.dtypes, &DType::ALL, DType::name)?;
    let modules = modules(file.modules)?;
    let shapes = shapes(&file.shapes)?;
    let tables = Tables {
        ops: ops.len(),
        grad_fns: grad_fns.len(),
        kinds,
        dtypes,
        modules: modules.len(),
        shapes: shapes.len(),
    };
    let storages = tables.storages(&file.storages)?;
    let events = events(&file.events, storages.len())?;
    let works = tables.works(&file.works)?;
    let launches = launches(&file.launches, events.len(), works.len())?;
    let phases = phases(&file.phases, events.len(), launches.len())?;
    let laws = laws(&file.laws, storages.len())?;
    for id in &file.trained {
        within("trained", *id, storages.len())?;
    }
    for after in &file.emptied {
        within("emptied", *after, events.len().saturating_add(1))?;
    }
    let mut ran = OpSet::default();
    works.iter().for_each(|work| ran.insert(work.op));
    Ok(Ledger {
        storages,
        events,
        phases,
        launches,
        works,
        ran,
        laws,
        shapes,
        modules,
        ops,
        grad_fns,
        parameters: file.parameters,
        trained: file.trained,
        handed: Vec::new(),
        emptied: file.emptied,
        host: None,
    })
}

/// How many rows there are of what columns refer to by number.
struct Tables {
    ops: usize,
    grad_fns: usize,
    kinds: Vec<Kind>,
    dtypes: Vec<DType>,
    modules: usize,
    shapes: usize,
}

impl Tables {
    fn storages(&self, columns: &StorageColumns) -> Result<Vec<Storage>> {
        let StorageColumns { bytes, kind, dtype, op, grad_fn, module, shape, owner } = columns;
        let count = bytes.len();
        let lengths = [kind.len(), dtype.len(), op.len(), grad_fn.len(), module.len(), shape.len(), owner.len()];
        same_length("storages", count, &lengths)?;
        if u32::try_from(count).is_err() {
            return Err(wrong("storages", format!("there are {count}, which is too many")));
        }
        let mut sum = 0u64;
        let storage = |row: usize| -> Result<Storage> {
            let size = bytes[row];
            sum = sum.saturating_add(size);
            if size > LARGEST_STORAGE || sum > LARGEST_SUM {
                return Err(wrong(
                    "storages.bytes",
                    format!("row {row} has {size}, which is more than any card holds"),
                ));
            }
            within("storages.op", op[row], self.ops)?;
            within("storages.grad_fn", grad_fn[row], self.grad_fns)?;
            within("storages.module", module[row], self.modules)?;
            within("storages.shape", shape[row], self.shapes)?;
            let owner = match owner[row] {
                Some(id) => {
                    within("storages.owner", id, count)?;
                    Owner::new(id)
                }
                None => None,
            };
            Ok(Storage {
                bytes: size,
                module: ModuleId::new(module[row]),
                shape: ShapeId(shape[row]),
                owner,
                op: OpId(op[row]),
                grad_fn: GradFnId(grad_fn[row]),
                kind: of(&self.kinds, "storages.kind", kind[row])?,
                dtype: of(&self.dtypes, "storages.dtype", dtype[row])?,
            })
        };
        (0..count).map(storage).collect()
    }

    fn works(&self, columns: &WorkColumns) -> Result<Vec<Work>> {
        let WorkColumns { op, dtype, flops, read, written } = columns;
        same_length("works", op.len(), &[dtype.len(), flops.len(), read.len(), written.len()])?;
        let work = |row: usize| -> Result<Work> {
            within("works.op", op[row], self.ops)?;
            let dtype = of(&self.dtypes, "works.dtype", dtype[row])?;
            Ok(Work { op: OpId(op[row]), dtype, flops: flops[row], read: read[row], written: written[row] })
        };
        (0..op.len()).map(work).collect()
    }
}

/// A text as it may be shown: the beginning of it.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

fn same_length(table: &str, rows: usize, columns: &[usize]) -> Result<()> {
    match columns.iter().find(|length| **length != rows) {
        Some(length) => Err(wrong(table, format!("one column has {rows} rows, another {length}"))),
        None => Ok(()),
    }
}

fn within(column: &str, number: impl Into<u64>, rows: usize) -> Result<()> {
    let number = number.into();
    if number < rows as u64 {
        return Ok(());
    }
    Err(wrong(column, format!("it refers to row {number} of {rows}")))
}

fn of<T: Copy>(table: &[T], column: &str, number: u8) -> Result<T> {
    within(column, number, table.len())?;
    Ok(table[usize::from(number)])
}

/// Names without what a terminal would take for a command.
fn plain(column: &str, name: &str) -> Result<()> {
    if name.len() <= LONGEST_NAME && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(wrong(column, format!("{:?} is no name", cut(name))))
}

fn names(column: &str, names: Vec<String>) -> Result<Names> {
    if names.len() > usize::from(u16::MAX) {
        return Err(wrong(column, format!("there are {} names", names.len())));
    }
    names.iter().try_for_each(|name| plain(column, name))?;
    Ok(Names::own(names))
}

/// The rows of a table of ours that a file names.
fn known<T: Copy>(column: &str, names: &[String], all: &[T], name: impl Fn(T) -> &'static str) -> Result<Vec<T>> {
    let find = |wanted: &String| {
        let found = all.iter().copied().find(|row| name(*row) == wanted);
        found.ok_or_else(|| wrong(column, format!("{:?} is not known", cut(wanted))))
    };
    if names.len() > usize::from(u8::MAX) {
        return Err(wrong(column, format!("there are {} names", names.len())));
    }
    names.iter().map(find).collect()
}

fn modules(columns: ModuleColumns) -> Result<Modules> {
    let ModuleColumns { parent, name, item } = columns;
    same_length("modules", parent.len(), &[name.len(), item.len()])?;
    if parent.first() != Some(&0) || name.first().is_some_and(|name| !name.is_empty()) {
        return Err(wrong("modules", "the first is not the root"));
    }
    if parent.len() > MOST_MODULES {
        return Err(wrong("modules", format!("there are {}, and at most {MOST_MODULES} are read", parent.len())));
    }
    let mut modules = Modules::default();
    let mut depths = vec![0];
    for (row, (name, item)) in name.into_iter().zip(item).enumerate().skip(1) {
        plain("modules.name", &name)?;
        if name.len() > LONGEST_MODULE {
            return Err(wrong("modules.name", format!("row {row} has more than {LONGEST_MODULE} bytes")));
        }
        within("modules.parent", parent[row], row)?;
        let depth = depths[parent[row] as usize] + 1;
        if depth > DEEPEST {
            return Err(wrong("modules.parent", format!("row {row} lies more than {DEEPEST} modules deep")));
        }
        depths.push(depth);
        modules.add(ModuleId::new(parent[row]), Cow::Owned(name), item);
    }
    Ok(modules)
}

fn shapes(rows: &[Vec<u64>]) -> Result<Shapes> {
    let mut shapes = Shapes::default();
    for (row, sizes) in rows.iter().enumerate() {
        if sizes.len() > MOST_DIMENSIONS {
            return Err(wrong("shapes", format!("row {row} has {} dimensions", sizes.len())));
        }
        shapes.add(sizes);
    }
    Ok(shapes)
}

/// Every storage comes at most once, and goes only after it came, on the same stream.
fn events(columns: &EventColumns, storages: usize) -> Result<Vec<Event>> {
    let EventColumns { storage, stream } = columns;
    if !stream.is_empty() {
        same_length("events", storage.len(), &[stream.len()])?;
    }
    if storage.len() > 2 * storages {
        return Err(wrong("events", format!("there are {} for {storages} storages", storage.len())));
    }
    let mut alive: Vec<Option<(Stream, bool)>> = vec![None; storages];
    let event = |(row, signed): (usize, &i64)| {
        let (what, id) = if *signed < 0 { (What::Free, !*signed) } else { (What::Alloc, *signed) };
        within("events.storage", id.unsigned_abs(), storages)?;
        let stream = Stream::new(stream.get(row).copied().unwrap_or(0));
        let state = &mut alive[id as usize];
        match (what, *state) {
            (What::Alloc, None) => *state = Some((stream, true)),
            (What::Free, Some((born, true))) if born == stream => *state = Some((stream, false)),
            (What::Alloc, _) => return Err(wrong("events.storage", format!("row {row}: storage {id} comes twice"))),
            (What::Free, _) => {
                let problem = format!("row {row}: storage {id} goes where it is not, or on another stream");
                return Err(wrong("events.storage", problem));
            }
        }
        Ok(Event::new(what, id as u32, stream))
    };
    storage.iter().enumerate().map(event).collect()
}

fn launches(columns: &LaunchColumns, events: usize, works: usize) -> Result<Vec<Launch>> {
    same_length("launches", columns.events.len(), &[columns.work.len()])?;
    let mut at = 0u64;
    let launch = |(since, work): (&u32, &u32)| {
        at = at.saturating_add(u64::from(*since));
        within("launches.events", at, events + 1)?;
        within("launches.work", *work, works)?;
        Ok(Launch { at: at as u32, work: WorkId(*work) })
    };
    columns.events.iter().zip(&columns.work).map(launch).collect()
}

fn phases(columns: &PhaseColumns, events: usize, launches: usize) -> Result<Vec<PhaseMark>> {
    let PhaseColumns { name, step, micro_batch, event, launch } = columns;
    same_length("phases", name.len(), &[step.len(), micro_batch.len(), event.len(), launch.len()])?;
    if event.first().is_some_and(|first| *first != 0) || (event.is_empty() && events > 0) {
        return Err(wrong("phases.event", "the first phase does not begin with the first event"));
    }
    if name.len() > MOST_PHASES {
        return Err(wrong("phases", format!("there are {}, and at most {MOST_PHASES} are read", name.len())));
    }
    let mut before = (0, 0);
    let mark = |row: usize| {
        within("phases.event", event[row], events + 1)?;
        within("phases.launch", launch[row], launches + 1)?;
        if (event[row] < before.0) || (launch[row] < before.1) {
            return Err(wrong("phases", format!("row {row} begins before the one above it")));
        }
        before = (event[row], launch[row]);
        Ok(PhaseMark {
            at: event[row] as usize,
            launch: launch[row] as usize,
            name: name[row],
            step: step[row],
            micro_batch: micro_batch[row],
        })
    };
    (0..name.len()).map(mark).collect()
}

fn laws(columns: &LawColumns, storages: usize) -> Result<Vec<Law>> {
    let LawColumns { storage, count, rule } = columns;
    same_length("laws", storage.len(), &[count.len(), rule.len()])?;
    let law = |row: usize| {
        within("laws.storage", storage[row], storages)?;
        if !rule[row].is_possible() {
            return Err(wrong("laws.rule", format!("row {row} is what no card runs")));
        }
        Ok(Law { storage: storage[row], count: count[row], rule: rule[row] })
    };
    (0..storage.len()).map(law).collect()
}
