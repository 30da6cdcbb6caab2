//! What a plan of cuDNN's graph interface asks for as a workspace, as far as it was measured: attention on Hopper; of a convolution,
//! where somebody can be asked.
//!
//! An H100 80GB HBM3 with cuDNN 9.19 did so in each of 147 calls (2026-11-26: heads of 64 and 128, grouped and not, with and without
//! mask and dropout), and an H200 in each of 361 of a single query (2026-11-27). What cuDNN's front end asks for beside its
//! plans is its own and PyTorch's code, which runs here.

use std::collections::BTreeMap;

use super::{asked, convolved};

/// A descriptor: attributes by number, each with its type, its count and its bytes; and what a plan made from it asks for.
#[derive(Default)]
pub struct Descriptor {
    /// `cudnnBackendDescriptorType_t`.
    pub kind: i32,
    /// What it was told.
    pub attributes: BTreeMap<i32, Attribute>,
    /// Bytes.
    pub workspace: i64,
}

/// Type, count and bytes.
pub type Attribute = (i32, i64, Vec<u8>);

/// `cudnnBackendDescriptorType_t`.
mod kind {
    pub const TENSOR: i32 = 17;
    pub const MATMUL: i32 = 19;
    pub const REDUCTION: i32 = 22;
    pub const ATTENTION_FORWARD: i32 = 41;
    pub const ATTENTION_BACKWARD: i32 = 43;
}

/// `cudnnBackendAttributeName_t`.
pub(super) mod attribute {
    pub const DILATIONS: i32 = 102;
    pub const STRIDES: i32 = 103;
    pub const PADDED_BEFORE: i32 = 105;
    pub const HEURISTIC_GRAPH: i32 = 201;
    pub const CONFIG_ENGINE: i32 = 300;
    pub const PLAN_CONFIG: i32 = 401;
    pub const GRAPH_OPERATIONS: i32 = 801;
    pub const TENSOR_TYPE: i32 = 901;
    pub const TENSOR_SIZES: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const ENGINE_GRAPH: i32 = 1300;
    pub const MATMUL_LEFT: i32 = 1520;
    pub const REDUCTION_FROM: i32 = 1610;
    pub const REDUCTION_TO: i32 = 1611;
    pub const MATMUL_RIGHT: i32 = 1521;
    pub const ATTENTION_QUERIES: i32 = 2800;
    pub const ATTENTION_KEYS: i32 = 2801;
    pub const ATTENTION_VALUES: i32 = 2802;
}

/// `cudnnBackendAttributeType_t` of a descriptor.
const DESCRIPTOR: i32 = 15;
/// `cudnnDataType_t`: half and bfloat16.
const HALVES: [u8; 2] = [2, 9];
/// What a plan hangs on besides what it is of.
#[derive(Clone, Copy)]
pub struct Seen {
    /// The card's compute capability.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// The version of cuDNN, as `cudnnGetVersion` has it.
    pub cudnn: usize,
}

/// The cuDNN of PyTorch 2.11: older ones were not measured.
const MEASURED: usize = 91_900;
/// What every plan of attention asks for.
const PLAN: i64 = 256;
/// Products of attention's forward, where it is written as a graph: two. Its backward has five.
const FORWARD: std::ops::Range<usize> = 2..5;

/// What a descriptor's plan asks for, after the attribute `number` was set: that of the graph, engine or configuration that it
/// names, or of the operations of a graph. `None` for any other attribute.
///
/// # Safety
/// What an attribute of descriptors names is alive.
pub unsafe fn workspace(number: i32, told: &Attribute, seen: Seen) -> Option<i64> {
    match number {
        attribute::HEURISTIC_GRAPH | attribute::CONFIG_ENGINE | attribute::PLAN_CONFIG | attribute::ENGINE_GRAPH => {
            // SAFETY: the caller's.
            unsafe { descriptors(told) }.first().map(|named| named.workspace)
        }
        // SAFETY: the caller's.
        attribute::GRAPH_OPERATIONS => Some(unsafe { of_operations(&descriptors(told), seen) }),
        _ => None,
    }
}

/// The configurations that heuristics answer with, `room` descriptors that the caller made, are of the same graph.
///
/// # Safety
/// `values` holds as many addresses of descriptors.
pub unsafe fn suggest(values: *mut u8, room: usize, workspace: i64) {
    for place in 0..room {
        // SAFETY: the caller's.
        if let Some(configuration) = unsafe { values.cast::<*mut Descriptor>().add(place).read_unaligned().as_mut() } {
            configuration.workspace = workspace;
        }
    }
}

