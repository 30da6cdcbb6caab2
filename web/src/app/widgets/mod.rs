//! Controls that know nothing of scenarios.

mod combobox;
mod number_field;
mod segments;
mod switch;
mod text_field;

pub use combobox::{Combobox, Item};
pub use number_field::NumberField;
pub use segments::Segments;
pub use switch::Switch;
pub use text_field::TextField;
