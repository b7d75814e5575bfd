//! The images, and what is changed in them.

use std::path::Path;

use ckptd_tests::job::Failure;

use super::USER;
use super::image::Documents;
use super::impossible;
use super::mutate::{self, Pool};
use super::outside::Outside;
use super::subjects::Subject;

/// What is done to which image.
pub struct Case {
    /// Its number.
    pub number: u64,
    /// The image's, among all.
    pub subject: usize,
    /// The change, if it was written by hand.
    pub by_hand: Option<usize>,
}

/// Everything that cases are made of.
pub struct Material {
    /// The images.
    pub subjects: Vec<Subject>,
    /// Their index files.
    pub documents: Vec<Documents>,
    /// What is in all of them.
    pub pool: Pool,
    /// What is not the user's.
    pub outside: Outside,
    seed: u64,
}

impl Material {
    pub fn gather(root: &Path, seed: u64) -> Result<Self, Failure> {
        let subjects = Subject::all(root)?;
        let mut documents = Vec::new();
        let mut pool = Pool::default();
        for subject in &subjects {
            let found = Documents::read(&subject.checkpoint()?)?;
            found.0.values().for_each(|document| pool.add(document));
            documents.push(found);
        }
        let outside = Outside::make(root, USER)
            .map_err(|e| Failure(format!("failed to make root's files: {e}")))?;
        Ok(Self { subjects, documents, pool, outside, seed })
    }

    /// The changed index files of a case, and what was changed; `None`: there is nothing to be changed.
    pub fn changed(&self, case: &Case) -> Option<(Documents, String)> {
        let mut documents = self.documents.get(case.subject)?.clone();
        if let Some((name, change)) = case.by_hand.map(|at| impossible::ALL[at]) {
            let any = change(&mut documents, &self.outside);
            return (any && documents != self.documents[case.subject])
                .then(|| (documents, name.to_owned()));
        }
        let seed = self.seed.wrapping_mul(1 << 32).wrapping_add(case.number);
        let mut random = fastrand::Rng::with_seed(seed);
        let paths = self.outside.paths();
        let told = mutate::mutate(&mut documents, &self.pool, &paths, &mut random);
        Some((documents, told.join("; ")))
    }
}
