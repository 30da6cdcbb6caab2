//! The engine through its one public door.

mod classifiers;
mod deberta;
mod falcon;
mod generate;
mod models;
mod versions;
mod vision;
