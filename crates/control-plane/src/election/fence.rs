//! The fence: a new leader waits until its watches have seen everything that the previous leader wrote.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::wire::envelope::ListMeta;
use http::Request;
use http::header::ACCEPT;
use http_body_util::Full;
use serde::Deserialize;

use crate::backoff::Backoff;
use crate::client::{self, Exchange, Refusal};
use crate::watch::{KindProgress, Progress};

/// The timeout of one request.
const LIMIT: Duration = Duration::from_secs(10);
/// A kind whose watch has not passed the fence by then is listed again.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns once every kind that the component watches is known up to its newest version at some time after `won`.
pub(crate) async fn fence(api: &Exchange, progress: &Progress, won: Instant) {
    let mut newest = BTreeMap::new();
    for resource in progress.resources() {
        if let Some(version) = newest_version(api, resource.path).await {
            newest.insert(resource.name(), version);
        }
    }
    let begun = Instant::now();
    let mut listed_again = false;
    loop {
        let kinds = progress.kinds();
        let behind = |name: &&'static str| {
            let passed = kinds
                .get(name)
                .is_some_and(|kind| is_past(kind, newest.get(name), won));
            !passed
        };
        let names = progress.resources().iter().map(|resource| resource.name());
        let behind: Vec<&'static str> = names.filter(behind).collect();
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

/// The newest version of a kind in the store; `None` if the server does not have it. Retries until there is an answer.
async fn newest_version(api: &Exchange, path: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        metadata: ListMeta,
    }
    let mut backoff = Backoff::default();
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
            Err(_) => backoff.wait().await,
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
