//! Words of the coordinator that others pass on: signed with the key of its certificate.

use super::crypto::provider;
use super::verify::identify;
use super::{Credentials, Holder, Role, TransportError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::SignatureScheme;
use rustls::pki_types::CertificateDer;
use rustls::sign::Signer;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};
use webpki::EndEntityCert;

/// What precedes everything that is sealed: TLS signs other texts with the same key.
const CONTEXT: &[u8] = b"ckptd sealed by the coordinator\0";
/// Bytes of the largest certificate that is looked at, in base64.
const MAX_CERTIFICATE: usize = 8 * 1024;

/// A signature of the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The coordinator's certificate: DER, base64.
    certificate: String,
    /// Ed25519, base64.
    signature: String,
}

/// Signs for the coordinator.
pub struct Sealer {
    certificate: String,
    signer: Box<dyn Signer>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

fn message(what: &impl Serialize) -> Result<Vec<u8>, TransportError> {
    let mut message = CONTEXT.to_vec();
    serde_json::to_writer(&mut message, what)
        .map_err(|error| TransportError::Unfit(format!("write what is to be sealed: {error}")))?;
    Ok(message)
}

impl Sealer {
    /// With these credentials, which must be a coordinator's for anybody to accept the seals.
    ///
    /// # Errors
    /// Where their key is none that ckptd makes.
    pub fn new(credentials: &Credentials) -> Result<Self, TransportError> {
        let key = provider().key_provider.load_private_key(credentials.key())?;
        let signer = key
            .choose_scheme(&[SignatureScheme::ED25519])
            .ok_or_else(|| TransportError::Unfit("the key is not an Ed25519 key".to_owned()))?;
        Ok(Self { certificate: STANDARD.encode(credentials.certificate()), signer })
    }

    /// Seals a value: every field of it counts.
    ///
    /// # Errors
    /// Where it has no JSON form.
    pub fn seal(&self, what: &impl Serialize) -> Result<Seal, TransportError> {
        let signature = self.signer.sign(&message(what)?)?;
        let certificate = self.certificate.clone();
        Ok(Seal { certificate, signature: STANDARD.encode(signature) })
    }
}

impl Seal {
    /// Whether a coordinator certified by this authority has sealed that value.
    ///
    /// # Errors
    /// Where it has not.
    pub fn check(
        &self,
        authority: &CertificateDer<'_>,
        what: &impl Serialize,
    ) -> Result<(), TransportError> {
        let unfit = |text: &str| TransportError::Unfit(text.to_owned());
        if self.certificate.len() > MAX_CERTIFICATE {
            return Err(unfit("the seal's certificate is too large"));
        }
        let decode = |text: &str| {
            STANDARD.decode(text).map_err(|_| unfit("the seal is not written in base64"))
        };
        let certificate = CertificateDer::from(decode(&self.certificate)?);
        let shown = [certificate];
        match identify(&shown, std::slice::from_ref(authority))? {
            Holder::Member { role: Role::Coordinator, .. } => {}
            Holder::Member { role, .. } => {
                return Err(TransportError::Unfit(format!("it is sealed by {role}")));
            }
            Holder::Stranger { reason, .. } => return Err(TransportError::Unfit(reason)),
        }
        let certificate = EndEntityCert::try_from(&shown[0])
            .map_err(|_| unfit("the seal's certificate can't be read"))?;
        certificate
            .verify_signature(webpki::ring::ED25519, &message(what)?, &decode(&self.signature)?)
            .map_err(|_| unfit("the seal is not the coordinator's"))
    }
}

/// By what a member knows its cluster's coordinator. Clones are the same, also once the cluster has another authority.
#[derive(Debug, Clone)]
pub struct Trust(Arc<RwLock<CertificateDer<'static>>>);

impl Trust {
    /// In the coordinators that this authority has certified.
    #[must_use]
    pub fn in_authority(certificate: CertificateDer<'static>) -> Self {
        Self(Arc::new(RwLock::new(certificate)))
    }

    /// In those of this one, and in no others, from now on.
    pub(super) fn exchange(&self, authority: &CertificateDer<'static>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clone_from(authority);
    }

    /// As [`Seal::check`], for what must have a seal.
    ///
    /// # Errors
    /// Where there is none, or another's.
    pub fn check(&self, seal: Option<&Seal>, what: &impl Serialize) -> Result<(), TransportError> {
        let seal = seal.ok_or_else(|| TransportError::Unfit("it has no seal".to_owned()))?;
        let authority = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        seal.check(&authority, what)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Authority;
    use super::*;

    #[test]
    fn only_a_coordinator_of_the_cluster_seals() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        let stranger = Authority::open(other.path()).unwrap();
        let credentials = authority.issue(&Role::Coordinator).unwrap();
        let seal = Sealer::new(&credentials).unwrap().seal(&("freeze", 7)).unwrap();
        let trusted = credentials.authority();
        seal.check(trusted, &("freeze", 7)).unwrap();
        seal.check(trusted, &("freeze", 8)).unwrap_err();
        let text = serde_json::to_string(&seal).unwrap();
        let back: Seal = serde_json::from_str(&text).unwrap();
        back.check(trusted, &("freeze", 7)).unwrap();

        let member = authority.issue(&Role::Agent("node1".parse().unwrap())).unwrap();
        let forged = Sealer::new(&member).unwrap().seal(&("freeze", 7)).unwrap();
        let error = forged.check(trusted, &("freeze", 7)).unwrap_err();
        assert!(error.to_string().contains("the agent of node1"), "{error}");
        // Another's certificate does not help.
        let mixed = Seal { certificate: seal.certificate.clone(), ..forged };
        mixed.check(trusted, &("freeze", 7)).unwrap_err();

        let foreign = stranger.issue(&Role::Coordinator).unwrap();
        let foreign = Sealer::new(&foreign).unwrap().seal(&("freeze", 7)).unwrap();
        foreign.check(trusted, &("freeze", 7)).unwrap_err();
        let garbage = Seal { certificate: "!".into(), signature: "AA".into() };
        garbage.check(trusted, &("freeze", 7)).unwrap_err();
    }
}
