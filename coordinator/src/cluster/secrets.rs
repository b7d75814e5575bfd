//! Where secrets come from: handed in, so that a simulation can repeat a history.

/// Secrets that grow from a seed by BLAKE3: as good as the seed.
#[derive(Debug, Clone)]
pub struct SeededSecrets {
    seed: [u8; 32],
    drawn: u64,
}

impl SeededSecrets {
    /// A source. The seed must come from the system's own random numbers, but for a simulation.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// 32 bytes that nobody else can guess.
    pub fn secret(&mut self) -> [u8; 32] {
        self.drawn += 1;
        *blake3::keyed_hash(&self.seed, &self.drawn.to_le_bytes()).as_bytes()
    }
}