/// What the plan of a graph of these operations asks for.
unsafe fn of_operations(operations: &[&Descriptor], seen: Seen) -> i64 {
    // SAFETY: the caller's.
    if let Some(question) = unsafe { convolved::question(operations, seen.capability) } {
        return asked::workspace(&question).unwrap_or(0);
    }
    if seen.capability != (9, 0) || seen.cudnn < MEASURED {
        return 0;
    }
    let products: Vec<_> = operations.iter().filter(|operation| operation.kind == kind::MATMUL).collect();
    let whole = operations.iter().find(|operation| operation.kind == kind::ATTENTION_FORWARD);
    // With a causal mask the front end writes it as a graph, whose keys are turned.
    let written = products.get(..2).filter(|_| FORWARD.contains(&products.len()));
    let given = match (whole, written) {
        // SAFETY: the caller's.
        (Some(operation), _) => Some(unsafe {
            let of = |number| sizes(operation, number);
            [of(attribute::ATTENTION_QUERIES), of(attribute::ATTENTION_KEYS), of(attribute::ATTENTION_VALUES)]
        }),
        // SAFETY: the caller's.
        (None, Some(of)) => Some(unsafe {
            let turned = sizes(of[0], attribute::MATMUL_RIGHT).map(|mut keys| {
                keys.swap(2, 3);
                keys
            });
            [sizes(of[0], attribute::MATMUL_LEFT), turned, sizes(of[1], attribute::MATMUL_RIGHT)]
        }),
        (None, None) => None,
    };
    if let Some([queries, keys, values]) = given {
        let single = queries.as_ref().is_some_and(|sizes| sizes[2] == 1);
        return if !single {
            PLAN
        } else if let (Some(queries), Some(keys), Some(values)) = (queries, keys, values) {
            single_query(queries, keys, values[3], seen.multiprocessors)
        } else {
            0
        };
    }
    if products.len() < FORWARD.end && !operations.iter().any(|operation| operation.kind == kind::ATTENTION_BACKWARD) {
        return 0;
    }
    // Keys' and values' gradients of grouped heads are made for every head of the queries, and summed.
    let grouped = operations.iter().filter(|operation| operation.kind == kind::REDUCTION);
    // SAFETY: the caller's.
    PLAN + grouped.filter_map(|operation| unsafe { summed_over_heads(operation) }).sum::<i64>()
}

/// What the kernel for a single query holds, of sizes `[batch, heads, seq, head]`: keys are shared out, and the output and two numbers
/// of every share kept in float32 until they are put together; in as many shares as leave each 128 keys and fill the card twice over,
/// a power of two between 4 and 64.
fn single_query(queries: [i64; 4], keys: [i64; 4], value: i64, multiprocessors: u32) -> i64 {
    let filled = 2 * i64::from(multiprocessors) / keys[0].saturating_mul(keys[1]).max(1);
    let most = (keys[2] / 128).min(filled).min(64);
    if keys[2] <= 512 || most < 4 {
        return 0;
    }
    let rows = [queries[0], queries[1]].into_iter().fold(1 << most.ilog2(), i64::saturating_mul);
    let part = |each: i64| rows.saturating_mul(4 * each).min(1 << 62).saturating_add(127) / 128 * 128;
    part(value).saturating_add(2 * part(1).min(1 << 61)).saturating_add(128)
}

/// Bytes of what a reduction sums over heads, in half precision.
unsafe fn summed_over_heads(reduction: &Descriptor) -> Option<i64> {
    // SAFETY: the caller's.
    let (from, to) =
        unsafe { (sizes(reduction, attribute::REDUCTION_FROM)?, sizes(reduction, attribute::REDUCTION_TO)?) };
    // SAFETY: the caller's.
    let tensor = unsafe { descriptors(reduction.attributes.get(&attribute::REDUCTION_FROM)?) };
    let half = tensor.first()?.attributes.get(&attribute::TENSOR_TYPE)?.2.first()?;
    let heads = from[1] > to[1] && HALVES.contains(half);
    heads.then(|| from.iter().fold(2, |bytes: i64, size| bytes.saturating_mul(*size)))
}

/// The sizes of the tensor that an operation's attribute names.
unsafe fn sizes(operation: &Descriptor, number: i32) -> Option<[i64; 4]> {
    // SAFETY: the caller's.
    let named = unsafe { descriptors(operation.attributes.get(&number)?) };
    let tensor = named.first().filter(|tensor| tensor.kind == kind::TENSOR)?;
    let (_, _, bytes) = tensor.attributes.get(&attribute::TENSOR_SIZES)?;
    let sizes: Vec<i64> = bytes.as_chunks().0.iter().map(|size| i64::from_ne_bytes(*size)).collect();
    sizes.try_into().ok()
}

