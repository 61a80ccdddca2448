//! The fence: a new leader waits until its watches have seen everything that the previous leader wrote.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::wire::envelope::ListMeta;
use futures::future::join_all;
use http::Request;
use http::header::ACCEPT;
use http_body_util::Full;
use serde::Deserialize;

use crate::client::{self, Exchange, Refusal};
use reconcile::backoff::Backoff;
use reconcile::watch::{KindProgress, Progress, Resource};

/// The timeout of one request. An optional kind holds up the fence no longer; a required one is reported then.
const LIMIT: Duration = Duration::from_secs(5);
/// A kind whose watch has not passed the fence by then is listed again.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns once every kind that the component watches is known up to its newest version at some time after `won`.
/// Optional kinds get a few seconds.
pub(crate) async fn fence(api: &Exchange, progress: &Progress, won: Instant) {
    let versions = progress.resources().iter().map(|resource| async {
        let version = newest_version(api, resource).await;
        version.map(|version| (resource.name(), version))
    });
    let newest: BTreeMap<_, _> = join_all(versions).await.into_iter().flatten().collect();
    let begun = Instant::now();
    let (mut listed_again, mut reported) = (false, false);
    loop {
        let (kinds, is_late) = (progress.kinds(), begun.elapsed() > LIMIT);
        let behind = |resource: &&&'static Resource| {
            let (name, optional) = (resource.name(), resource.optional);
            let kind = kinds.get(name);
            let passed = kind.is_some_and(|it| is_past(it, newest.get(name), won));
            let is_left_out = optional && (is_late || kind.is_some_and(|it| it.late));
            !passed && !is_left_out
        };
        let behind = progress.resources().iter().filter(behind);
        let behind: Vec<&'static str> = behind.map(|it| it.name()).collect();
        if behind.is_empty() {
            return;
        }
        if !listed_again && begun.elapsed() > PATIENCE {
            listed_again = true;
            tracing::debug!(
                kinds = behind.join(","),
                "listing again: the watch is behind"
            );
            progress.list_again(&behind);
        }
        if is_late && !reported {
            reported = true;
            tracing::warn!(
                kinds = behind.join(","),
                "watches are not up to date after {LIMIT:?}; waiting for them"
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_past(kind: &KindProgress, newest: Option<&String>, won: Instant) -> bool {
    if kind.missing || kind.listed.is_some_and(|begun| begun >= won) {
        return true;
    }
    match (number(Some(&kind.version)), number(newest)) {
        (Some(known), Some(newest)) => known >= newest,
        // Versions that are not numbers cannot be compared: wait for a list.
        _ => false,
    }
}

fn number(version: Option<&String>) -> Option<u64> {
    version.and_then(|version| version.parse().ok())
}

/// The newest version of a kind in the store; `None` if the server does not have it. Retries until there is an answer,
/// except for an optional kind.
async fn newest_version(api: &Exchange, resource: &Resource) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        metadata: ListMeta,
    }
    let (path, name) = (resource.path, resource.name());
    let mut backoff = Backoff::default();
    let mut logged = None;
    loop {
        // Without a resourceVersion the answer comes from the store itself.
        let request = Request::get(format!("{path}?limit=1"))
            .header(ACCEPT, "application/json")
            .body(Full::default())
            .ok()?;
        match client::send(api, request, LIMIT).await {
            Ok(bytes) => {
                let answer: Answer = serde_json::from_slice(&bytes).ok()?;
                return Some(answer.metadata.resource_version);
            }
            // The kind is missing or forbidden, which the watch reports, too.
            Err(Refusal::Refused { status, .. }) if status.is_client_error() && status != 429 => {
                return None;
            }
            Err(refusal) => {
                let why = refusal.to_string();
                if logged.as_ref() != Some(&why) {
                    tracing::warn!("cannot read the newest version of {name}: {why}");
                    logged = Some(why);
                }
                if resource.optional {
                    return None;
                }
                backoff.wait().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_the_fence() {
        let won = Instant::now();
        let kind = |version: &str| KindProgress {
            version: version.to_owned(),
            ..KindProgress::default()
        };
        let listed = |at| KindProgress {
            listed: Some(at),
            ..kind("1")
        };
        let missing = KindProgress {
            missing: true,
            ..kind("")
        };
        let before = won.checked_sub(Duration::from_millis(1)).unwrap();
        for (case, kind, newest, want) in [
            ("older", kind("9"), Some("10"), false),
            ("equal", kind("10"), Some("10"), true),
            ("newer, as a number", kind("10"), Some("9"), true),
            ("listed before", listed(before), Some("10"), false),
            ("listed since", listed(won), Some("10"), true),
            ("missing", missing, None, true),
            ("not yet listed", kind(""), Some("10"), false),
            ("no numbers", kind("b"), Some("a"), false),
            ("forbidden", kind("10"), None, false),
        ] {
            let newest = newest.map(str::to_owned);
            assert_eq!(is_past(&kind, newest.as_ref(), won), want, "{case}");
        }
    }
}
