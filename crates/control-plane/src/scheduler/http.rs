//! The HTTP API of the scheduler.
//!
//! | path | answer |
//! |---|---|
//! | `/configz` | `{"componentconfig": KubeSchedulerConfiguration}` |
//! | `/tidepool/v1/status` | [`SchedulerStatus`](api::http::SchedulerStatus) |
//! | `/tidepool/v1/pods/{namespace}/{name}/explain` | [`PodReport`](api::http::PodReport) |
//! | `/debug/scores` | the scores of the latest decisions; `?output=table`; `PUT ?top=N` records the scores of N nodes |
//! | `/debug/flags/s` | N alone; `PUT` as Koordinator has it, with N as the body |
//! | `/debug/cache`, `/debug/cache/{node}` | the engine's state of the nodes at one instant |
//!
//! No path changes a decision.

mod dump;
mod scores;

use api::http::{CACHE, ErrorCode, SCORES, STATUS, explain_path};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::{Handle, QueryError};
use crate::serve::{Check, Component, JSON, refuse, to_json};

impl Component for Handle {
    fn healthy(&self) -> Vec<Check> {
        self.health_checks()
    }

    fn ready(&self) -> Vec<Check> {
        self.readiness_checks()
    }

    fn metrics(&self) -> String {
        self.metrics_text()
    }

    fn routes() -> Router<Self> {
        Router::new()
            .route("/configz", get(configz))
            .route(STATUS, get(status))
            .route(&explain_path("{namespace}", "{name}"), get(explain))
            .route(SCORES, get(scores::show).put(scores::switch))
            .route("/debug/flags/s", get(scores::flag).put(scores::set_flag))
            .route(CACHE, get(cache))
            .route(&format!("{CACHE}/{{node}}"), get(cached_node))
    }

    fn accepts_put(path: &str) -> bool {
        matches!(path, SCORES | "/debug/flags/s")
    }
}

async fn configz(State(handle): State<Handle>) -> Response {
    to_json(&json!({"componentconfig": handle.configuration()}))
}

async fn status(State(handle): State<Handle>) -> Response {
    to_json(&handle.whole_status().await)
}

async fn explain(
    State(handle): State<Handle>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    match handle.explain(&namespace, &name).await {
        Ok(Some(report)) => to_json(&report),
        Ok(None) => {
            let text = format!(
                "unknown pod {namespace}/{name}: it does not exist, has ended, or belongs to another scheduler"
            );
            refuse(ErrorCode::PodNotFound, &text)
        }
        Err(why) => unanswered(why),
    }
}

async fn cache(State(handle): State<Handle>) -> Response {
    match handle.nodes().await {
        Ok((dump, permit)) => {
            let body = Body::from_stream(dump::stream(dump, permit, dump::PATIENCE));
            (StatusCode::OK, [(CONTENT_TYPE, JSON)], body).into_response()
        }
        Err(why) => unanswered(why),
    }
}

async fn cached_node(State(handle): State<Handle>, Path(node): Path<String>) -> Response {
    let dump = handle.node(&node).await;
    match dump.map(|dump| dump.as_ref().and_then(dump::one_node)) {
        Ok(Some(dump)) => to_json(&dump),
        Ok(None) => {
            let text = format!("unknown node {node}");
            refuse(ErrorCode::NodeNotFound, &text)
        }
        Err(why) => unanswered(why),
    }
}

fn unanswered(why: QueryError) -> Response {
    refuse(ErrorCode::Unavailable, &why.to_string())
}
