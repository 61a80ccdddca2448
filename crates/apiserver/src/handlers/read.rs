//! Get and list.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::Call;
use crate::objects::status::{Cause, Details, Status};
use crate::protocol::options::{ListOptions, RevisionMatch, parse_revision};
use crate::protocol::response::{ApiResponse, Content, ListPage};
use crate::resources::selector::Selector;
use crate::resources::state::ServerState;
use crate::store::Snapshot;
use std::sync::Arc;

/// How long a read waits for a revision that is not there yet.
const FUTURE_WAIT: Duration = Duration::from_secs(3);
const FUTURE_POLL: Duration = Duration::from_millis(50);

pub(super) async fn get(call: &Call) -> Result<ApiResponse, Status> {
    let revision = parse_revision(call.request.query.text("resourceVersion"))?;
    wait_for(&call.server, revision).await?;
    let object = call.server.store.get(call.served.table, &call.key());
    let object = object.ok_or_else(|| call.not_found())?;
    Ok(ApiResponse::ok(Content::Object(
        Arc::clone(&call.served),
        object,
    )))
}

pub(super) async fn list(call: &Call) -> Result<ApiResponse, Status> {
    let options = ListOptions::parse(&call.request.query)?;
    let selector = Selector::parse(
        &options.label_selector,
        &options.field_selector,
        &call.served,
    )?;
    let token = match options.continue_token.as_str() {
        "" => None,
        text => Some(ContinueToken::parse(text)?),
    };
    let prefix = prefix(call);
    let snapshot = match &token {
        Some(token) => continue_snapshot(call, &prefix, token)?,
        None => first_snapshot(call, &prefix, options.at).await?,
    };
    let limit = match options.at {
        RevisionMatch::Newest {
            limit_counts: false,
        } => None,
        _ => options.limit,
    };
    Ok(ApiResponse::ok(Content::List(page(
        call, snapshot, &selector, limit, &prefix,
    ))))
}

/// The keys of the namespace, or all keys.
pub(super) fn prefix(call: &Call) -> String {
    if call.path.namespace.is_empty() {
        String::new()
    } else {
        call.served.key(&call.path.namespace, "")
    }
}

async fn first_snapshot(call: &Call, prefix: &str, at: RevisionMatch) -> Result<Snapshot, Status> {
    let store = &call.server.store;
    match at {
        RevisionMatch::Newest { .. } => {}
        RevisionMatch::NotBefore(revision) => wait_for(&call.server, revision).await?,
        RevisionMatch::Exactly(revision) => {
            wait_for(&call.server, revision).await?;
            return store
                .scan_at(call.served.table, prefix, "", revision)
                .map_err(|_| {
                    Status::expired("The resourceVersion for the provided list is too old.")
                });
        }
    }
    Ok(store.scan(call.served.table, prefix, ""))
}

fn continue_snapshot(call: &Call, prefix: &str, token: &ContinueToken) -> Result<Snapshot, Status> {
    let store = &call.server.store;
    let start = token.start_key(prefix)?;
    let Ok(revision) = u64::try_from(token.rv) else {
        return Ok(store.scan(call.served.table, prefix, &start));
    };
    let known = revision <= store.revision();
    let snapshot = store.scan_at(call.served.table, prefix, &start, revision);
    match snapshot {
        Ok(snapshot) if known => Ok(snapshot),
        _ => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter, or use the continue token \
                 in this response to retrieve the remainder of the results. Continuing with the \
                 provided token results in an inconsistent list - objects that were created, \
                 modified, or deleted between the time the first chunk was returned and now may \
                 show up in the list.",
            );
            let renewed = ContinueToken {
                rv: -1,
                ..token.clone()
            };
            status.continue_token = Some(renewed.encode());
            Err(status)
        }
    }
}

fn page(
    call: &Call,
    snapshot: Snapshot,
    selector: &Selector,
    limit: Option<usize>,
    prefix: &str,
) -> ListPage {
    let mut list = ListPage {
        served: Arc::clone(&call.served),
        revision: snapshot.revision,
        continue_token: String::new(),
        remaining: None,
        objects: snapshot.objects,
    };
    if !selector.is_empty() {
        list.objects
            .retain(|object| selector.matches(&call.served, object));
    }
    if let Some(limit) = limit
        && list.objects.len() > limit
    {
        let last = &list.objects[limit - 1];
        list.continue_token =
            ContinueToken::after(&last.key[prefix.len()..], snapshot.revision).encode();
        list.remaining = selector.is_empty().then(|| list.objects.len() - limit);
        list.objects.truncate(limit);
    }
    list
}

/// Waits for a revision that does not exist yet.
pub(super) async fn wait_for(server: &ServerState, revision: u64) -> Result<(), Status> {
    let deadline = tokio::time::Instant::now() + FUTURE_WAIT;
    loop {
        let current = server.store.revision();
        if current >= revision {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(too_large(revision, current));
        }
        tokio::time::sleep(FUTURE_POLL).await;
    }
}

fn too_large(revision: u64, current: u64) -> Status {
    let message = format!("Timeout: Too large resource version: {revision}, current: {current}");
    let mut status = Status::new(504, "Timeout", message);
    status.details = Some(Details {
        causes: vec![Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        retry_after_seconds: Some(1),
        ..Details::default()
    });
    status
}

/// Where a list continues: the revision of its first page and the key after its last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    fn after(key: &str, revision: u64) -> Self {
        Self {
            v: "meta.k8s.io/v1".to_owned(),
            rv: i64::try_from(revision).unwrap_or(i64::MAX),
            start: format!("/{key}\0"),
        }
    }

    fn encode(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }

    fn parse(text: &str) -> Result<Self, Status> {
        let broken = |why: String| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|e| broken(e.to_string()))?;
        let token: Self = serde_json::from_slice(&json).map_err(|e| broken(e.to_string()))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(broken(format!(
                "server does not recognize this encoded version {:?}",
                token.v
            )));
        }
        if token.rv == 0 {
            return Err(broken("incorrect encoded start resourceVersion".to_owned()));
        }
        Ok(token)
    }

    /// The key in the table; an empty key and `../` are invalid.
    fn start_key(&self, prefix: &str) -> Result<String, Status> {
        let start = self.start.trim_start_matches('/');
        if start.is_empty() || start.contains("../") {
            return Err(Status::bad_request(
                "invalid continue token: continue key is not valid: key is out of range",
            ));
        }
        Ok(format!("{prefix}{start}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_key_after_the_last_one() {
        let token = ContinueToken::after("web-3", 251);
        let read = ContinueToken::parse(&token.encode()).unwrap();
        assert_eq!(read, token);
        assert_eq!(read.start_key("ns/").unwrap(), "ns/web-3\0");
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let json = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for text in [
            "%%%".to_owned(),
            json("{}"),
            json(r#"{"v":"v2","rv":1,"start":"a"}"#),
            json(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
        ] {
            let error = ContinueToken::parse(&text).unwrap_err();
            assert_eq!(error.code, 400);
            assert!(
                error
                    .message
                    .starts_with("invalid continue token: continue key is not valid: ")
            );
        }
    }
}
