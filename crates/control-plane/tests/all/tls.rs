//! Certificates: that of the server, on its Lease and after a rotation, and those of clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::contracts::{SCHEDULER_NAMES, SERVER, SERVER_CERTIFICATE, SERVER_POD};
use api::http::Role;
use control_plane::serve::{Serve, TlsFiles, fingerprint};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::json;

use crate::election::{LOCK, becomes, candidate};
use crate::http::any_port;
use crate::support::{Fixture, Reviews, eventually, object, options};

const SOON: Duration = Duration::from_millis(100);

/// A certificate authority of this name.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, in files.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
}

impl Identity {
    fn of(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        }
    }

    /// A client's, for this user and group; `change` may make it invalid.
    fn client(
        directory: &Path,
        issuer: &CertifiedIssuer<'static, KeyPair>,
        (user, group): (&str, &str),
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, user);
        parameters
            .distinguished_name
            .push(DnType::OrganizationName, group);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, issuer).unwrap();
        let name = fingerprint(certificate.der());
        let identity = Self::of(directory, &name);
        std::fs::write(&identity.certificate, certificate.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    /// Writes a new self-signed one, and returns its fingerprint.
    fn renew(&self) -> String {
        self.renew_with(|_| {})
    }

    fn renew_with(&self, change: impl FnOnce(&mut CertificateParams)) -> String {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut parameters);
        let certificate = parameters.self_signed(&key).unwrap();
        std::fs::write(&self.certificate, certificate.pem()).unwrap();
        std::fs::write(&self.key, key.serialize_pem()).unwrap();
        fingerprint(certificate.der())
    }

    fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }
}

