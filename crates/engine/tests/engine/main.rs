//! The engine from outside: random histories against records of their own, bounds on growth, and the shape of the sources. One binary,
//! because each one links the engine.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod admission;
mod decisions;
mod gate;
mod load;
mod policies;
mod reclaimed;
mod shape;
mod truth;
mod zones;
