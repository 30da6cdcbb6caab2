//! Two histories of the same program, request by request: where they part.

use plimsoll_ground::Bytes;
use serde::Serialize;

use crate::read::{Action, Device, Entry, Snapshot};

/// Requests of one kind in two histories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parting {
    /// How many the one has.
    pub one: u64,
    /// How many the other has.
    pub other: u64,
    /// How many are equal, to the byte, from the first on.
    pub equal: u64,
    /// What the one asks for where they part; absent where it has no more, or they never part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_of_one: Option<Request>,
    /// What the other asks for there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_of_other: Option<Request>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// How much.
    pub bytes: Bytes,
    /// Who asked, in a few words.
    pub by: String,
}

impl Parting {
    /// What tensors asked for, in order.
    pub fn of_tensors(one: (&Snapshot, &Device), other: (&Snapshot, &Device)) -> Self {
        Self::of(one, other, Action::Alloc)
    }

    /// What the allocator asked the driver for, in order.
    pub fn of_segments(one: (&Snapshot, &Device), other: (&Snapshot, &Device)) -> Self {
        Self::of(one, other, Action::SegmentAlloc)
    }

    fn of(one: (&Snapshot, &Device), other: (&Snapshot, &Device), action: Action) -> Self {
        let entries = |device: &'_ Device| -> Vec<Entry> {
            device.trace.iter().filter(|entry| entry.action == action).copied().collect()
        };
        let (mine, theirs) = (entries(one.1), entries(other.1));
        let equal = mine.iter().zip(&theirs).take_while(|(a, b)| a.size == b.size).count();
        let request =
            |snapshot: &Snapshot, entry: &Entry| Request { bytes: entry.size, by: snapshot.origin(entry.stack) };
        Self {
            one: mine.len() as u64,
            other: theirs.len() as u64,
            equal: equal as u64,
            first_of_one: mine.get(equal).map(|entry| request(one.0, entry)),
            first_of_other: theirs.get(equal).map(|entry| request(other.0, entry)),
        }
    }

    /// Whether they never part.
    pub fn agrees(&self) -> bool {
        self.first_of_one.is_none() && self.first_of_other.is_none()
    }
}