/// A client with this certificate and token.
fn client(fixture: &Fixture, identity: Option<&Identity>, token: Option<&str>) -> kube::Client {
    let url = format!("https://{}", fixture.server());
    let mut config = kube::Config::new(url.parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    if let Some(identity) = identity {
        let path = |path: &Path| Some(path.display().to_string());
        config.auth_info.client_certificate = path(&identity.certificate);
        config.auth_info.client_key = path(&identity.key);
    }
    kube::Client::try_from(config).unwrap()
}

/// Status and body of a request.
async fn ask(client: &kube::Client, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(kube::client::Body::empty());
    let answer = client.send(request.unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await;
    let body = body.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

/// Status and body of a request with this certificate and token.
async fn get(
    fixture: &Fixture,
    path: &str,
    identity: Option<&Identity>,
    token: Option<&str>,
) -> (u16, String) {
    ask(&client(fixture, identity, token), path).await
}

/// Publishes the client CA as the API server does.
async fn publish(fixture: &Fixture, authority: &CertifiedIssuer<'static, KeyPair>) {
    const NAME: &str = "extension-apiserver-authentication";
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "kube-system");
    let _ = maps.delete(NAME, &DeleteParams::default()).await;
    let map =
        object(json!({"metadata": {"name": NAME}, "data": {"client-ca-file": authority.pem()}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_with_a_certificate_of_the_client_ca_are_authorized() {
    let directory = tempfile::tempdir().unwrap();
    let server = Identity::of(directory.path(), "server");
    server.renew();
    let mut fixture = Fixture::new().await;
    let mut options = options();
    options.serve = Some(Serve {
        tls: Some(server.files()),
        reload: SOON,
        ..any_port()
    });
    fixture.schedule_by(Reviews::default().wrap(&fixture), options);

    let (first, second) = (authority("first"), authority("second"));
    let client = |issuer, user, group, change: fn(&mut CertificateParams)| {
        Identity::client(directory.path(), issuer, (user, group), change)
    };
    let reader = client(&first, "reader", "g", |_| {});
    let (code, body) = get(&fixture, "/metrics", Some(&reader), None).await;
    assert_eq!(code, 500, "{body}");
    let words =
        "ConfigMap kube-system/extension-apiserver-authentication: configmaps \\\"extension";
    assert!(body.contains(words), "{body}");

    publish(&fixture, &first).await;
    tokio::time::sleep(2 * SOON).await;
    let master = client(&first, "admin", "system:masters", |_| {});
    let unnamed = client(&first, "", "system:masters", |_| {});
    let foreign = client(&second, "reader", "g", |_| {});
    let expired = client(&first, "reader", "g", |it| {
        it.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let for_servers = client(&first, "reader", "g", |it| {
        it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    for (case, path, identity, token, want, words) in [
        ("allowed", "/metrics", Some(&reader), None, 200, "# EOF"),
        (
            "not allowed",
            "/configz",
            Some(&reader),
            None,
            403,
            "user `reader` has no",
        ),
        (
            "an administrator",
            "/debug/cache",
            Some(&master),
            None,
            200,
            "{",
        ),
        (
            "of another CA",
            "/metrics",
            Some(&foreign),
            None,
            401,
            "not accepted: UnknownIssuer",
        ),
        (
            "of another CA, with a token",
            "/metrics",
            Some(&foreign),
            Some("reader"),
            200,
            "#",
        ),
        (
            "a token counts less",
            "/debug/cache",
            Some(&master),
            Some("reader"),
            200,
            "{",
        ),
        (
            "expired",
            "/metrics",
            Some(&expired),
            None,
            401,
            "certificate expired",
        ),
        (
            "of a server",
            "/metrics",
            Some(&for_servers),
            None,
            401,
            "not accepted: ",
        ),
        (
            "without a user",
            "/metrics",
            Some(&unnamed),
            None,
            401,
            "no common name",
        ),
        (
            "no credentials",
            "/metrics",
            None,
            None,
            401,
            "neither a client certificate nor",
        ),
        (
            "health checks are open",
            "/livez",
            Some(&foreign),
            None,
            200,
            "ok",
        ),
    ] {
        let (code, body) = get(&fixture, path, identity, token).await;
        assert_eq!(code, want, "{case}: {body}");
        assert!(body.contains(words), "{case}: {body}");
    }

    // The CA is rotated.
    publish(&fixture, &second).await;
    eventually("certificates of the new CA are accepted", || async {
        match get(&fixture, "/metrics", Some(&foreign), None).await {
            (200, _) => Ok(()),
            answer => Err(answer),
        }
    })
    .await;
    assert_eq!(get(&fixture, "/metrics", Some(&reader), None).await.0, 401);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_has_the_fingerprint_of_the_certificate_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let server = Identity::of(directory.path(), "server");
    let first = server.renew();
    let fixture = Fixture::new().await;
    let mut options = candidate("a");
    options.serve = Some(Serve {
        tls: Some(server.files()),
        pod: Some("infra/scheduler-0".to_owned()),
        reload: SOON,
        ..any_port()
    });
    let running = fixture.start(options).unwrap();
    becomes(&running, Role::Leader).await;
    let leases: Api<Lease> = Api::default_namespaced(fixture.client.clone());
    let annotations = || async {
        let lease = leases.get(LOCK).await.unwrap();
        lease.metadata.annotations.unwrap_or_default()
    };
    let found = annotations().await;
    let url = format!("https://{}", running.server().unwrap());
    let want = [
        (SERVER, &*url),
        (SERVER_CERTIFICATE, &first),
        (SERVER_POD, "infra/scheduler-0"),
        (SCHEDULER_NAMES, "tidepool"),
    ];
    for (name, value) in want {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }

    // A file that is no certificate changes nothing; the next one is used.
    std::fs::write(&server.certificate, "").unwrap();
    tokio::time::sleep(5 * SOON).await;
    assert_eq!(annotations().await[SERVER_CERTIFICATE], first);
    let second = server.renew();
    eventually("the Lease names the new certificate", || async {
        match annotations().await[SERVER_CERTIFICATE].clone() {
            found if found == second => Ok(()),
            found => Err(found),
        }
    })
    .await;
    assert_eq!(presented(running.server().unwrap()).await, second);
    running.stop().await;
    assert_eq!(annotations().await.len(), 0);
}

/// The fingerprint of the certificate that a server presents.
async fn presented(server: std::net::SocketAddr) -> String {
    let mut config = kube::Config::new(format!("https://{server}").parse().unwrap());
    config.accept_invalid_certs = true;
    let config = kube::client::ConfigExt::rustls_client_config(&config).unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    fingerprint(&stream.get_ref().1.peer_certificates().unwrap()[0])
}

/// In so many seconds.
fn soon(seconds: u64) -> impl FnOnce(&mut CertificateParams) {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let end = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(seconds);
    move |parameters| parameters.not_after = end
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_expire_while_they_are_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let server = Identity::of(directory.path(), "server");
    server.renew_with(soon(2));
    let mut fixture = Fixture::new().await;
    let mut options = options();
    options.serve = Some(Serve {
        tls: Some(server.files()),
        reload: SOON,
        ..any_port()
    });
    fixture.schedule_by(Reviews::default().wrap(&fixture), options);
    let authority = authority("ca");
    publish(&fixture, &authority).await;
    // One connection, before and after the end of the client's certificate.
    let reader = Identity::client(directory.path(), &authority, ("reader", "g"), soon(2));
    let client = client(&fixture, Some(&reader), None);
    assert_eq!(ask(&client, "/metrics").await.0, 200);
    let (code, body) = eventually("the client's certificate is over", || async {
        match ask(&client, "/metrics").await {
            (200, _) => Err("it is valid"),
            answer => Ok(answer),
        }
    })
    .await;
    assert_eq!(code, 401, "{body}");
    assert!(body.contains("certificate expired"), "{body}");
    // That of the server is over, too: probes do not verify it.
    assert_eq!(get(&fixture, "/livez", None, None).await.0, 200);
    assert_eq!(get(&fixture, "/metrics", None, Some("reader")).await.0, 200);
    let renewed = server.renew();
    eventually("the new certificate is used", || async {
        match presented(fixture.server()).await {
            found if found == renewed => Ok(()),
            found => Err(found),
        }
    })
    .await;
    fixture.stop().await;
}
