//! How a coordinator that carries on for a lost one reaches the others.

use super::identity::dial;
use super::{Connection, Credentials, Greeting, RefusalKind, Role, TransportError};
use crate::cluster::succession::{Followed, FromSuccessor, ToSuccessor};
use crate::cluster::{NodeName, VERSIONS};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;

/// The new coordinator, as it shows itself to those to whom it connects.
#[derive(Debug, Clone)]
pub struct Successor {
    client: Arc<ClientConfig>,
    followed: Followed,
}

impl Successor {
    /// With credentials of the role coordinator.
    ///
    /// # Errors
    /// Where they can't be used.
    pub fn new(credentials: &Credentials, followed: Followed) -> Result<Self, TransportError> {
        Ok(Self { client: credentials.client()?, followed })
    }

    /// The same, as the coordinator of another term.
    #[must_use]
    pub fn with(&self, followed: Followed) -> Self {
        Self { client: Arc::clone(&self.client), followed }
    }

    /// As what it shows itself.
    #[must_use]
    pub fn followed(&self) -> &Followed {
        &self.followed
    }

    fn greeting(&self) -> Greeting {
        Greeting::Successor { version: VERSIONS, followed: self.followed.clone() }
    }

    /// Connects to a member's agent.
    ///
    /// # Errors
    /// Where it does not answer, is not that node's agent, or refuses.
    pub async fn connect_agent(
        &self,
        node: &NodeName,
        address: SocketAddr,
    ) -> Result<Connection<FromSuccessor, ToSuccessor>, TransportError> {
        let role = Role::Agent(node.clone());
        let greeting = self.greeting();
        let (_, connection) = dial(&address.to_string(), &role, &self.client, &greeting).await?;
        Ok(connection.retype())
    }

    /// Shows itself to whoever listens where a coordinator was. True: that one ends, as its term is
    /// lower; false: it goes on.
    ///
    /// # Errors
    /// Where no coordinator of this cluster answers.
    pub async fn tell_coordinator(&self, address: &str) -> Result<bool, TransportError> {
        match dial(address, &Role::Coordinator, &self.client, &self.greeting()).await {
            Ok(_) => Ok(false),
            Err(error) if error.refusal() == Some(RefusalKind::Superseded) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
