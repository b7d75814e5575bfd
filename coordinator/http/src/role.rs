//! What somebody who looks at the page may do.

use serde::{Deserialize, Serialize};

/// A role: each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Reads the metrics.
    Metrics,
    /// Looks at the page, and changes nothing.
    Viewer,
    /// Also takes checkpoints, and drains nodes.
    Operator,
}

impl Role {
    /// Its name, as it is given and listed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

/// What somebody may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The role.
    pub role: Role,
    /// Whose jobs alone; None: all.
    pub user: Option<String>,
    /// The name of the token by which it is known; empty: the coordinator's own user.
    pub name: String,
}

impl Sight {
    /// That of the coordinator's own user.
    #[must_use]
    pub fn own(role: Role) -> Self {
        Self { role, user: None, name: String::new() }
    }

    /// Whether it may look at more than metrics.
    #[must_use]
    pub fn may_look(&self) -> bool {
        self.role >= Role::Viewer
    }

    /// Whether it may order something.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.role == Role::Operator
    }

    /// Whether it may see jobs of the user of that name.
    #[must_use]
    pub fn may_see(&self, owner: &str) -> bool {
        self.user.as_deref().is_none_or(|user| user == owner)
    }
}
