//! The Secret of the webhook, which `deploy/webhook.yaml` has without data: it keeps the certificate when the manifest is applied
//! again, and the webhook says how to restore it. The gate keeps its certificate in the same way.

use e2e::{Process, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::shared_cluster::SHORT;
use crate::webhook_fixture::{Fixture, PATIENCE, manifests, mid};

const SECRET: &str = "/api/v1/namespaces/tidepool-system/secrets/tidepool-webhook";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-webhook";
const RESTORE: &str = "kubectl create secret generic tidepool-webhook -n tidepool-system";

/// The answer of `/readyz` once it has these words.
fn readyz(process: &Process, code: u16, words: &str) {
    eventually(&format!("/readyz says {words}"), PATIENCE, || {
        let server = deployed::server(process)?;
        match deployed::ask(&server, "/readyz", None) {
            (found, text) if found == code && text.contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn the_certificate_stays_and_a_deleted_secret_is_named() {
    let fixture = Fixture::start(&[], Some(10));
    let api = &fixture.api;
    assert_eq!(api.get(SECRET).unwrap()["data"], Value::Null);
    let (first, address) = fixture.webhook("webhook-1", &[]);
    fixture.proxy.forward_to(&[address]);
    fixture.wait_until_asked();
    let kept = || {
        let bundle =
            api.get(CONFIGURATION).unwrap()["webhooks"][0]["clientConfig"]["caBundle"].take();
        (api.get(SECRET).unwrap()["data"].take(), bundle)
    };
    let before = kept();
    assert!(
        before.0["tls.key"].is_string() && before.1.is_string(),
        "{before:?}"
    );
    for flags in [&[][..], &["--server-side"], &["--server-side"], &[]] {
        fixture.apply(manifests(), flags);
        assert_eq!(kept(), before, "kubectl apply {flags:?}");
    }

    // A replica that has a certificate serves it, a new one has none: both name the command.
    api.delete(SECRET).unwrap();
    let missing = format!(
        "Secret tidepool-system/tidepool-webhook does not exist; restore it with `{RESTORE}`"
    );
    readyz(&first, 200, &missing);
    assert!(first.log().contains(RESTORE), "{}", first.last_words());
    fixture.namespace("enforced", json!({"tidepool.io/admission": "enforce"}));
    fixture.dry_run("enforced", &mid("served")).unwrap();
    let second = fixture.start_webhook("webhook-2", &[]);
    readyz(&second, 500, &missing);
    let kubectl = fixture.control_plane.kubectl().unwrap();
    let arguments: Vec<&str> = RESTORE.split(' ').skip(1).collect();
    let restored = kubectl.run(&arguments, SHORT).unwrap();
    assert_eq!(restored.code, Some(0), "{restored:?}");
    for process in [&first, &second] {
        eventually("all is well again", PATIENCE, || {
            let server = deployed::server(process)?;
            match deployed::ask(&server, "/readyz", None) {
                (200, text) if text == "ok" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
    eventually("pods are judged", PATIENCE, || {
        fixture.dry_run("enforced", &mid("again"))
    });
}
