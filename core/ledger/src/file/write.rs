//! From a ledger to its columns.

use super::columns::{
    EventColumns, File, LaunchColumns, LawColumns, ModuleColumns, PhaseColumns, StorageColumns, WorkColumns,
};
use super::{FORMAT, VERSION};
use crate::{DType, Event, Kind, Ledger, Owner, ShapeId, Storage, Stream, Work};

/// The columns of a ledger.
pub fn file(ledger: &Ledger) -> File {
    let names = |names: &crate::Names| names.iter().map(str::to_owned).collect();
    let storages = &ledger.storages;
    let works = &ledger.works;
    let laws = &ledger.laws;
    let phases = &ledger.phases;
    File {
        format: FORMAT.to_owned(),
        version: VERSION,
        parameters: ledger.parameters,
        ops: names(&ledger.ops),
        grad_fns: names(&ledger.grad_fns),
        kinds: Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect(),
        dtypes: DType::ALL.iter().map(|dtype| dtype.name().to_owned()).collect(),
        modules: ModuleColumns {
            parent: ledger.modules.iter().map(|m| m.parent.index() as u32).collect(),
            name: ledger.modules.iter().map(|m| m.name.clone().into_owned()).collect(),
            item: ledger.modules.iter().map(|m| m.item).collect(),
        },
        shapes: (0..ledger.shapes.len() as u32).map(|shape| ledger.shapes.get(ShapeId(shape)).to_vec()).collect(),
        storages: StorageColumns {
            bytes: column(storages, |s: &Storage| s.bytes),
            kind: column(storages, |s| s.kind as u8),
            dtype: column(storages, |s| s.dtype as u8),
            op: column(storages, |s| s.op.0),
            grad_fn: column(storages, |s| s.grad_fn.0),
            module: column(storages, |s| s.module.index() as u32),
            shape: column(storages, |s| s.shape.0),
            owner: column(storages, |s| s.owner.map(Owner::parameter)),
        },
        events: EventColumns { storage: column(&ledger.events, signed), stream: streams(&ledger.events) },
        phases: PhaseColumns {
            name: column(phases, |mark| mark.name),
            step: column(phases, |mark| mark.step),
            micro_batch: column(phases, |mark| mark.micro_batch),
            event: column(phases, |mark| mark.at as u64),
            launch: column(phases, |mark| mark.launch as u64),
        },
        works: WorkColumns {
            op: column(works, |work: &Work| work.op.0),
            dtype: column(works, |work| work.dtype as u8),
            flops: column(works, |work| work.flops),
            read: column(works, |work| work.read),
            written: column(works, |work| work.written),
        },
        launches: LaunchColumns { events: between(ledger), work: column(&ledger.launches, |launch| launch.work.0) },
        laws: LawColumns {
            storage: column(laws, |law| law.storage),
            count: column(laws, |law| law.count),
            rule: column(laws, |law| law.rule),
        },
        trained: ledger.trained.clone(),
        emptied: ledger.emptied.clone(),
    }
}

fn column<R, T>(rows: &[R], value: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// A storage's id where it comes, -1 less its id where it goes.
fn signed(event: &Event) -> i64 {
    let id = i64::from(event.id());
    if event.is_free() { -1 - id } else { id }
}

fn streams(events: &[Event]) -> Vec<u8> {
    if events.iter().all(|event| event.stream() == Stream::DEFAULT) {
        return Vec::new();
    }
    column(events, |event| event.stream().number())
}

/// Events between each launch and the one before.
fn between(ledger: &Ledger) -> Vec<u32> {
    let mut before = 0;
    let since = |at: u32| at.saturating_sub(std::mem::replace(&mut before, at));
    ledger.launches.iter().map(|launch| launch.at).map(since).collect()
}
