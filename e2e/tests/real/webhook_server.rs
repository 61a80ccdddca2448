//! A webhook server of the tests, for other webhooks and for answers that go wrong.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

const PIECES_PER_SECOND: usize = 50;

/// How a server answers a review.
pub(crate) enum Answer {
    /// Allows it with these operations.
    Patch(Value),
    /// Allows it, in an answer with this many bytes that mean nothing. So many of them are sent in a second, as over a network.
    Padded { length: usize, rate: usize },
}

pub(crate) type Answers = Arc<dyn Fn(&Value) -> Answer + Send + Sync>;

/// Serves until the process ends.
pub(crate) struct TlsServer {
    pub(crate) address: SocketAddr,
    certificate: String,
}

impl TlsServer {
    pub(crate) fn start(answers: Answers) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (acceptor, answers) = (acceptor.clone(), answers.clone());
                    // An error is a client that ended the connection.
                    tokio::spawn(async move {
                        let _ = serve(acceptor, stream, answers).await;
                    });
                }
            });
        });
        Self {
            address,
            certificate: certificate.pem(),
        }
    }

    /// A configuration that sends new pods here, and trusts the server.
    pub(crate) fn configuration(&self, name: &str, kind: &str) -> Value {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [{
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 30,
            "clientConfig": {"url": format!("https://{}/", self.address), "caBundle": self.bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }]})
    }

    pub(crate) fn bundle(&self) -> String {
        BASE64.encode(&self.certificate)
    }
}

/// One request after the other, in HTTP/1.1.
async fn serve(
    acceptor: TlsAcceptor,
    stream: tokio::net::TcpStream,
    answers: Answers,
) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    loop {
        let mut request = Vec::new();
        let body = loop {
            let mut buffer = [0; 16 << 10];
            let length = stream.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            request.extend_from_slice(&buffer[..length]);
            let Some(end) = request.windows(4).position(|it| it == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head.lines().find_map(|line| {
                line.strip_prefix("content-length: ")?
                    .trim()
                    .parse::<usize>()
                    .ok()
            });
            if request.len() >= end + 4 + length.unwrap_or(0) {
                break request[end + 4..].to_vec();
            }
        };
        let review: Value = serde_json::from_slice(&body)?;
        let (answer, rate) = match answers(&review) {
            Answer::Padded { length, rate } => {
                let response = json!({"uid": review["request"]["uid"], "allowed": true});
                let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
                // By hand: an encoder takes longer than the API server waits.
                let mut answer = review.to_string().into_bytes();
                answer.pop();
                answer.extend_from_slice(b",\"padding\":\"");
                answer.resize(answer.len() + length, b'x');
                answer.extend_from_slice(b"\"}");
                (answer, rate)
            }
            Answer::Patch(patch) => {
                let uid = &review["request"]["uid"];
                let response = json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": BASE64.encode(patch.to_string())});
                let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
                (review.to_string().into_bytes(), usize::MAX)
            }
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await?;
        for piece in answer.chunks(rate.div_ceil(PIECES_PER_SECOND)) {
            stream.write_all(piece).await?;
            if piece.len() < answer.len() {
                tokio::time::sleep(Duration::from_secs(1) / PIECES_PER_SECOND as u32).await;
            }
        }
        // TLS keeps what the socket did not take.
        stream.flush().await?;
    }
}
