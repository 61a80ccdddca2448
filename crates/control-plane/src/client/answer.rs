//! Requests that are answered at once.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use reconcile::client::causes::of_request;
use reconcile::client::{Refusal, refusal};
use tower::ServiceExt;

use super::exchange::Exchange;

/// Sends a request and reads its answer, all within `limit`.
pub(crate) async fn send(
    exchange: &Exchange,
    request: Request<Full<Bytes>>,
    limit: Duration,
) -> Result<Bytes, Refusal> {
    let answer = exchange.clone().oneshot(request);
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(answer)) if answer.status().is_success() => Ok(answer.into_body()),
        Ok(Ok(answer)) => Err(refusal(answer.status(), answer.headers(), answer.body())),
        Ok(Err(error)) => Err(Refusal::Unknown(of_request(&*error))),
        Err(_) => Err(Refusal::Unknown(format!("no answer after {limit:?}"))),
    }
}