/// The descriptors that an attribute names.
pub(super) unsafe fn descriptors<'a>(told: &Attribute) -> Vec<&'a Descriptor> {
    let (kind, _, bytes) = told;
    if *kind != DESCRIPTOR {
        return Vec::new();
    }
    let addresses = bytes.as_chunks().0.iter().map(|address| u64::from_ne_bytes(*address) as *const Descriptor);
    // SAFETY: the caller's; each is a descriptor that was made here, or nothing.
    addresses.filter_map(|address| unsafe { address.as_ref() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(sizes: [i64; 4], half: bool) -> Descriptor {
        let told = sizes.iter().flat_map(|size| size.to_ne_bytes()).collect();
        let attributes = [
            (attribute::TENSOR_SIZES, (3, 4, told)),
            (attribute::TENSOR_TYPE, (1, 1, vec![if half { 9 } else { 0 }, 0, 0, 0])),
        ];
        Descriptor { kind: kind::TENSOR, attributes: attributes.into(), workspace: 0 }
    }

    fn naming(descriptors: &[&Descriptor]) -> Attribute {
        let addresses = descriptors.iter().flat_map(|d| (std::ptr::from_ref(*d) as u64).to_ne_bytes()).collect();
        (DESCRIPTOR, descriptors.len() as i64, addresses)
    }

    fn operation(kind: i32, named: &[(i32, &Descriptor)]) -> Descriptor {
        let attributes = named.iter().map(|(number, tensor)| (*number, naming(&[*tensor]))).collect();
        Descriptor { kind, attributes, workspace: 0 }
    }

    /// What a plan of these asks for, through graph, heuristics, configuration and plan.
    fn asked(operations: &[&Descriptor], capability: (u32, u32)) -> i64 {
        let seen = Seen { capability, multiprocessors: 132, cudnn: 91_900 };
        // SAFETY: everything lives to the end.
        unsafe {
            let graph = workspace(attribute::GRAPH_OPERATIONS, &naming(operations), seen).unwrap();
            let graph = Descriptor { workspace: graph, ..Descriptor::default() };
            workspace(attribute::HEURISTIC_GRAPH, &naming(&[&graph]), seen).unwrap()
        }
    }

    /// As cuDNN's front end of PyTorch 2.11 writes attention, and as the H100 answered.
    #[test]
    fn plans_of_attention_ask_for_what_was_measured() {
        let queries = tensor([2, 32, 1024, 64], true);
        let forward = operation(kind::ATTENTION_FORWARD, &[(attribute::ATTENTION_QUERIES, &queries)]);
        assert_eq!((asked(&[&forward], (9, 0)), asked(&[&forward], (8, 9))), (256, 0));
        let one = tensor([2, 32, 1, 64], true);
        let single = operation(kind::ATTENTION_FORWARD, &[(attribute::ATTENTION_QUERIES, &one)]);
        assert_eq!(asked(&[&single], (9, 0)), 0);
        // Of four samples of a Qwen3-VL 4B after 1,536 tokens: 32 heads, of which keys have eight.
        let [one, keys] = [[4, 32, 1, 128], [4, 8, 1537, 128]].map(|sizes| tensor(sizes, true));
        let named = [
            (attribute::ATTENTION_QUERIES, &one),
            (attribute::ATTENTION_KEYS, &keys),
            (attribute::ATTENTION_VALUES, &keys),
        ];
        assert_eq!(asked(&[&operation(kind::ATTENTION_FORWARD, &named)], (9, 0)), 532_608);

        let sides = [(attribute::MATMUL_LEFT, &queries), (attribute::MATMUL_RIGHT, &queries)];
        let product = operation(kind::MATMUL, &sides);
        assert_eq!(asked(&[&product, &product], (9, 0)), 256, "causal");
        let (every, kept) = (tensor([2, 32, 1024, 64], true), tensor([2, 8, 1024, 64], true));
        let summed = [(attribute::REDUCTION_FROM, &every), (attribute::REDUCTION_TO, &kept)];
        let summed = operation(kind::REDUCTION, &summed);
        let (wide, rows) = (tensor([2, 32, 1024, 64], false), tensor([2, 32, 1024, 1], false));
        let rows = operation(kind::REDUCTION, &[(attribute::REDUCTION_FROM, &wide), (attribute::REDUCTION_TO, &rows)]);
        let plain = [&product, &product, &product, &product, &product, &rows];
        assert_eq!(asked(&plain, (9, 0)), 256);
        // 33,816,832 in all, of which the front end asks for 17,039,360.
        assert_eq!(asked(&[&plain[..], &[&summed, &summed]].concat(), (9, 0)), 33_816_832 - 17_039_360);
        assert_eq!(asked(&[&product], (9, 0)), 0, "no attention");
    }
}
