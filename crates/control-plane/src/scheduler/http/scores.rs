//! The Score API: `/debug/scores` enables the recording of scores and shows the latest ones; `/debug/flags/s` enables it
//! as in Koordinator.

use std::time::Duration;

use api::http::{ErrorCode, RecordedScores};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use engine::scheduling::scheduler::score_count;
use http::StatusCode;

use crate::scheduler::Handle;
use crate::scheduler::observe::score_table::ScoreTable;
use crate::serve::{TEXT, answer, refuse, to_json};

const LONGEST_NUMBER: usize = 32;
/// For the whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// `GET /debug/scores`
pub(super) async fn show(State(handle): State<Handle>, RawQuery(query): RawQuery) -> Response {
    let latest = handle.scores().latest();
    match value(query.as_deref(), "output") {
        Ok(Some("json") | None) => to_json(&RecordedScores {
            top: handle.scores().top(),
            scores: Some(latest),
        }),
        Ok(Some("table")) => {
            let tables = latest
                .iter()
                .map(|scores| format!("{}\n", ScoreTable::from(&**scores)));
            let tables: Vec<String> = tables.collect();
            answer(StatusCode::OK, TEXT, tables.join("\n"))
        }
        Ok(Some(other)) => bad(&format!("invalid output `{other}`: use json or table")),
        Err(text) => bad(&text),
    }
}

/// `PUT /debug/scores?top=N`
pub(super) async fn switch(State(handle): State<Handle>, RawQuery(query): RawQuery) -> Response {
    let top = match value(query.as_deref(), "top") {
        Ok(Some(top)) => number(top),
        Ok(None) => Err("the number of nodes is missing: use ?top=10, or 0 for none".to_owned()),
        Err(text) => Err(text),
    };
    match top {
        Ok(top) => {
            handle.scores().switch(top);
            to_json(&RecordedScores::<()> { top, scores: None })
        }
        Err(text) => bad(&text),
    }
}

/// `GET /debug/flags/s`
pub(super) async fn flag(State(handle): State<Handle>) -> Response {
    let top = handle.scores().top();
    answer(StatusCode::OK, TEXT, format!("{top}\n"))
}

/// `PUT /debug/flags/s`; the number is the body.
pub(super) async fn set_flag(State(handle): State<Handle>, body: Body) -> Response {
    let body = axum::body::to_bytes(body, LONGEST_NUMBER);
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return bad("the body is too long for a number"),
        Err(_) => return bad(&format!("the body is incomplete after {BODY_TIMEOUT:?}")),
    };
    match number(&String::from_utf8_lossy(&body)) {
        Ok(top) => {
            handle.scores().switch(top);
            let text = format!("successfully set debugTopNScores to {top}\n");
            answer(StatusCode::OK, TEXT, text)
        }
        Err(text) => bad(&text),
    }
}

fn number(text: &str) -> Result<u16, String> {
    let text = text.trim();
    score_count(text).map_err(|error| format!("invalid number of nodes `{text}`: {error}"))
}

/// The value of the only key that the query may have.
fn value<'a>(query: Option<&'a str>, key: &str) -> Result<Option<&'a str>, String> {
    let mut found = None;
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (given, value) = pair.split_once('=').unwrap_or((pair, ""));
        if given != key {
            return Err(format!("unknown parameter `{given}`: use {key}"));
        }
        found = Some(value);
    }
    Ok(found)
}

fn bad(text: &str) -> Response {
    refuse(ErrorCode::BadRequest, text)
}
