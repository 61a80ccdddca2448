//! The webhook's certificate changes under load, and no call is lost. `TIDEPOOL_FULL` has the large numbers.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use e2e::{Api, eventually};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};

use crate::webhook_fixture::{Fixture, PATIENCE, mid};

fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

/// The CAs that the configuration trusts now.
fn roots(configuration: &Value) -> RootCertStore {
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"]
        .as_str()
        .unwrap_or_default();
    let bundle = BASE64.decode(bundle).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).flatten());
    roots
}

/// One call: a handshake, as the API server does it.
fn handshake(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    let mut connection =
        ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
    while connection.is_handshaking() {
        connection
            .complete_io(&mut stream)
            .map_err(|error| error.to_string())?;
    }
    let certificates = connection.peer_certificates().unwrap_or_default();
    Ok(certificates
        .first()
        .map(|it| it.to_vec())
        .unwrap_or_default())
}

#[test]
fn no_call_is_lost_while_certificates_change() {
    let fixture = Fixture::start(&[], Some(30));
    let (calls, seconds) = if is_full() { (100_000, 10) } else { (4_000, 2) };
    let renewal = format!("--certificate-renewal={seconds}s");
    let authority = format!("--ca-renewal={}s", 2 * seconds);
    // Long enough for a loaded machine to see a new CA before it is used.
    let flags = [&renewal[..], &authority, "--ca-settle-time=3s"];
    let (_first, one) = fixture.webhook("webhook-1", &flags);
    let (_second, two) = fixture.webhook("webhook-2", &flags);
    fixture.proxy.forward_to(&[one, two]);
    fixture.wait_until_asked();
    fixture.namespace("enforced", json!({"tidepool.io/admission": "enforce"}));

    let path =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-webhook";
    let trust = |configuration: &Value| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = config
            .with_root_certificates(roots(configuration))
            .with_no_client_auth();
        // Each call must show its certificate.
        config.resumption = rustls::client::Resumption::disabled();
        Arc::new(config)
    };
    let trusted = Mutex::new(trust(&fixture.api.get(path).unwrap()));
    let failures = Mutex::new(Vec::new());
    let leaves = Mutex::new(std::collections::BTreeSet::new());
    let sent = AtomicU64::new(0);
    let mut asked = 0;
    let bundles = Mutex::new(std::collections::BTreeSet::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let i = sent.fetch_add(1, Ordering::Relaxed);
                    if i >= calls {
                        return;
                    }
                    // 200 calls in a second; a machine that is slower than that sends them later.
                    let due = begun + Duration::from_millis(5) * u32::try_from(i).unwrap();
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let config = trusted.lock().unwrap().clone();
                    match handshake(fixture.proxy.address, &config) {
                        Ok(leaf) => drop(leaves.lock().unwrap().insert(leaf)),
                        Err(error) => failures.lock().unwrap().push(format!("call {i}: {error}")),
                    }
                }
            });
        }
        // The configuration as an API server sees it: a moment later.
        scope.spawn(|| {
            let api = Api::new(&fixture.control_plane.admin()).unwrap();
            while sent.load(Ordering::Relaxed) < calls {
                let configuration = api.get(path).unwrap();
                let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].to_string();
                bundles.lock().unwrap().insert(bundle);
                *trusted.lock().unwrap() = trust(&configuration);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // The API server's own calls must not fail either: in this namespace that would refuse the pod.
        while sent.load(Ordering::Relaxed) < calls {
            let stored = fixture.dry_run("enforced", &mid("case"));
            assert!(stored.is_ok(), "{stored:?}");
            asked += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let bundles = bundles.into_inner().unwrap();
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {calls}: {:?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
    let leaves = leaves.into_inner().unwrap().len();
    println!(
        "{calls} calls, {asked} of the API server: {leaves} certificates, {} CA bundles",
        bundles.len()
    );
    // On a slow machine there are fewer renewals than planned, but there must be some.
    assert!(
        leaves >= 4 && bundles.len() >= 3,
        "{leaves} certificates, {} bundles",
        bundles.len()
    );
}

/// A replica takes over from the one that made the certificate, and both serve the same.
#[test]
fn replicas_share_a_certificate_and_are_ready_with_it() {
    let fixture = Fixture::start(&[], Some(30));
    let (first, one) = fixture.webhook("webhook-1", &[]);
    let (second, two) = fixture.webhook("webhook-2", &[]);
    let path =
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tidepool-webhook";
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let leaf = eventually(
        "both replicas serve the certificate of the Secret",
        PATIENCE,
        || {
            let roots = roots(&fixture.api.get(path).map_err(|error| error.to_string())?);
            let config = ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .unwrap();
            let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
            let (one, two) = (handshake(one, &config)?, handshake(two, &config)?);
            match one == two {
                true => Ok(one),
                false => Err("they differ".to_owned()),
            }
        },
    );
    let secret = fixture
        .api
        .get("/api/v1/namespaces/tidepool-system/secrets/tidepool-webhook")
        .unwrap();
    let stored = BASE64
        .decode(secret["data"]["tls.crt"].as_str().unwrap())
        .unwrap();
    let stored = CertificateDer::from_pem_slice(&stored).unwrap();
    assert_eq!(stored.as_ref(), leaf);
    for process in [&first, &second] {
        eventually("it is ready", PATIENCE, || {
            let log = process.log();
            let (_, rest) = log.split_once("serving on http://").ok_or(log.clone())?;
            let server = rest.lines().next().unwrap_or_default().trim();
            match crate::deployed::ask(&format!("http://{server}"), "/readyz?verbose", None) {
                (200, text) if text.contains("[+]certificate ok") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
}
