//! What of a model is quantized while it is built.

use plimsoll_scenario::Quantization;

use crate::ops::SharedMap;
use crate::tensor::DType;

/// Which linears bitsandbytes replaces while a model is built, and by what.
#[derive(Clone, Debug)]
pub struct QuantizationPlan {
    /// int8, nf4, nf4-double.
    pub quantization: Quantization,
    /// What four-bit weights are packed in (`bnb_4bit_quant_storage`).
    pub storage: DType,
    /// The dtype the weights are loaded in, which is also the one they compute in (`bnb_4bit_compute_dtype`).
    pub compute: DType,
    /// Modules left as they are beside the output head, by the end of their path (`get_modules_to_not_convert` in
    /// transformers' `quantizers/base.py`).
    pub skipped: Vec<&'static str>,
    /// What older versions of bitsandbytes have once for all weights with double quantization.
    pub map: SharedMap,
}
