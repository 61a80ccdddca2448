//! Lists in pages, for servers that cannot stream them, and when a stream broke off.

use std::time::Duration;

use api::wire::envelope::{self, ListMeta};
use bytes::Bytes;
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::reflector::{Reflector, WatchError, get, percent};
use super::{Handler, RawObject};
use crate::client;

/// Objects per page: the larger, the more memory; the smaller, the more requests.
const PAGE: usize = 500;
/// For one page.
const LIST: Duration = Duration::from_secs(60);

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.5";

impl<H: Handler> Reflector<H> {
    /// Delivers all objects, page by page, and then the deleted ones.
    pub(super) async fn list(&mut self) -> Result<(), WatchError> {
        let begun = std::time::Instant::now();
        self.store.begin();
        let mut token = String::new();
        loop {
            let (bytes, protobuf) = self.page(&token).await?;
            let (meta, items) = read_page(bytes, protobuf).map_err(WatchError::Other)?;
            let mut changes = Vec::with_capacity(items.len());
            for raw in items {
                self.applied(&raw, &mut changes);
            }
            self.deliver(changes).await;
            token = meta.continue_token;
            if token.is_empty() {
                self.resource_version = meta.resource_version;
                break;
            }
        }
        self.listed(begun).await;
        Ok(())
    }

    async fn page(&self, token: &str) -> Result<(Bytes, bool), WatchError> {
        let mut uri = format!("{}?limit={PAGE}", self.resource.path);
        uri += &self.resource.selectors();
        if !token.is_empty() {
            // Tokens are base64 for URLs, but the API does not promise it.
            uri += &format!("&continue={}", percent(token));
        }
        let accept = if self.resource.protobuf {
            PROTOBUF
        } else {
            JSON
        };
        let request = get(uri, accept)?;
        let silence = self.timeouts.answer;
        Ok(client::receive(&self.client, request, silence, LIST).await?)
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

fn read_page(bytes: Bytes, protobuf: bool) -> Result<(ListMeta, Vec<RawObject>), String> {
    if protobuf {
        let message = envelope::open(&bytes).map_err(|error| error.to_string())?;
        let list = envelope::List::decode(message).map_err(|error| error.to_string())?;
        let items = list.items.into_iter().map(RawObject::Protobuf).collect();
        return Ok((list.metadata, items));
    }
    let page: Page = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let item = |raw: &&RawValue| RawObject::Json(bytes.slice_ref(raw.get().as_bytes()));
    let items = page.items.iter().map(item).collect();
    Ok((page.metadata, items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_either_form() {
        let json = br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1},{"b":2}]}"#;
        let (meta, items) = read_page(Bytes::from_static(json), false).unwrap();
        assert_eq!((&*meta.resource_version, &*meta.continue_token), ("7", "t"));
        let raw = |text: &'static str| RawObject::Json(Bytes::from_static(text.as_bytes()));
        assert_eq!(items, [raw(r#"{"a":1}"#), raw(r#"{"b":2}"#)]);

        let list = envelope::List {
            metadata: meta.clone(),
            items: vec![Bytes::from_static(b"x")],
        };
        let bytes = envelope::wrap("v1", "PodList", &list);
        let read = read_page(bytes.into(), true).unwrap();
        assert_eq!(
            read,
            (meta, vec![RawObject::Protobuf(Bytes::from_static(b"x"))])
        );
        assert!(read_page(Bytes::from_static(b"{}"), false).is_err());
    }
}
