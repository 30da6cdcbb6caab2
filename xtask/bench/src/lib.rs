//! Times the engine.
