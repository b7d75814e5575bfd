//! Spans that are exported, as a collector gets them.
