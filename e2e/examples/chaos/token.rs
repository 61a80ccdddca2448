//! A token of a service account that has expired, signed as the API server signs them.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rcgen::{KeyPair, SigningKey};
use serde_json::json;

const ISSUER: &str = "https://kubernetes.default.svc";

pub(crate) struct Account<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// It was valid for an hour, until a minute ago.
pub(crate) fn expired(key_pem: &str, account: &Account<'_>) -> Result<String> {
    let key = KeyPair::from_pem(key_pem).context("the key of the accounts cannot be read")?;
    let now = jiff::Timestamp::now().as_second();
    let Account {
        namespace,
        name,
        uid,
    } = account;
    let header = json!({"alg": "ES256", "typ": "JWT"});
    let claims = json!({
        "iss": ISSUER, "aud": [ISSUER], "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "iat": now - 3_660, "nbf": now - 3_660, "exp": now - 60,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
    });
    let encode = |value: serde_json::Value| BASE64.encode(value.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = key.sign(signed.as_bytes())?;
    let signature = fixed(&signature).context("the signature is no pair of numbers")?;
    Ok(format!("{signed}.{}", BASE64.encode(signature)))
}

/// The two numbers of an ECDSA signature with 32 bytes each, as tokens have them, from their DER form.
fn fixed(der: &[u8]) -> Option<[u8; 64]> {
    // A sequence of less than 128 bytes.
    let [0x30, _, rest @ ..] = der else {
        return None;
    };
    let mut fixed = [0; 64];
    let mut rest = rest;
    for half in fixed.chunks_mut(32) {
        let [0x02, length, after @ ..] = rest else {
            return None;
        };
        let (number, after) = after.split_at_checked(usize::from(*length))?;
        rest = after;
        // A leading zero only says that it is positive.
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let number = &number[zeros..];
        let start = 32_usize.checked_sub(number.len())?;
        half[start..].copy_from_slice(number);
    }
    Some(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_has_two_numbers_of_32_bytes() {
        let mut der = vec![0x30, 70, 0x02, 33, 0];
        der.extend([0xff; 32]);
        der.extend([0x02, 31]);
        der.extend([7; 31]);
        let fixed = fixed(&der).unwrap();
        assert_eq!(fixed[..32], [0xff; 32]);
        assert_eq!((fixed[32], fixed[33], fixed[63]), (0, 7, 7));
    }

    #[test]
    fn a_token_has_three_parts() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let account = Account {
            namespace: "n",
            name: "a",
            uid: "u",
        };
        let token = expired(&key, &account).unwrap();
        let parts: Vec<_> = token
            .split('.')
            .map(|it| BASE64.decode(it).unwrap())
            .collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2].len(), 64);
    }
}
