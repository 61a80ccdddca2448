//! Dispatches a request on a resource to the handler of its verb. Only code for a subresource
//! names a kind.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::kinds;
use crate::objects::status::Status;
use crate::protocol::auth::User;
use crate::protocol::media::{Accept, Representation};
use crate::protocol::request::Request;
use crate::protocol::request::{Query, ResourcePath};
use crate::protocol::response::{ApiResponse, IncludeObject};
use crate::resources::registry::ServedKind;
use crate::resources::state::ServerState;

mod admission;
mod binding;
mod containers;
mod create;
mod definitions;
mod delete;
mod eviction;
mod metrics;
mod patch;
mod read;
mod review;
mod scale;
mod update;
mod watch;
mod write;

pub(crate) use create::create_at_start;
pub(crate) use delete::delete_all;
pub(crate) use write::format_time;

/// The field manager of the server's own writes.
pub(crate) const SERVER: &str = "kube-apiserver";

/// A request on a resource that exists.
pub(crate) struct Call {
    pub(crate) server: Arc<ServerState>,
    pub(crate) served: Arc<ServedKind>,
    pub(crate) path: ResourcePath,
    pub(crate) accept: Accept,
    pub(crate) include: IncludeObject,
    pub(crate) request: Request,
}

pub(crate) async fn dispatch(call: &Call) -> Result<ApiResponse, Status> {
    let deprecated = call.served.kind.deprecated.map(str::to_owned);
    let answer = write::warn(on_resource(call).await, deprecated.into_iter().collect())?;
    if call.request.method != Method::GET && definitions::concerns(&call.server, &call.served) {
        definitions::refresh(&call.server);
    }
    Ok(answer)
}

