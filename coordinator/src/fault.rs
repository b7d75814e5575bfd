//! Faults of our own: a step that is asked for where it can't be.

/// Tells that a step was asked for without what it needs, and ends a test. The step is left out.
pub fn tell(step: &str, lacking: &str) {
    tracing::error!("a fault of ckptd's own: asked to {step} without {lacking}");
    debug_assert!(false, "asked to {step} without {lacking}");
}
