//! A convolution as PyTorch describes it to cuDNN's graph interface, and as the library is asked for it.

use super::plans::{Attribute, Descriptor, attribute, descriptors};

/// Kinds of operations, `cudnnBackendDescriptorType_t`: which of a convolution's three products; with the attributes that name the
/// convolution, and the tensors of weight, input and output.
const PRODUCTS: [(i32, &str, [i32; 4]); 3] =
    [(10, "forward", [702, 703, 704, 705]), (11, "weight", [714, 715, 716, 717]), (12, "input", [708, 709, 710, 711])];
/// `cudnnDataType_t`, those that are asked for.
const DTYPES: [(u8, &str); 3] = [(0, "fp32"), (2, "fp16"), (9, "bf16")];
/// Dimensions that have places come behind these two.
const OTHERS: usize = 2;

/// The question, if the operations of a graph are one convolution that can be asked for on a card of this compute capability. Filters of
/// one channel, and on Hopper products of single places in rows, are planned with the card itself only.
///
/// # Safety
/// What an attribute of descriptors names is alive.
pub(super) unsafe fn question(operations: &[&Descriptor], capability: (u32, u32)) -> Option<String> {
    let [operation] = operations else { return None };
    let (_, product, [how, weight, input, output]) = PRODUCTS.into_iter().find(|(kind, ..)| *kind == operation.kind)?;
    // SAFETY: the caller's.
    let [how, weight, input, output] = unsafe {
        [named(operation, how)?, named(operation, weight)?, named(operation, input)?, named(operation, output)?]
    };
    let [x, w, y] = [input, weight, output].map(|tensor| numbers(tensor, attribute::TENSOR_SIZES));
    let [dilation, stride, padding] =
        [attribute::DILATIONS, attribute::STRIDES, attribute::PADDED_BEFORE].map(|number| numbers(how, number));
    let &[_, channels, ..] = &x[..] else { return None };
    let &[_, of_a_group, ..] = &w[..] else { return None };
    let depthwise = channels > 1 && of_a_group == 1;
    let last = [input, weight, output].into_iter().any(is_last);
    let single = |sizes: &[i64]| sizes.iter().all(|&size| size == 1);
    let pointwise = channels == of_a_group
        && single(&w[OTHERS..])
        && single(&stride)
        && padding.iter().all(|&padding| padding == 0);
    if depthwise || capability == (9, 0) && pointwise && !last {
        return None;
    }
    let kind = input.attributes.get(&attribute::TENSOR_TYPE)?.2.first()?;
    let (_, dtype) = DTYPES.into_iter().find(|(number, _)| number == kind)?;
    serde_json::to_string(&(product, x, w, y, stride, padding, last, dtype, dilation)).ok()
}

/// Whether a tensor's channels lie last: its neighbours are channels, where there are others.
fn is_last(tensor: &Descriptor) -> bool {
    let [sizes, strides] = [attribute::TENSOR_SIZES, attribute::TENSOR_STRIDES].map(|number| numbers(tensor, number));
    let (Some(&channels), Some(&step)) = (sizes.get(1), strides.get(1)) else { return false };
    channels > 1 && step == 1 && strides[OTHERS..].iter().any(|&stride| stride != 1)
}

/// The descriptor that an attribute names.
unsafe fn named<'a>(operation: &Descriptor, number: i32) -> Option<&'a Descriptor> {
    // SAFETY: the caller's.
    unsafe { descriptors(operation.attributes.get(&number)?) }.first().copied()
}

fn numbers(of: &Descriptor, number: i32) -> Vec<i64> {
    let bytes = of.attributes.get(&number).map_or(&[][..], |(_, _, bytes): &Attribute| bytes);
    bytes.as_chunks().0.iter().map(|number| i64::from_ne_bytes(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(values: &[i64]) -> Attribute {
        (3, values.len() as i64, values.iter().flat_map(|value| value.to_ne_bytes()).collect())
    }

    fn of(kind: i32, attributes: impl IntoIterator<Item = (i32, Attribute)>) -> Descriptor {
        Descriptor { kind, attributes: attributes.into_iter().collect(), workspace: 0 }
    }

    fn tensor(sizes: &[i64], strides: &[i64]) -> Descriptor {
        let kind = (1, 1, vec![9, 0, 0, 0]);
        of(
            17,
            [
                (attribute::TENSOR_TYPE, kind),
                (attribute::TENSOR_SIZES, told(sizes)),
                (attribute::TENSOR_STRIDES, told(strides)),
            ],
        )
    }

    fn asked(kind: i32, [x, w, y]: [&Descriptor; 3], capability: (u32, u32)) -> Option<String> {
        let (_, _, numbers) = PRODUCTS.into_iter().find(|(of, ..)| *of == kind).unwrap();
        let side = |value: i64| told(&[value, value]);
        let how = of(
            1,
            [(attribute::DILATIONS, side(1)), (attribute::STRIDES, side(1)), (attribute::PADDED_BEFORE, side(0))],
        );
        let named = [&how, w, x, y].map(|named| (15, 1, (std::ptr::from_ref(named) as u64).to_ne_bytes().to_vec()));
        let operation = of(kind, numbers.into_iter().zip(named));
        // SAFETY: all of them are alive.
        unsafe { question(&[&operation], capability) }
    }

    #[test]
    fn a_convolution_is_a_question() {
        let (x, y) = (tensor(&[2, 8, 4, 4], &[128, 16, 4, 1]), tensor(&[2, 6, 2, 2], &[24, 4, 2, 1]));
        let w = tensor(&[6, 8, 3, 3], &[72, 9, 3, 1]);
        let said = r#"["weight",[2,8,4,4],[6,8,3,3],[2,6,2,2],[1,1],[0,0],false,"bf16",[1,1]]"#;
        assert_eq!(asked(11, [&x, &w, &y], (9, 0)).as_deref(), Some(said));
        let last = tensor(&[2, 8, 4, 4], &[128, 1, 32, 8]);
        assert!(asked(10, [&last, &w, &y], (9, 0)).unwrap().contains("true"));
    }

    /// What cuDNN plans with the card itself only.
    #[test]
    fn single_places_on_hopper_and_filters_of_one_channel_are_none() {
        let x = tensor(&[2, 8, 4, 4], &[128, 16, 4, 1]);
        let (single, one) = (tensor(&[8, 8, 1, 1], &[8, 1, 1, 1]), tensor(&[8, 1, 1, 1], &[1, 1, 1, 1]));
        assert!(asked(10, [&x, &single, &x], (8, 9)).is_some());
        assert_eq!(asked(10, [&x, &single, &x], (9, 0)), None);
        assert_eq!(asked(10, [&x, &one, &x], (8, 9)), None);
    }
}
