//! The HTTP side of the Kubernetes API: paths, query parameters, users, media types and responses.
//!
//! What a request does is decided in `handlers`.

pub(crate) mod auth;
pub(crate) mod media;
pub(crate) mod options;
pub(crate) mod request;
pub(crate) mod response;
