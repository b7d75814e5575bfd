//! Seals what agents show to each other: orders that they pass on, and grants.

use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::grant::Grant;
use protocol::cluster::image_key::ImageKeys;
use protocol::cluster::tree::TreeMark;
use protocol::transport::{Sealer, TransportError};

use super::needed::needed;

/// See the module.
#[derive(Debug)]
pub struct OrderSealer {
    sealer: Sealer,
    /// The newest mark: it is told to many.
    mark: Option<TreeMark>,
}

impl OrderSealer {
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

    /// What a node must be granted to execute an order, at this time in milliseconds since 1970 UTC. With the welcome
    /// comes the time alone. `keys`: those that the order takes. None: it takes nothing.
    ///
    /// # Errors
    /// Where that can't be sealed.
    pub fn granted(
        &self,
        order: &ToAgent,
        node: &NodeName,
        now_ms: u64,
        keys: Option<ImageKeys>,
    ) -> Result<Option<ToAgent>, TransportError> {
        let needed = needed(order, node);
        if needed.is_empty() && keys.is_none() && !matches!(order, ToAgent::Welcome { .. }) {
            return Ok(None);
        }
        let sealed = needed.into_iter().map(|scope| Grant::new(scope, now_ms, &self.sealer));
        let grants = sealed.collect::<Result<_, _>>()?;
        Ok(Some(ToAgent::Granted { grants, now_ms, keys: keys.into_iter().collect() }))
    }
}
