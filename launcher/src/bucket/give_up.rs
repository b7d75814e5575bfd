//! The wish that something ends that waits for a network.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// Tells whether what waits is to be given up, however long the network takes.
#[derive(Clone)]
#[cfg_attr(not(feature = "s3"), expect(dead_code, reason = "without S3, nobody asks"))]
pub struct GiveUp(Arc<dyn Fn() -> bool + Send + Sync>);

impl GiveUp {
    /// By a function, which is asked several times a second.
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(asked))
    }

    /// Whether it is.
    #[cfg(feature = "s3")]
    pub(super) fn is_asked(&self) -> bool {
        (self.0)()
    }
}

impl Debug for GiveUp {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("GiveUp")
    }
}
