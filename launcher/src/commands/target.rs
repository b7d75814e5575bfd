//! JOB@N: a job, and one of its checkpoints.

use crate::failure::Failure;

/// The job's name and the checkpoint's number.
pub fn split(wanted: &str) -> Result<(&str, Option<u64>), Failure> {
    match wanted.rsplit_once('@') {
        None => Ok((wanted, None)),
        Some((job, number)) => {
            let number = number.parse().map_err(|_| {
                Failure::Usage(format!("wrong usage: {number:?} is not the number of a checkpoint"))
            })?;
            Ok((job, Some(number)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_at_sign() {
        assert_eq!(split("fold").unwrap(), ("fold", None));
        assert_eq!(split("fold@12").unwrap(), ("fold", Some(12)));
        assert_eq!(split("fold@x").unwrap_err().exit_status(), 2);
    }
}
