//! Seals what agents pass on to each other.

use protocol::cluster::agent::ToAgent;
use protocol::cluster::tree::TreeMark;
use protocol::transport::{Sealer, TransportError};

/// See the module.
#[derive(Debug)]
pub struct TreeSealer {
    sealer: Sealer,
    /// The newest mark: it is told to many.
    mark: Option<TreeMark>,
}

impl TreeSealer {
    /// With that key.
    pub fn new(sealer: Sealer) -> Self {
        Self { sealer, mark: None }
    }

    /// Seals a message of the command tree; others stay as they are.
    ///
    /// # Errors
    /// Where that can't be done.
    pub fn seal(&mut self, message: &mut ToAgent) -> Result<(), TransportError> {
        match message {
            ToAgent::Tree(call) => call.seal = Some(self.sealer.seal(&call.order)?),
            ToAgent::TreeReset(mark) => {
                let known = self.mark.as_ref().filter(|known| known.generation == mark.generation);
                let sealed = match known {
                    Some(known) => known.clone(),
                    None => mark.sealed(&self.sealer)?,
                };
                *mark = sealed.clone();
                self.mark = Some(sealed);
            }
            _ => {}
        }
        Ok(())
    }
}
