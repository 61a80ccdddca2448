//! The served resources: which kinds there are, where their objects are stored, and which of them a selector
//! selects; and the backends of Services.

pub(crate) mod backends;
pub(crate) mod registry;
pub(crate) mod selector;
pub(crate) mod state;