async fn on_resource(call: &Call) -> Result<ApiResponse, Status> {
    let path = &call.path;
    check_scope(call)?;
    if !path.subresource.is_empty() {
        return on_subresource(call).await;
    }
    let collection = path.name.is_empty();
    match call.request.method {
        Method::GET if !collection => {
            call.check_verb("get")?;
            call.check_representation(Listing::No)?;
            if call.served.kind.group == kinds::metrics::GROUP {
                return metrics::get(call);
            }
            read::get(call).await
        }
        Method::GET if path.watch || call.request.query.flag("watch") == Some(true) => {
            call.check_verb("watch")?;
            watch::watch(call)
        }
        Method::GET => {
            call.check_verb("list")?;
            call.check_representation(Listing::Yes)?;
            if call.served.kind.group == kinds::metrics::GROUP {
                return metrics::list(call);
            }
            read::list(call).await
        }
        // Custom kinds are created under any path.
        Method::POST if collection || call.served.custom => {
            call.check_verb("create")?;
            call.check_namespace_given()?;
            match (&*call.served.kind.group, &*call.served.kind.plural) {
                ("", "bindings") => binding::create(call).await,
                ("authentication.k8s.io" | "authorization.k8s.io", _) => review::create(call),
                _ => create::create(call).await,
            }
        }
        Method::PUT if !collection => {
            call.check_verb("update")?;
            update::update(call, "").await
        }
        Method::PATCH if !collection => {
            call.check_verb("patch")?;
            patch::patch(call, "").await
        }
        Method::DELETE if !collection => {
            call.check_verb("delete")?;
            delete::delete(call).await
        }
        Method::DELETE => {
            call.check_verb("deletecollection")?;
            call.check_namespace_given()?;
            delete::delete_collection(call).await
        }
        Method::PUT | Method::PATCH if call.served.custom => {
            Err(Status::bad_request("name must be provided"))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// Whether a read answers with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Yes,
    No,
}

async fn on_subresource(call: &Call) -> Result<ApiResponse, Status> {
    let kind = &call.served.kind;
    let name = call.path.subresource.as_str();
    let Some(subresource) = kind.subresources.iter().find(|s| s.name == name) else {
        return Err(if call.served.custom {
            Status::not_found(&kind.group, &kind.plural, &call.path.name)
        } else {
            Status::no_such_resource()
        });
    };
    let method = &call.request.method;
    let verb = match *method {
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ => return Err(Status::method_not_allowed()),
    };
    if !subresource.verbs.contains(&verb) {
        return Err(if call.served.custom {
            Status::verb_not_supported(&kind.group, &kind.plural, verb)
        } else {
            Status::method_not_allowed()
        });
    }
    if containers::needs_container(&kind.plural, name) {
        return containers::refuse(call);
    }
    match (&*kind.plural, name, verb) {
        ("pods", "binding", _) => binding::create(call).await,
        ("pods", "eviction", _) => eviction::create(call).await,
        (_, "scale", "get") => scale::get(call),
        (_, "scale", _) => scale::write(call).await,
        (_, _, "get") => read::get(call).await,
        (_, _, "update") => update::update(call, name).await,
        (_, _, "patch") => patch::patch(call, name).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Namespaced objects live under `/namespaces/`, others do not.
fn check_scope(call: &Call) -> Result<(), Status> {
    let path = &call.path;
    let in_namespace = !path.namespace.is_empty();
    let misplaced = if call.served.kind.namespaced {
        !in_namespace && !path.name.is_empty()
    } else {
        in_namespace
    };
    if misplaced {
        return Err(Status::no_such_resource());
    }
    Ok(())
}

impl Call {
    /// A call that the server makes itself.
    fn internal(server: &Arc<ServerState>, served: &Arc<ServedKind>, namespace: &str) -> Self {
        let kind = &served.kind;
        Self {
            server: Arc::clone(server),
            served: Arc::clone(served),
            path: ResourcePath {
                group: kind.group.to_string(),
                version: kind.version.to_string(),
                namespace: namespace.to_owned(),
                plural: kind.plural.to_string(),
                ..ResourcePath::default()
            },
            accept: Accept::PLAIN,
            include: IncludeObject::Metadata,
            request: Request {
                method: Method::POST,
                path: String::new(),
                query: Query::default(),
                headers: HeaderMap::new(),
                body: Bytes::new(),
                user: User::in_process(),
            },
        }
    }

    fn check_verb(&self, verb: &str) -> Result<(), Status> {
        if self.served.allows(verb) {
            return Ok(());
        }
        Err(Status::method_not_allowed())
    }

    /// Metadata of an object is not that of a list.
    fn check_representation(&self, listing: Listing) -> Result<(), Status> {
        let kind = &self.served.kind;
        let (name, list) = if self.served.custom {
            let package = "unstructured";
            (
                format!("{package}.Unstructured"),
                format!("{package}.UnstructuredList"),
            )
        } else {
            let package = match kind.group.split('.').next() {
                None | Some("") => "core",
                Some(package) => package,
            };
            (
                format!("{package}.{}", kind.kind),
                format!("{package}.{}", kind.list_kind),
            )
        };
        if self.served.custom
            && (self.accept.representation, listing) == (Representation::MetadataList, Listing::No)
        {
            return Err(Status::new(500, "", "content is not a list"));
        }
        let message = match (self.accept.representation, listing) {
            (Representation::MetadataList, Listing::No) => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{name})"
            ),
            (Representation::Metadata, Listing::Yes) => format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{list})"
            ),
            _ => return Ok(()),
        };
        Err(Status::new(406, "NotAcceptable", message))
    }

    /// Writes on a collection of all namespaces do not exist.
    fn check_namespace_given(&self) -> Result<(), Status> {
        if self.served.kind.namespaced && self.path.namespace.is_empty() {
            return Err(Status::method_not_allowed());
        }
        Ok(())
    }

    fn key(&self) -> String {
        self.served.key(&self.path.namespace, &self.path.name)
    }

    fn content_type(&self) -> Option<&str> {
        let value = self.request.headers.get(http::header::CONTENT_TYPE)?;
        value.to_str().ok()
    }

    fn not_found(&self) -> Status {
        let kind = &self.served.kind;
        Status::not_found(&kind.group, &kind.plural, &self.path.name)
    }

    fn conflict(&self, why: impl std::fmt::Display) -> Status {
        let kind = &self.served.kind;
        Status::conflict(&kind.group, &kind.plural, &self.path.name, why)
    }
}
