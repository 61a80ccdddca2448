//! A small HTTP client for the in-process service: a request is one line, a response is JSON.

use apiserver::{ApiService, Cluster, Options};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) struct Client {
    pub(crate) cluster: Cluster,
    service: ApiService,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    /// Null when the text is not JSON.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let items = self.body["items"].as_array().expect("a list");
        let name = |item: &'_ Value| item["metadata"]["name"].as_str().map(str::len);
        assert!(items.iter().all(|item| name(item).is_some()));
        items
            .iter()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .collect()
    }

    pub(crate) fn revision(&self) -> String {
        let revision = self.body["metadata"]["resourceVersion"].as_str();
        revision.expect("a resourceVersion").to_owned()
    }

    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::of(&Cluster::new(Options::default()))
    }

    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            service: cluster.service(),
        }
    }

    /// `request` is `METHOD /path`, `headers` are `Name: value`.
    pub(crate) async fn send(
        &self,
        request: &str,
        headers: &[&str],
        body: impl Into<Bytes>,
    ) -> Answer {
        let (method, path) = request.split_once(' ').expect("METHOD /path");
        let mut builder = Request::builder().method(method).uri(path);
        for header in headers {
            let (name, value) = header.split_once(": ").expect("Name: value");
            builder = builder.header(name, value);
        }
        let request = builder.body(Full::new(body.into())).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(&format!("POST {path}"), &[], body.to_string())
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(&format!("PUT {path}"), &[], body.to_string())
            .await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        let body = if options.is_null() {
            String::new()
        } else {
            options.to_string()
        };
        self.send(&format!("DELETE {path}"), &[], body).await
    }

    pub(crate) async fn patch(&self, path: &str, format: &str, body: Value) -> Answer {
        let content_type = format!("Content-Type: application/{format}");
        self.send(&format!("PATCH {path}"), &[&content_type], body.to_string())
            .await
    }

    /// The lines of a watch, as they come.
    pub(crate) async fn watch(&self, path: &str, headers: &[&str]) -> Watch {
        let mut builder = Request::builder().uri(path);
        for header in headers {
            let (name, value) = header.split_once(": ").expect("Name: value");
            builder = builder.header(name, value);
        }
        let request = builder.body(Full::new(Bytes::new())).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let lines = response.into_body().into_data_stream().map(|frame| {
            let frame = frame.expect("a whole line");
            assert_eq!(frame.last(), Some(&b'\n'), "one line per event");
            serde_json::from_slice(&frame).expect("JSON")
        });
        Watch {
            lines: lines.boxed_local(),
        }
    }
}

pub(crate) struct Watch {
    lines: futures::stream::LocalBoxStream<'static, Value>,
}

impl Watch {
    /// The next event; the end of the stream is `Null`.
    pub(crate) async fn next(&mut self) -> Value {
        let limit = std::time::Duration::from_secs(10);
        let next = tokio::time::timeout(limit, self.lines.next()).await;
        next.expect("an event within ten seconds")
            .unwrap_or(Value::Null)
    }

    /// `TYPE name` of the next event.
    pub(crate) async fn next_named(&mut self) -> String {
        let event = self.next().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}",
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"])
        )
    }

    pub(crate) async fn is_silent(&mut self) -> bool {
        let limit = std::time::Duration::from_millis(100);
        tokio::time::timeout(limit, self.lines.next())
            .await
            .is_err()
    }
}

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) fn configmap(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    })
}
